"""Programs that compute for long give way to all others: their threads get a lower priority.

Those that give way from their start on have what is left. Any other thread that wakes up takes their core at once;
beside one that is only nicer, it may wait for a tick of the kernel, four milliseconds.

An ordinary user can lower the priority of a thread and not raise it again, so a thread ends with such a program.

Who has only what is left may get nothing for seconds, also while it holds the interpreter of its process. So before one
of them is stopped, all threads of that process are like others, until it has ended.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

LONG_SECONDS: Final = 0.02
"""For how long a program computes before it gives way; a usual one with a few calls takes some milliseconds."""
LOWER: Final = 5
"""By how much its thread is nicer then: it gets a third of what others get that want the same core. With more, programs
would reach their time limits on a machine that has other work."""
_IDLE_ROUNDS: Final = 50


def hurry(process: int) -> bool:
    """Have no thread of a process with guests leave the cores to others, as one of them is to be stopped; return
    whether that is so. An ordinary user may not do this."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it is gone
        for task in Path(f"/proc/{process}/task").iterdir():
            thread = int(task.name)
            with suppress(ProcessLookupError):
                if os.sched_getscheduler(thread) == os.SCHED_IDLE:
                    try:
                        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
                    except PermissionError:
                        return False
    return True


class Watched:
    """A thread whose program is watched, from now on."""

    __slots__ = ("_began", "_clock", "gives_way", "is_stopped", "leaves_cores", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_native_id()
        self.gives_way: bool = False
        """Whether its priority was lowered."""
        self.leaves_cores: bool = False
        """Whether it has only what the others leave, unless one is being stopped."""
        self.is_stopped: bool = False
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._began = time.clock_gettime(self._clock)

    @property
    def computed(self) -> float:
        """For how many seconds it has computed."""
        return time.clock_gettime(self._clock) - self._began


class LongRuns:
    """Looks every `LONG_SECONDS` which threads have computed for that long, in a thread of its own, and lowers their
    priority."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards these
        self._watched: set[Watched] = set()
        self._is_waiting = False
        self._usual = os.getpriority(os.PRIO_PROCESS, 0)
        threading.Thread(target=self._keep, name="toolexec-long-runs", daemon=True).start()

    def enter(self, *, gives_way: bool = False) -> Watched:
        """Watch the calling thread, which begins a program; it *gives_way* at once if it should."""
        watched = Watched()
        with self._changed:
            self._watched.add(watched)
            if gives_way:
                self._leave_cores(watched)
            if self._is_waiting:
                self._changed.notify()
        return watched

    def leave(self, watched: Watched) -> None:
        """Watch it no more: its program is over."""
        with self._changed:
            self._watched.discard(watched)

    def stop(self, watched: Watched) -> None:
        """Note that a program is stopped, for which all threads of this process are like others until it is over; they
        were made so where the order came from, as this process may not get to it."""
        with self._changed:
            watched.is_stopped = True
            if any(each.leaves_cores for each in self._watched):
                hurry(os.getpid())  # it may have looked since

    def look(self) -> int:
        """Lower the priority of those that have computed for long; return how many are watched."""
        with self._changed:  # none of these threads ends meanwhile
            is_stopping = any(each.is_stopped for each in self._watched)
            for each in self._watched:
                if not each.gives_way and each.computed >= LONG_SECONDS:
                    self._lower(each)
                elif each.leaves_cores and not is_stopping:
                    self._leave_cores(each)
            return len(self._watched)

    def _lower(self, watched: Watched) -> None:
        with suppress(OSError):  # another rule may hold here
            os.setpriority(os.PRIO_PROCESS, watched.thread, min(19, self._usual + LOWER))
            watched.gives_way = True

    def _leave_cores(self, watched: Watched) -> None:
        try:
            os.sched_setscheduler(watched.thread, os.SCHED_IDLE, os.sched_param(0))
            watched.gives_way = watched.leaves_cores = True
        except (AttributeError, OSError):  # it is not Linux, or another rule holds here
            self._lower(watched)

    def _keep(self) -> None:
        rounds = 0
        while True:
            rounds = 0 if self.look() else rounds + 1
            if rounds < _IDLE_ROUNDS:  # programs may come one after the other
                time.sleep(LONG_SECONDS)
                continue
            with self._changed:
                self._is_waiting = True
                while not self._watched:
                    self._changed.wait()
                self._is_waiting, rounds = False, 0
