"""Trees of processes: what a process has started, whatever that did to hide, and how all of it is killed.

A process belongs to a tree if it is in the session of its root, if its parent belongs to it, or if the environment it
was started with carries the tree's mark. So a program that starts a daemon (in a session of its own, its parent gone)
is found by the mark, and one that clears the environment is found as long as its parents live. Linux only; elsewhere
nothing is found, and the process group has to be enough.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

MARK: Final = "TOOLEXEC_RUN"
"""The environment variable with the mark."""

_PROC: Final = Path("/proc")
_PAGE, _TICKS = (os.sysconf(name) if hasattr(os, "sysconf") else 0 for name in ("SC_PAGE_SIZE", "SC_CLK_TCK"))
_ROUNDS: Final = 200
_PATIENCE: Final = 5.0


class Member(NamedTuple):
    """A process: memory in bytes, and the CPU time in seconds that it and its ended children have used.

    `started` is in ticks of the kernel since the machine started.
    """

    pid: int
    parent: int
    session: int
    started: int
    memory: int
    own_cpu: float
    children_cpu: float


class ProcessTree:
    """The process *root*, which leads a session, and all that it starts. For any thread.

    *mark* is the value of its MARK, if it has one.
    """

    def __init__(self, root: int, mark: str = "") -> None:
        self.root = root
        self.marked: bool = bool(mark)
        """Whether it has a mark."""
        self._mark = f"{MARK}={mark}".encode()
        self._known: set[tuple[int, int]] = set()  # with the start time, as numbers are used again
        self._strangers: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        fields = read_stat(root)  # also of one that has ended and was not reaped yet
        self._since = int(fields[19]) if fields else 0

    def members(self) -> list[Member]:
        """Return those that live now. Reads all of /proc, but the environment of each process only once."""
        with self._lock:
            young = {member.pid: member for member in _processes() if member.started >= self._since}
            found = {pid: member for pid, member in young.items() if self._belongs(member)}
            grown = True
            while grown:  # children of members, and theirs
                children = {pid: m for pid, m in young.items() if pid not in found and m.parent in found}
                found |= children
                grown = bool(children)
            self._known |= {(member.pid, member.started) for member in found.values()}
            self._strangers &= {(member.pid, member.started) for member in young.values()}
            return [*found.values()]

    def kill(self) -> bool:
        """Kill them all; whether none is left. Blocks for a few milliseconds, some seconds at most.

        The process *root* must not have been reaped yet: otherwise its number may be that of another process. Without
        a mark only the group and the descendants are found, which takes no look at all of /proc.
        """
        return self._kill_marked() if self.marked else _kill_descendants(self.root)

    def _kill_marked(self) -> bool:
        """Kill at once, and again until none is left."""
        for round_ in range(_ROUNDS):
            members = self.members()  # before the first kill, as orphans no longer show whose they are
            signal_group(self.root)
            for member in members:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(member.pid, signal.SIGKILL)
            if round_ and not members:
                return True
            time.sleep(0.0005 if round_ < 10 else 0.01)
        return False

    def _belongs(self, member: Member) -> bool:
        key = (member.pid, member.started)
        if member.session == self.root or key in self._known:
            return True
        if not self.marked or key in self._strangers:
            return False
        try:
            environment = (_PROC / str(member.pid) / "environ").read_bytes()
        except OSError:  # it is gone, or of another user
            return False
        if self._mark in environment.split(b"\0"):
            return True
        if environment:  # during an exec it is empty for a moment
            self._strangers.add(key)
        return False


def signal_group(group: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process group, if it is there; 0 is that of this process."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def descendants(pid: int) -> set[int]:
    """Return the living processes below *pid* that the kernel knows of."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        tasks = Path(f"/proc/{todo.pop()}/task")
        with suppress(OSError):
            for task in tasks.iterdir():
                with suppress(OSError, ValueError):
                    children = {int(text) for text in (task / "children").read_bytes().split()}
                    todo += children - found
                    found |= children
    return found


def _kill_descendants(root: int) -> bool:
    """Kill *root*, which must not have been reaped, its group and its descendants; whether none is left.

    Blocks until they are gone, some seconds at most.
    """
    held: dict[int, int] = {}
    try:
        while new := descendants(root) - held.keys():
            for pid in new:
                held[pid] = _kill_one(pid)
        signal_group(root)
        with suppress(ProcessLookupError, PermissionError):  # it leads its group, unless it is gone
            os.kill(root, signal.SIGKILL)
        return _all_gone({descriptor for descriptor in held.values() if descriptor >= 0})
    finally:
        for descriptor in held.values():
            if descriptor >= 0:
                os.close(descriptor)


def _kill_one(pid: int) -> int:
    """Kill it and return a descriptor that is readable when it is gone; -1 for one that is, or that cannot be had."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        return -1
    with suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    return descriptor


def _all_gone(descriptors: set[int]) -> bool:
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    until = time.monotonic() + _PATIENCE
    while descriptors:
        ready = poller.poll(max(0.0, until - time.monotonic()) * 1000)
        if not ready:
            return False
        for descriptor, _ in ready:
            poller.unregister(descriptor)
            descriptors.discard(descriptor)
    return True


def read_stat(pid: int) -> list[bytes]:
    """Return the fields of `/proc/PID/stat` after the name; none for a process that is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return []
    return text[text.rindex(b")") + 2 :].split()


def _processes() -> Iterator[Member]:
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - names are all that is needed, and there may be thousands
    except OSError:
        return
    for name in names:
        if name.isdecimal() and (member := _read(int(name))) is not None:
            yield member


def _read(pid: int) -> Member | None:
    """Read what /proc has on a process; None for one that is gone or only waits to be reaped."""
    fields = read_stat(pid)
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return Member(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        memory=int(fields[21]) * _PAGE,
        own_cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
        children_cpu=(int(fields[13]) + int(fields[14])) / _TICKS,
    )
