"""How many guests begin at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["PATIENCE_SECONDS", "Starts"]

PATIENCE_SECONDS: Final = 0.02
"""How long a guest waits for another one that computes before it begins beside it."""


class Starts:
    """Has few guests begin at once, as many as there are processors and one more; the others follow in turn.

    Guests that begin together contend for the interpreter's lock and for the address space: of 64 at once each took 14
    ms of CPU, in turn 9. A guest that waits for the host, or has ended, makes room for the next. One that computes
    holds that up for PATIENCE_SECONDS at most.
    """

    def __init__(self, count: int = 0) -> None:
        self._free = threading.Semaphore(count or _processors() + 1)
        self._first = threading.Lock()

    def enter(self) -> Callable[[], None]:
        """Wait until it is this thread's turn; return what makes room for the next, once, in the same thread."""
        with self._first:  # one after the other loses patience
            entered = self._free.acquire(timeout=PATIENCE_SECONDS)
        left = not entered

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                self._free.release()

        return leave


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
