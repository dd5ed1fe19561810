"""One worker process, from the host's side: started apart, hung up on, killed; and its lanes, each for one run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolexec.model.json_value import JSONDict
from toolexec.process.tree import signal_group
from toolexec.runtime.wasm.workers.long_runs import hurry
from toolexec.runtime.wasm.workers.lost import WorkerLostError
from toolexec.runtime.wasm.workers.wire import Line

_PROGRAM: Final = (
    "import json, sys; sys.path[:], job = json.loads(sys.argv.pop()); "
    "from toolexec.runtime.wasm.workers.main import main; main(job)"
)
_START_SECONDS: Final = 60.0
_NEEDED: Final = ("LD_LIBRARY_PATH",)
"""What the interpreter itself may need of the environment."""
_started: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


def can_start() -> bool:
    """Return whether this process can have workers: on Linux, if it is Python and not a program with Python in it."""
    return sys.platform == "linux" and Path(sys.executable or "").name.startswith(("python", "pypy"))


class Lane:
    """A line to a worker on which guests run one after the other."""

    __slots__ = ("line", "number", "worker")

    def __init__(self, worker: WorkerProcess, number: int, line: Line) -> None:
        self.worker = worker
        self.number = number
        self.line = line


class WorkerProcess:
    """A process that runs guests of one program, in threads, on one core. For any thread.

    It gets the open file of the compiled *program* and two sockets, and none of this process's input, other
    descriptors, or environment, but for the path of the interpreter's libraries. It dies with this process. Where it
    *ranks* its programs, those that compute for long give way to the others, and to this process.
    Constructing it starts it, and blocks until it is ready. Raises OSError when it cannot be started, and
    WorkerLostError when it ends before it is ready.
    """

    def __init__(
        self, program: int, *, core: int | None, idle_bytes: int, most_bytes: int, ranks: bool = False
    ) -> None:
        self.runs: int = 0
        """How many runs it has; kept by who gives them to it."""
        self.giving_way: int = 0
        """How many of these give way to all others."""
        self.core: int | None = core
        self.why: str = ""
        """What the runs in it say of its end, if that was no accident."""
        self._most = most_bytes
        self._lock = threading.Lock()  # guards these
        self._lanes: list[Lane] = []
        self._listeners: set[Callable[[str], None]] = set()
        self._gone = ""
        self._opened = 0
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lifeline, their_lifeline = socket.socketpair()
        job: JSONDict = {"control": theirs.fileno(), "program": program, "core": core}
        job |= {"idle_bytes": idle_bytes, "ranks": ranks}
        path = [str(directory) or str(Path.cwd()) for directory in sys.path]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter with our own arguments
                [sys.executable, "-I", *_options(), "-c", _PROGRAM, json.dumps([path, job])],
                stdin=subprocess.DEVNULL,
                stdout=their_lifeline.fileno(),
                pass_fds=[theirs.fileno(), program],
                env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                cwd="/",
                process_group=0,  # not a session: Linux gives each its share, in which priorities count, and not beyond
            )
        except BaseException:
            self._hang_up()
            raise
        finally:
            theirs.close()
            their_lifeline.close()
        self._end = weakref.finalize(self, _end, os.getpid(), self._process, self._control, self._lifeline)
        _started.add(self)
        self._wait_until_ready()
        threading.Thread(
            target=_watch, args=(self._control, weakref.ref(self)), name="toolexec-watch", daemon=True
        ).start()

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Return whether it runs, and has not been killed."""
        if self.why or not self._end.alive:
            return False
        try:
            return bool(self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def open(self) -> Lane:
        """Return a lane that no guest runs on. Raises WorkerLostError."""
        if not self.is_alive():
            raise WorkerLostError(self.ending())
        with self._lock:
            if self._lanes:
                return self._lanes.pop()
            self._opened += 1
            number = self._opened
        ours, theirs = socket.socketpair()
        try:
            order = json.dumps({"open": number}).encode()
            socket.send_fds(self._control, [order], [theirs.fileno()], socket.MSG_NOSIGNAL)
        except OSError as error:
            ours.close()
            raise WorkerLostError(f"its worker process takes no more orders: {error}") from error
        finally:
            theirs.close()
        return Lane(self, number, Line(ours, self._most))

    def give_back(self, lane: Lane) -> None:
        """Keep a lane whose guest has ended by itself, for the next one."""
        with self._lock:
            self._lanes.append(lane)

    def stop(self, lane: Lane) -> bool:
        """Have the guest on a lane stopped; the lane must be closed after that, and not given back. Return whether it
        can obey at once: guests that leave the cores to others get one for it, where that is allowed."""
        with suppress(OSError):  # it is gone, or will be killed when it does not obey
            self._control.send(json.dumps({"stop": lane.number}).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        return self._hurry()

    def _hurry(self) -> bool:
        return not self.giving_way or not self._end.alive or hurry(self.pid)

    def add_listener(self, when_gone: Callable[[str], None]) -> None:
        """Have *when_gone* called, from a thread, with how this worker ended; now if it has."""
        with self._lock:
            gone = self._gone
            if not gone:
                self._listeners.add(when_gone)
        if gone:
            when_gone(gone)

    def remove_listener(self, when_gone: Callable[[str], None]) -> None:
        """Have it not called any more."""
        with self._lock:
            self._listeners.discard(when_gone)

    def gone(self) -> None:
        """Record that it has hung up, and call the listeners."""
        how = self.ending()
        with self._lock:
            self._gone = how
            listeners, self._listeners = self._listeners, set()
        for when_gone in listeners:
            when_gone(how)

    def kill(self, why: str) -> None:
        """Kill it: *why* is what the runs in it say of it. It must still be ended."""
        self.why = self.why or why
        if self._end.alive:
            self._hurry()  # threads end by themselves, which takes a core
            signal_group(self.pid)

    def end(self) -> None:
        """Kill it, and wait until it is gone; twice is fine."""
        self.why = self.why or "its worker process was closed"
        self._hurry()
        self._end()
        with self._lock:
            lanes, self._lanes = self._lanes, []
        for lane in lanes:
            lane.line.socket.close()

    def ending(self) -> str:
        """Say how it ended."""
        if self.why:
            return self.why
        with suppress(subprocess.TimeoutExpired):  # the sockets are closed before it can be waited for
            self._process.wait(1)
        code = self._process.returncode
        if code is None:
            return "its worker process closed its line"
        if code < 0:
            return f"its worker process was killed by {signal.Signals(-code).name}"
        return f"its worker process ended with exit code {code}"

    def leave(self) -> None:
        """Release a process that belongs to the parent of this one, after a fork."""
        self._end.detach()
        self._hang_up()
        for lane in self._lanes:
            lane.line.socket.close()
        self._process.returncode = 0  # not ours to wait for
        self.why = "its worker process belongs to the parent of this process"

    def _wait_until_ready(self) -> None:
        self._control.settimeout(_START_SECONDS)
        try:
            ready = bool(self._control.recv(16))
        except OSError:
            ready = False
        if not ready:
            why = self.ending()
            self.end()
            raise WorkerLostError(why)
        self._control.settimeout(None)

    def _hang_up(self) -> None:
        self._control.close()
        self._lifeline.close()


def _options() -> list[str]:
    """Return what this interpreter was started with and the worker must not do either."""
    return ["-B"] if sys.dont_write_bytecode else []


def _watch(control: socket.socket, worker: weakref.ref[WorkerProcess]) -> None:
    """Wait until a worker hangs up, in a thread for that: threads that answer its guests may be held up by a tool."""
    with suppress(OSError):
        while control.recv(16):
            continue
    ended = worker()
    if ended is not None:
        ended.gone()


def _end(owner: int, process: subprocess.Popen[bytes], *sockets: socket.socket) -> None:
    if owner == os.getpid():
        if process.returncode is None:
            signal_group(process.pid)
            process.wait()
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # the thread that watches it sees this, and not that it is closed
    for each in sockets:
        each.close()


def _leave_all() -> None:
    for worker in [*_started]:
        worker.leave()
    _started.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
