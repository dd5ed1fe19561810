"""What sandboxes share to run programs: which they take and in what turn, when a run ends, and what came of it.

Deadlines hold whatever the event loop does, and closing cancels what runs.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Any, Final, TypeVar

from toolexec.code.limits import trace_of
from toolexec.code.types import BackendInfo, CodeResult, ExecuteRequest
from toolexec.errors import ClosedError, InvalidRequestError, SandboxUnavailableError
from toolexec.model.json_value import JSONObject
from toolexec.process import slots
from toolexec.process.caller_runs import STOPPED
from toolexec.process.settling import retrieve, settle
from toolexec.runtime.base import LANGUAGES, SandboxBackend, located
from toolexec.runtime.outcome import Ending, judge

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
                    self._loop.call_soon_threadsafe(settle, self.passed, None)


class OwnRuns:
    """Runs work for callers, each in a task that `aclose` cancels; the caller then gets a ClosedError.

    A caller that is cancelled itself cancels its work, and waits until that has ended.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def run(self, work: Coroutine[Any, Any, T], stop: Callable[[], bool] | None = None) -> T:
        """Return what *work* gives; raises what it raises, and ClosedError when it was stopped by `aclose`.

        Work whose caller is cancelled goes to its end where *stop* gives True, as it ends it soon; a second
        cancellation cancels it.
        """
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            if stop is not None and not task.done() and stop():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([task])
            task.cancel()
            await asyncio.wait([task])
            retrieve(task)  # the caller receives the cancellation
            raise
        if task.cancelled():
            raise ClosedError(STOPPED)
        return task.result()

    async def aclose(self) -> None:
        """Cancel all work and wait until it has ended; work that closes what it runs in does not wait for itself."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class Slots(slots.Slots):
    """Lets in *size* programs at once; who finds no place waits, first come, first served, and must `leave`."""

    async def enter(self, ends: float, backend: Any) -> None:
        """Wait for a place until *ends* (of `monotonic()`); who is let in must `leave`.

        Raises SandboxUnavailableError, which is worth a retry, when there was none until then.
        """
        if not self.take() and not await self.wait(ends - monotonic()):
            raise SandboxUnavailableError(
                f"{self.size} programs run in {backend.kind} already, and none ended in time; "
                "try again later, or raise max_running or the time limit",
                backend=backend.kind,
                retryable=True,
                details={"max_running": self.size},
            )


def language_of(backend: SandboxBackend, request: ExecuteRequest) -> str:
    """Return the language of a request that *backend* can run; raises InvalidRequestError for another one, and for a
    replay that it cannot give.
    """
    language = request.language or "python"
    if language not in LANGUAGES:
        known = ", ".join(sorted(LANGUAGES))
        raise located(InvalidRequestError(f"{backend.kind} does not run {language!r}; it runs {known}"), backend)
    if not request.best_effort and (request.now is not None or (request.seed is not None and language != "python")):
        what = "the clock" if request.now is not None else f"random numbers of {language}"
        raise located(
            InvalidRequestError(
                f"{backend.kind} cannot replay {what}; use the wasm sandbox, or best_effort=True to run without that"
            ),
            backend,
        )
    return language


def result_of(
    backend: SandboxBackend,
    request: ExecuteRequest,
    ending: Ending,
    began: float,
    details: JSONObject,
    files: dict[str, bytes],
) -> CodeResult:
    """Return what came of a run, as the caller gets it; *began* is the `perf_counter()` at its start."""
    error = judge(ending)
    payload = ending.result or {}
    return CodeResult(
        backend=BackendInfo(kind=backend.kind, isolation=backend.isolation, details=dict(details)),
        value=payload.get("value") if error is None else None,
        stdout=request.output.text("stdout"),
        stderr=request.output.text("stderr"),
        tool_calls=trace_of(request.gateway),
        duration=perf_counter() - began,
        files=files,
        error=located(error, backend) if error is not None else None,
        limits_enforced=backend.enforces(request),
    )
