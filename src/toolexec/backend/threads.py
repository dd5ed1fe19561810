"""Worker threads for sync handlers.

The standard pool joins its threads when the interpreter exits, so one handler that blocks for ever would keep the
process alive; these threads are daemons. A thread that is idle for a while ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from toolexec.errors import ConfigurationError

__all__ = ["WorkerThreads"]

_IDLE_SECONDS = 30.0
_Outcome: TypeAlias = tuple[bool, Any]
_Job: TypeAlias = tuple[Callable[[], Any], "asyncio.Future[_Outcome]", asyncio.AbstractEventLoop]


class WorkerThreads:
    """At most *limit* threads that run functions for the event loop; further calls wait for a free one."""

    def __init__(self, limit: int = 64) -> None:
        if limit < 1:
            raise ConfigurationError(f"a pool needs at least 1 thread, not {limit}")
        self._limit = limit
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0
        self._pending = 0

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)` in a thread, in a copy of the caller's context; its result or exception comes back.

        Cancelling stops waiting; the function itself cannot be stopped and its result is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Outcome] = loop.create_future()
        context = contextvars.copy_context()
        with self._lock:
            self._pending += 1
            spawn = self._threads < self._limit and self._threads - self._busy < self._pending
            self._threads += spawn
        self._jobs.put((lambda: context.run(function, *args), future, loop))
        if spawn:
            threading.Thread(target=self._work, name="toolexec-worker", daemon=True).start()
        ok, value = await future
        if ok:
            return value
        raise value

    def close(self) -> None:
        """Let idle threads end now; busy ones end after their job."""
        with self._lock:
            idle = self._threads - self._busy
        for _ in range(idle):
            self._jobs.put(None)

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if not self._pending:
                        self._threads -= 1
                        return
                continue  # a job is on its way
            if job is None:
                with self._lock:
                    if not self._pending or self._threads > 1:
                        self._threads -= 1
                        return
                continue
            self._serve(*job)
            del job  # its arguments and result must not live on while this thread waits

    def _serve(
        self, call: Callable[[], Any], future: asyncio.Future[_Outcome], loop: asyncio.AbstractEventLoop
    ) -> None:
        with self._lock:
            self._pending -= 1
            self._busy += 1
        outcome = _attempt(call) if not future.cancelled() else (True, None)
        with self._lock:
            self._busy -= 1
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, future, outcome)


def _attempt(call: Callable[[], Any]) -> _Outcome:
    # Caught here, all of it: SystemExit would end the loop that receives it, StopIteration would be lost in a future.
    try:
        return True, call()
    except BaseException as error:
        return False, error


def _settle(future: asyncio.Future[_Outcome], outcome: _Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
