"""The processes of a control group that something else has made, such as the daemon that ran a container."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolexec.process.poll import pauses

_PROC: Final = Path("/proc")
_NAME: Final = re.compile(r"[0-9a-f]{64}|toolexec-[0-9a-f]+-[0-9]+-[0-9]+-[0-9a-f]{12}")
_PATIENCE: Final = 1.0
_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0


def kill_members(name: str, *, proc: Path = _PROC) -> bool:
    """Kill the processes on this machine whose control group is called by the ID *name* of a container.

    Return whether none is left after a second: what other users have started may have to stay, and what ran on another
    machine was never here. Only a whole ID that is not that of this process's own container is looked for, as it may
    come from a daemon: 64 hexadecimal digits, or one of ours (`toolexec-OWNER-RANDOM`). Blocks.
    """
    if not _NAME.fullmatch(name) or _is_in(proc / "self", name) or not hasattr(os, "pidfd_open"):
        return False
    until = time.monotonic() + _PATIENCE
    waits = pauses(0.001, 0.02)
    while members := [*_members(name, proc)]:
        for pid in members:
            _kill(pid, name, proc)
        if time.monotonic() > until:
            return False
        time.sleep(next(waits))
    return True


def now_of_boot() -> float:
    """Return how many seconds this machine has been up, as `open_member` takes them; 0.0 where that is not known."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else 0.0


def open_member(pid: int, name: str, *, since: float = 0.0, proc: Path = _PROC) -> int:
    """Return a descriptor of the process *pid*, to be closed; -1 where it is not one of the container *name* here.

    A daemon says the number, and may count processes in another namespace or on another machine, where it is that of a
    stranger: its control group must be called by the whole ID (see `kill_members`), and it must have been started
    *since* a moment of `now_of_boot`.
    """
    if not _NAME.fullmatch(name) or pid <= 0:
        return -1
    try:
        process = os.pidfd_open(pid)
    except (AttributeError, OSError, OverflowError):
        return -1
    if _is_in(proc / str(pid), name) and (not since or _started(proc / str(pid)) >= int(since * _TICKS)):
        return process
    os.close(process)
    return -1


def _members(name: str, proc: Path) -> Iterator[int]:
    with suppress(OSError):
        for entry in proc.iterdir():
            if entry.name.isdecimal() and _is_in(entry, name):
                yield int(entry.name)


def _is_in(process: Path, name: str) -> bool:
    """Return whether a process runs in a group of that name; a dead one that waits to be asked about does not."""
    try:
        inside = name in (process / "cgroup").read_text("utf-8", "replace")
        state = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split() if inside else ["Z"]
    except OSError:
        return False
    return inside and state[:1] not in (["Z"], ["X"], [])


def _started(process: Path) -> int:
    """Return when a process was started, in ticks since the machine was; -1 for one that is gone."""
    with suppress(OSError, ValueError, IndexError):
        return int((process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
    return -1


def _kill(pid: int, name: str, proc: Path) -> None:
    """Kill a process that is still the one that was found: its number may belong to another one by now."""
    process = open_member(pid, name, proc=proc)
    if process >= 0:
        with suppress(OSError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        os.close(process)
