"""The one way in which tests wait for something that no event tells of: with an end, and a failure that names it."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds that a test waits at most: longer than a busy machine needs, shorter than the limit that ends the worker."""


async def until(condition: Callable[[], T | Awaitable[T]], pause: float = 0.005) -> T:
    """Ask *condition* every *pause* seconds until it gives something true, and return that; fail after PATIENCE.

    *condition* may be a coroutine function. A *pause* of 0 asks in each turn of the event loop.
    """
    ends = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < ends, f"it did not happen within {PATIENCE:g} s"
        await asyncio.sleep(pause)


async def reached(event: asyncio.Event, running: asyncio.Future[Any]) -> None:
    """Wait until *event* is set; fail at once, with what it gave, when *running* ends before, else after PATIENCE.

    To wait for the event alone would be to wait for ever where the program that sets it could not start.
    """
    setting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({setting, running}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    finally:
        setting.cancel()
    if not event.is_set():
        assert running.done(), f"it did not get there within {PATIENCE:g} s"
        raise AssertionError(f"it ended before it got there: {running.result()!r:.2000}")


def until_blocking(condition: Callable[[], T], pause: float = 0.005) -> T:
    """Do the same without an event loop."""
    ends = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < ends, f"it did not happen within {PATIENCE:g} s"
        time.sleep(pause)
    return value
