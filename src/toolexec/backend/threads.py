"""Worker threads for sync handlers.

The standard pool joins its threads when the interpreter exits, so one handler that blocks for ever would keep the
process alive; these threads are daemons. A thread that is idle for a while ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from toolexec.errors import ConfigurationError

__all__ = ["WorkerThreads"]

_IDLE_SECONDS = 30.0
_Outcome: TypeAlias = tuple[bool, Any]
_Answer: TypeAlias = tuple["asyncio.Future[_Outcome]", asyncio.AbstractEventLoop]
_Job: TypeAlias = tuple[Callable[[], Any], _Answer | None]


class WorkerThreads:
    """At most *limit* threads that run functions for any number of event loops; further calls wait for a free one.

    Raises ConfigurationError for a limit below 1.
    """

    def __init__(self, limit: int = 64) -> None:
        if limit < 1:
            raise ConfigurationError(f"a pool needs at least 1 thread, not {limit}")
        self._limit = limit
        self._changed = threading.Condition()  # guards all of these; notified of each job and when the pool is closed
        self._jobs: deque[_Job] = deque()
        self._threads = 0
        self._free = 0  # threads without a job; there are never fewer than jobs, unless the limit is reached
        self._closings = 0

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)` in a thread, in a copy of the caller's context; its result or exception comes back.

        Cancelling stops waiting; the function itself cannot be stopped and its result is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Outcome] = loop.create_future()
        context = contextvars.copy_context()
        self._put((lambda: context.run(function, *args), (future, loop)))
        ok, value = await future
        if ok:
            return value
        try:
            raise value
        finally:
            del value, future  # the traceback holds this frame: in a ring they would wait for the garbage collector

    def start(self, function: Callable[[], None]) -> None:
        """Have a thread call *function*, now or when one is free; nobody waits for it. From any thread."""
        self._put((function, None))

    def _put(self, job: _Job) -> None:
        with self._changed:
            self._jobs.append(job)
            spawn = self._free < len(self._jobs) and self._threads < self._limit
            self._threads += spawn
            self._free += spawn
            closings = self._closings
            self._changed.notify()
        if spawn:
            self._spawn(closings)

    def close(self) -> None:
        """Let idle threads end now, and busy ones after their job. The pool can still be used."""
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
                stranded = [] if self._threads else list(self._jobs)  # nobody is left to do them
                if stranded:
                    self._jobs.clear()
            for _, answer in stranded:
                _answer(answer, (False, error))

    def _work(self, closings: int) -> None:
        while (job := self._next(closings)) is not None:
            call, answer = job
            outcome = _attempt(call) if answer is None or not answer[0].cancelled() else (True, None)
            with self._changed:
                self._free += 1
            _answer(answer, outcome)
            del job, call, answer, outcome  # arguments and result must not live on while this thread waits

    def _next(self, closings: int) -> _Job | None:
        """The next job, or None when this thread is to end: it was idle for long, or the pool was closed meanwhile."""
        with self._changed:
            patient = True
            while not self._jobs:
                if not patient or closings != self._closings:
                    self._threads -= 1
                    self._free -= 1
                    return None
                patient = self._changed.wait(_IDLE_SECONDS)
            self._free -= 1
            return self._jobs.popleft()


def _attempt(call: Callable[[], Any]) -> _Outcome:
    # Caught here, all of it: SystemExit would end the loop that receives it, StopIteration would be lost in a future.
    try:
        return True, call()
    except BaseException as error:
        return False, error


def _answer(answer: _Answer | None, outcome: _Outcome) -> None:
    if answer is None:
        return
    future, loop = answer
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, future, outcome)


def _settle(future: asyncio.Future[_Outcome], outcome: _Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
