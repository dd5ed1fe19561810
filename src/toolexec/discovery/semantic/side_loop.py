"""An event loop in a thread of its own, for functions that may take long, hang, or be coroutines, with a time limit."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

_MOST_STUCK = 2
_GRACE_SECONDS = 1.0


class LateError(TimeoutError):
    """The time limit of a call passed, or earlier calls are stuck. A function's own TimeoutError is none of these."""


class SideLoop:
    """Calls functions on the event loop of a daemon thread, which starts with the first call and ends with `close`.

    A plain function runs on that loop too, so only one at a time. One that hangs keeps its thread; the next call gets a
    new one, as long as no more than two are stuck. *name* is the threads' name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._running: _LoopThread | None = None
        self._stuck: list[_LoopThread] = []

    def call(self, function: Callable[[], Any], seconds: float) -> Any:
        """Return what the function returns, awaited if need be. Raises LateError when that takes longer, or when
        earlier calls are stuck, and otherwise what the function raises."""
        with self._lock:  # so that `close` comes before or after, and no coroutine is lost in between
            side = self._thread()
            future = asyncio.run_coroutine_threadsafe(_run(function), side.loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            if future.done():
                raise  # the function's own
        future.cancel()
        if not side.answers(_GRACE_SECONDS):
            self._give_up(side)
        raise LateError(f"no answer within {seconds:g} s")

    def close(self) -> None:
        """End the thread, cancelling what runs; one that is stuck ends when its call does. A later call starts
        again.
        """
        with self._lock:
            side, self._running = self._running, None
        if side is not None:
            side.stop(_GRACE_SECONDS)

    def _thread(self) -> _LoopThread:
        if self._running is None or not self._running.is_alive():
            self._stuck = [side for side in self._stuck if side.is_alive()]
            if len(self._stuck) >= _MOST_STUCK:
                raise LateError("earlier calls have not ended yet")
            self._running = _LoopThread(self._name)
            weakref.finalize(self, self._running.stop, 0).atexit = False  # `_end_all` does that
        return self._running

    def _give_up(self, side: _LoopThread) -> None:
        with self._lock:
            if self._running is side:
                self._running = None
                self._stuck.append(side)
        side.is_stuck = True
        side.stop(0)


async def _run(function: Callable[[], Any]) -> Any:
    try:
        result = function()
        return await result if inspect.isawaitable(result) else result
    except (SystemExit, KeyboardInterrupt) as error:  # these would end the loop for everybody else
        raise RuntimeError("the function tried to exit") from error


class _LoopThread:
    def __init__(self, name: str) -> None:
        self.is_stuck = False
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _threads.add(self)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def answers(self, seconds: float) -> bool:
        """Return whether the loop gets to run something within that time."""
        answered = threading.Event()
        with contextlib.suppress(RuntimeError):  # it is closed
            self.loop.call_soon_threadsafe(answered.set)
        return answered.wait(seconds)

    def stop(self, seconds: float) -> None:
        """Ask the loop to end, and wait that long for it."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self.loop.call_soon_threadsafe(self.loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join(seconds)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=_GRACE_SECONDS))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()


_threads: weakref.WeakSet[_LoopThread] = weakref.WeakSet()


def _end_all() -> None:
    """Wait at the program's end for threads that can end: one that Python takes away while it runs can crash it."""
    threads = [thread for thread in list(_threads) if thread.is_alive() and not thread.is_stuck]
    for thread in threads:
        thread.stop(0)
    deadline = time.monotonic() + _GRACE_SECONDS
    for thread in threads:
        thread.stop(max(0.0, deadline - time.monotonic()))


atexit.register(_end_all)
