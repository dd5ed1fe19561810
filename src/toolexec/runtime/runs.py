"""How runs end in time: deadlines that hold whatever the event loop does, and tasks that closing cancels."""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeVar

from toolexec.errors import ClosedError

__all__ = ["ALARMS", "Alarm", "Alarms", "Deadline", "OwnRuns"]

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)
_MOST_OFF: Final = 1000


class Alarm:
    """Something that is due at some time; `off` calls it off."""

    __slots__ = ("_ring", "due")

    def __init__(self, due: float, ring: Callable[[], None]) -> None:
        self.due: float = due
        self._ring: Callable[[], None] | None = ring

    def off(self) -> None:
        """Have it not ring, unless it rings already. From any thread; twice is fine."""
        self._ring = None

    @property
    def is_off(self) -> bool:
        """Whether it will not ring, or has rung."""
        return self._ring is None

    def ring(self) -> None:
        """Do what it is for; once."""
        ring, self._ring = self._ring, None
        if ring is not None:
            ring()

    def __lt__(self, other: Alarm) -> bool:
        return self.due < other.due


class Alarms:
    """A thread that rings alarms when they are due. It starts with the first one, and does nothing else."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin with nothing, as a child process does: its parent's thread is not there."""
        self._changed = threading.Condition()
        self._alarms: list[Alarm] = []
        self._thread: threading.Thread | None = None
        self._set = 0

    def at(self, due: float, ring: Callable[[], None]) -> Alarm:
        """Call *ring* at *due* (of `time.monotonic`), in the thread of the alarms: it must be quick, and safe there.

        From any thread. Raises RuntimeError when no thread can be started.
        """
        alarm = Alarm(due, ring)
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._keep, name="toolexec-alarms", daemon=True)
                thread.start()
                self._thread = thread
            self._set += 1
            if self._set > _MOST_OFF:  # most alarms are called off long before they are due
                self._set = 0
                self._alarms = [known for known in self._alarms if not known.is_off]
                heapq.heapify(self._alarms)
            heapq.heappush(self._alarms, alarm)
            if self._alarms[0] is alarm:
                self._changed.notify()
        return alarm

    def _keep(self) -> None:
        while True:
            with self._changed:
                while not self._alarms:
                    self._changed.wait()
                left = self._alarms[0].due - monotonic()
                if left > 0 and not self._alarms[0].is_off:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                    continue
                alarm = heapq.heappop(self._alarms)
            try:
                alarm.ring()
            except Exception:
                logger.exception("a deadline could not be kept")
            del alarm


ALARMS: Final = Alarms()
"""Those of this process."""


class Deadline:
    """Stops a piece of work at *ends* (of `time.monotonic`), also while the event loop is held up.

    *stop* is called in the thread of the alarms: it must be quick, and safe there. Belongs to the running event loop.
    """

    def __init__(self, ends: float, stop: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = stop
        self._lock = threading.Lock()
        self._is_over = False
        self.late = False
        """Whether the work was stopped."""
        self.passed: asyncio.Future[None] = self._loop.create_future()
        """Is done as soon as the event loop is notified that the work was stopped."""
        self._alarm = ALARMS.at(ends, self._ring)

    def off(self) -> None:
        """Have it stop nothing from now on; a stop that is under way is waited for. Twice is fine."""
        with self._lock:
            self._is_over = True
        self._alarm.off()
        self.passed.cancel()

    def _ring(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self.late: bool = True
            try:
                self._stop()
            finally:
                with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                    self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self.passed.done():
            self.passed.set_result(None)


class OwnRuns:
    """Runs work for callers, each in a task that `aclose` cancels; the caller then gets a ClosedError.

    A caller that is cancelled itself cancels its work, and waits until that has ended.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what *work* gives; raises what it raises, and ClosedError when it was stopped by `aclose`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # the caller receives the cancellation
            raise
        if task.cancelled():
            raise ClosedError("the run was stopped: what it runs in was closed; make a new one and run it again")
        return task.result()

    async def aclose(self) -> None:
        """Cancel all work and wait until it has ended; work that closes what it runs in does not wait for itself."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
