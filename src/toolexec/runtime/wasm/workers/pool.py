"""The workers of a backend: started when runs keep coming at the same time, chosen by load, ended when they idle."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from functools import partial
from time import monotonic
from typing import Final

from toolexec.model.forks import forks
from toolexec.process.threads import NoThreadError, WorkerThreads
from toolexec.runtime.runs import ALARMS
from toolexec.runtime.wasm.config import MAX_WORKERS
from toolexec.runtime.wasm.instance import Program
from toolexec.runtime.wasm.workers.instance import WorkerInstance
from toolexec.runtime.wasm.workers.lost import WorkerLostError
from toolexec.runtime.wasm.workers.process import WorkerProcess, can_start

logger: logging.Logger = logging.getLogger(__name__)
_ENOUGH: Final = 16.0
"""How many runs beside others, each of the last second counted in full, are worth the start of a worker."""
_HALF_SECONDS: Final = 1.0
_APART: Final = 2
"""How many more runs a worker may have before the next one goes to a worker with runs that give way: these may hold
its interpreter for long, as they are slow."""
IDLE_SECONDS: Final = 30.0
"""How long there must be no run beside others for the workers to end."""


def worker_count(wanted: int | str) -> int:
    """Return how many workers a backend may have here: with `auto` one for each core, and none where there is one."""
    if not can_start():
        return 0
    if isinstance(wanted, int):
        return wanted
    cores = len(_cores())
    return cores if cores > 1 else 0


class Workers:
    """At most *count* worker processes for guests of one program; for any thread.

    None is started before runs have met each other a number of times; the next ones follow as there is work for them.
    What takes no run for a while ends. A worker that is lost is replaced when there is work for it.
    """

    def __init__(
        self, program: Program, count: int, *, idle_bytes: int, most_bytes: int, threads: WorkerThreads
    ) -> None:
        self.least: int = 0
        """How many there are always, once there were so many; the others end when they idle."""
        self.ranks: bool = False
        """Whether programs that compute for long, or are to give way from their start on, do so in workers that start
        from now on: for programs of several tenants, and a machine that has no other work."""
        self._program = program
        self._count = count
        self._idle_bytes = idle_bytes // max(count, 1)
        self._most_bytes = most_bytes
        self._threads = threads
        self._reset()

    def _reset(self) -> None:
        self._forks = forks.count
        self._begun = threading.Lock()  # held while a worker starts
        self._lock = threading.Lock()  # guards all of these
        self._ready: list[WorkerProcess] = []
        self._starting = False
        self._closed = False
        self._failed = False
        self._met = 0.0  # runs that began beside others, fading with time
        self._last = 0.0
        self._watched = False

    @property
    def ready(self) -> list[WorkerProcess]:
        """Those that take runs now."""
        return [] if self._forks != forks.count else [*self._ready]

    @property
    def starting(self) -> bool:
        """Whether one more is being started."""
        return self._starting

    def meet(self, others: int) -> bool:
        """Record that a run begins beside *others*, and return whether there is a worker for it."""
        if self._forks != forks.count:
            self._reset()
        if not self._count:
            return False
        now = monotonic()
        with self._lock:
            self._met = self._met * 0.5 ** ((now - self._last) / _HALF_SECONDS) + 1
            self._last = now
            more = self._needs_more(others + 1)
            self._starting = self._starting or more
            ready = bool(self._ready)
        if more:
            try:
                self._threads.start(self._start_one)
            except NoThreadError:
                self._starting = False
        return ready

    def _needs_more(self, runs: int) -> bool:
        """Return whether so many runs have use for one more. Which workers they are in says too little: of many that
        begin at once none is in a worker yet."""
        if self._closed or self._failed or self._starting or len(self._ready) >= self._count:
            return False
        return len(self._ready) < self.least or (self._met >= _ENOUGH and runs > len(self._ready))

    def open(self, *, gives_way: bool = False) -> WorkerInstance | None:
        """Return a guest in the worker with the fewest runs, those that give way apart from others; None when there is
        no worker."""
        while True:
            with self._lock:
                if not self._ready:
                    return None
                worker = self._choose(gives_way)
                worker.runs += 1
                worker.giving_way += gives_way
            try:
                instance = WorkerInstance(worker.open(), partial(self._leave, worker, gives_way))
                instance.gives_way = gives_way
                return instance
            except WorkerLostError as error:
                logger.warning("a worker of the embedded sandbox was lost: %s", error)
                self._drop(worker)
            except OSError as error:  # no descriptors are left
                logger.warning("a program runs without a worker: %s", error)
                with self._lock:
                    worker.runs -= 1
                    worker.giving_way -= gives_way
                return None

    def _choose(self, gives_way: bool) -> WorkerProcess:
        """Return the worker for a run. Where there are several, one is left to those that do not give way."""
        ready = self._ready
        if not gives_way:
            return min(ready, key=lambda each: each.runs - each.giving_way + (_APART if each.giving_way else 0))
        others = [each for each in ready if each.giving_way]
        return min(others if others and len(others) + 1 >= len(ready) else ready, key=lambda each: each.runs)

    def start(self, most: int = MAX_WORKERS) -> None:
        """Start all of them now, or so many; blocks until they are ready, or none can be started."""
        while len(self._ready) < min(most, self._count) and not self._failed and not self._closed:
            self._start_one()

    def close(self) -> None:
        """End all of them, also one that is being started, which takes some tenths of a second; runs in them fail."""
        with self._lock:
            self._closed = True
            workers, self._ready = self._ready, []
        for worker in workers:
            worker.end()
        with self._begun:
            pass

    def _start_one(self) -> None:
        with self._begun:
            self._start_now()

    def _start_now(self) -> None:
        """Start one more worker, on the core that has the fewest; a failure is logged, and no more are started."""
        cores, file = _cores(), self._program.file
        with self._lock:
            if self._closed or len(self._ready) >= self._count:  # others were started before it was its turn
                self._starting = False
                return
            self._starting = True
            taken = [worker.core for worker in self._ready]
        core = min(cores, key=taken.count) if cores else None
        worker: WorkerProcess | None = None
        try:
            if file is None:
                raise WorkerLostError("the sandbox was not loaded from a file")
            worker = WorkerProcess(
                file, core=core, idle_bytes=self._idle_bytes, most_bytes=self._most_bytes, ranks=self.ranks
            )
        except (OSError, WorkerLostError) as error:
            logger.warning("programs run without worker processes, as none can be started: %s", error)
            self._failed = True
        with self._lock:
            self._starting = False
            late = self._closed
            if worker is not None and not late:
                self._ready.append(worker)
                self._last = monotonic()
                self._watch()
        if worker is not None and late:
            worker.end()

    def _leave(self, worker: WorkerProcess, gives_way: bool) -> None:
        """Record that a run has left a worker."""
        with self._lock:
            worker.runs -= 1
            worker.giving_way -= gives_way
        if not worker.is_alive():
            self._drop(worker)

    def _drop(self, worker: WorkerProcess) -> None:
        """Give no more runs to a worker that is lost."""
        if worker in self.ready:
            self.end(worker)

    def end(self, worker: WorkerProcess) -> None:
        """End one of them, in a thread."""
        with self._lock:
            self._ready = [known for known in self._ready if known is not worker]
        try:
            self._threads.start(worker.end)
        except NoThreadError:
            worker.end()

    def _watch(self) -> None:
        """Look after a while whether the workers idle."""
        if self._watched:
            return
        self._watched = True
        known = weakref.ref(self)

        def look() -> None:
            workers = known()
            if workers is not None:
                workers.end_idle()

        ALARMS.at(monotonic() + IDLE_SECONDS, look)

    def end_idle(self) -> None:
        """End them if they have had no run for a while."""
        idle: list[WorkerProcess] = []
        with self._lock:
            self._watched = False
            quiet = monotonic() - self._last >= IDLE_SECONDS
            if quiet and not any(worker.runs for worker in self._ready):
                idle, self._ready = self._ready[self.least :], self._ready[: self.least]
                self._met = 0.0
            elif self._ready:
                self._watch()
        for worker in idle:
            self.end(worker)


def _cores() -> list[int]:
    try:
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not on this system
        return []
