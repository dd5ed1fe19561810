"""Python without threads: starting one fails with advice, and waiting for another one fails at once."""

from __future__ import annotations

import time
from typing import Any

_NO_THREADS = (
    "can't start new thread: this sandbox has no threads; call tools at the same time with "
    "`await asyncio.gather(tools.a.b(...), tools.a.c(...))`, and do everything else in turn"
)
_DEADLOCK = (
    "deadlock: this waits for ever, as nothing else runs in this sandbox that could release a lock, set an event or "
    "fill a queue; wait for tasks of asyncio instead, or pass a timeout"
)
_sleep = time.sleep


class Lock:
    """Stands for `threading.Lock` where no other thread can hold it. The interpreter's own kind ends the whole guest
    when it waits without a time limit."""

    __slots__ = ("__weakref__", "_taken")

    def __init__(self) -> None:
        self._taken = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock. Where it is taken, wait as long as *timeout* says and return False; raises RuntimeError
        instead of waiting for ever."""
        if timeout != -1 and not blocking:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if timeout < 0 and timeout != -1:
            raise ValueError("timeout value must be a non-negative number")
        if not self._taken:
            self._taken = True
            return True
        if not blocking:
            return False
        if timeout == -1:
            raise RuntimeError(_DEADLOCK)
        _sleep(timeout)
        return False

    def release(self) -> None:
        """Release the lock; raises RuntimeError where it is not taken."""
        if not self._taken:
            raise RuntimeError("release unlocked lock")
        self._taken = False

    def locked(self) -> bool:
        """Return whether it is taken."""
        return self._taken

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._taken = False


def _start(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(_NO_THREADS)


def refuse_threads() -> None:
    """Have threads, and waiting for them, fail with advice: a guest behind two functions of the host has none."""
    import _thread
    import queue
    import threading

    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        if hasattr(_thread, name):
            setattr(_thread, name, _start)
    for name in ("_start_new_thread", "_start_joinable_thread"):
        if hasattr(threading, name):
            setattr(threading, name, _start)
    for module, names in ((_thread, ("allocate_lock", "allocate")), (threading, ("_allocate_lock", "Lock"))):
        for name in names:
            setattr(module, name, Lock)
    pure: Any = getattr(queue, "_PySimpleQueue", None)
    if pure is not None:
        queue.SimpleQueue = pure
