"""Worker threads for sync handlers.

The standard pool joins its threads when the interpreter exits, so one handler that blocks for ever would keep the
process alive; these threads are daemons. A thread that is idle for a while ends. A thread whose caller has stopped
waiting is lost: Python cannot stop it, so another one takes its place.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, TypeVar

from toolexec.errors import BackendBusyError, ConfigurationError
from toolexec.model.call import ToolCall
from toolexec.model.forks import forks
from toolexec.process.settling import settle

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)
_IDLE_SECONDS = 30.0
_MANY: Final = 8
_FOR_A_THREAD: Final = "a free worker thread"
_Outcome: TypeAlias = tuple[bool, Any]
_State: TypeAlias = Literal["waiting", "running", "lost", "hung", "over"]


class NoThreadError(BackendBusyError):
    """Every thread hangs in a function whose caller has given up, and no more are started: the call never began.

    Backends word it for their callers; as BackendBusyError it is never that of a nested call.
    """

    def __init__(self) -> None:
        super().__init__("not called: every worker thread hangs in a call that was given up; try again later")


class Job:
    """A function that waits for a thread, or runs in one."""

    __slots__ = ("done", "failed", "function", "future", "loop", "state", "tool_call")

    def __init__(self, function: Callable[[], Any], tool_call: ToolCall | None = None) -> None:
        self.function: Callable[[], Any] | None = function
        self.failed: Callable[[BaseException], None] | None = None
        self.done: Callable[[Any], None] | None = None
        self.future: asyncio.Future[_Outcome] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.state: _State = "waiting"
        self.tool_call: ToolCall | None = tool_call


class WorkerThreads:
    """At most *limit* threads that run functions for any number of event loops; further calls wait for a free one.

    A thread is lost when its caller stops waiting (at a time limit, or cancelled) while the function runs. Up to
    *spare* lost threads at a time are replaced, so there are never more than *limit* + *spare*; when all others hang as
    well, calls are refused at once. A lost thread ends with its function.

    Raises ConfigurationError for a limit below 1.
    """

    def __init__(self, limit: int = 64, spare: int = 256) -> None:
        if limit < 1:
            raise ConfigurationError(f"a pool needs at least 1 thread, not {limit}")
        self._limit = limit
        self._spare = spare
        self._reset()

    def _reset(self) -> None:
        self._forks = forks.count
        self._changed = threading.Condition()  # guards all of these; notified of each job and when the pool is closed
        self._jobs: deque[Job] = deque()
        self._threads = 0  # without the lost ones
        self._free = 0  # threads without a job; there are never fewer than jobs, unless the limit is reached
        self._lost = 0
        self._hung = 0  # threads that would be lost, but are not replaced any more
        self._closings = 0

    @property
    def lost(self) -> int:
        """How many threads run a function that no caller waits for any more."""
        return self._lost + self._hung

    async def run(self, function: Callable[..., Any], *args: Any, tool_call: ToolCall | None = None) -> Any:
        """Return `function(*args)`, called in a thread, in a copy of the caller's context; raises what it raises.

        Cancelling stops waiting; a function that runs cannot be stopped, its thread is lost and its result dropped.
        `waiting` of *tool_call* is set until the function begins. Raises NoThreadError when it will not begin.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Outcome] = loop.create_future()
        context = contextvars.copy_context()
        job = Job(lambda: context.run(function, *args), tool_call)
        job.future, job.loop = future, loop
        self._put(job)
        try:
            ok, value = await future
        except BaseException:
            self.abandon(job)
            raise
        if ok:
            return value
        try:
            raise value
        finally:
            del value, future, job  # the traceback holds this frame: in a ring they would wait for the collector

    def start(
        self,
        function: Callable[[], T],
        failed: Callable[[BaseException], None] | None = None,
        done: Callable[[T], None] | None = None,
    ) -> Job:
        """Have a thread call *function*, now or when one is free, without waiting for it. From any thread.

        *failed* gets what it raises, or why it will not be called after all, from any thread. *done* gets what it
        returns, in its thread, which counts as free again by then: who is notified by it finds a thread for more. Both
        must be quick, and raise nothing. Raises NoThreadError when no thread will be free.
        """
        job = Job(function)
        job.failed, job.done = failed, done
        self._put(job)
        return job

    def abandon(self, job: Job) -> None:
        """Stop waiting for a job: it is dropped if it has not begun, else its thread is lost until it returns."""
        refused: list[Job] = []
        with self._changed:
            if job.state == "waiting":
                job.state = "over"
                job.function = None
                with suppress(ValueError):
                    self._jobs.remove(job)
                return
            if job.state != "running":
                return
            if self._lost < self._spare:
                job.state = "lost"
                self._lost += 1
                self._threads -= 1
            else:
                job.state = "hung"
                self._hung += 1
                if self._hung >= self._limit:
                    refused = [*self._jobs]
                    self._jobs.clear()
            lost, spawn, closings = self._lost + self._hung, self._grow(), self._closings
        if lost >= _MANY and lost & (lost - 1) == 0:  # 8, 16, 32, ...: a warning for each would be noise
            logger.warning("%d worker threads are lost: their calls were given up, but their functions go on", lost)
        if spawn:
            self._spawn(closings)
        for other in refused:
            _settle_job(other, (False, NoThreadError()))

    def _put(self, job: Job) -> None:
        if self._forks != forks.count:  # the threads have stayed in the parent process, and perhaps the lock's owner
            self._reset()
        with self._changed:
            if self._hung >= self._limit:
                raise NoThreadError
            if job.tool_call is not None:
                job.tool_call.waiting = _FOR_A_THREAD
            self._jobs.append(job)
            spawn, closings = self._grow(), self._closings
            self._changed.notify()
        if spawn:
            self._spawn(closings)

    def _grow(self) -> bool:
        """Make room for one more thread if a job needs one; the caller, who holds the lock, spawns it afterwards."""
        spawn = self._free < len(self._jobs) and self._threads < self._limit
        self._threads += spawn
        self._free += spawn
        return spawn

    def close(self) -> None:
        """Let idle threads end now, and busy ones after their job. The pool can still be used."""
        if self._forks != forks.count:
            return
        with self._changed:
            self._closings += 1
            self._changed.notify_all()

    def _spawn(self, closings: int) -> None:
        try:
            threading.Thread(target=self._work, args=(closings,), name="toolexec-worker", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            with self._changed:
                self._threads -= 1
                self._free -= 1
                stranded = [] if self._threads else list(self._jobs)  # no thread is left to do them
                if stranded:
                    self._jobs.clear()
            for job in stranded:
                _settle_job(job, (False, error))

    def _work(self, closings: int) -> None:
        while (job := self._next(closings)) is not None:
            function = job.function
            outcome = _attempt(function) if function is not None else (True, None)
            with self._changed:
                state, job.state = job.state, "over"
                if state == "lost":
                    self._lost -= 1
                else:
                    self._free += 1
                    self._hung -= state == "hung"
            job.function = None
            _settle_job(job, outcome)
            del job, function, outcome  # arguments and result must not live on while this thread waits
            if state == "lost":
                return

    def _next(self, closings: int) -> Job | None:
        """Return the next job; None when this thread is to end: it was idle for long, or the pool was closed."""
        with self._changed:
            patient = True
            while not self._jobs:
                if not patient or closings != self._closings:
                    self._threads -= 1
                    self._free -= 1
                    return None
                patient = self._changed.wait(_IDLE_SECONDS)
            self._free -= 1
            job = self._jobs.popleft()
            job.state = "running"
            if job.tool_call is not None:
                job.tool_call.waiting = ""
            return job


def _attempt(call: Callable[[], Any]) -> _Outcome:
    # Caught here, all of it: SystemExit would end the loop that receives it, StopIteration would be lost in a future.
    try:
        return True, call()
    except BaseException as error:
        return False, error


def _settle_job(job: Job, outcome: _Outcome) -> None:
    notify = job.done if outcome[0] else job.failed
    if notify is not None:
        notify(outcome[1])
    if job.future is not None and job.loop is not None:
        with suppress(RuntimeError):  # the loop is closed, so its callers are gone
            job.loop.call_soon_threadsafe(settle, job.future, outcome)
