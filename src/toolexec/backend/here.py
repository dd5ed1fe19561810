"""Calls made in the caller's own thread, where no event loop runs.

Code in an embedded sandbox runs in a thread of its own, and a sync handler may run in any thread. To run it right there
saves two switches between threads, which cost several times as much as the call itself.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Wait: TypeAlias = Callable[[Awaitable[Any]], Any]
"""Has an awaitable awaited on the caller's event loop, blocks until it is done, and gives its value or raises."""


class Here(threading.local):
    """`wait` is set in a thread as long as `step_here` makes a call in it, else None."""

    wait: Wait | None = None


here: Here = Here()


def step_here(call: Coroutine[Any, Any, T], wait: Wait) -> T:
    """Run a call of a tool that `runs_here` to its end; an awaitable that its handler returns goes to *wait*."""
    outer, here.wait = here.wait, wait
    try:
        call.send(None)
    except StopIteration as finished:
        return finished.value
    finally:
        here.wait = outer
        call.close()
    raise RuntimeError("a call that was to run without an event loop waits for one")
