"""The one way in which tests wait for something that no event tells of: with an end, and a failure that names it."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["PATIENCE", "until", "until_blocking"]

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


def until_blocking(condition: Callable[[], T], pause: float = 0.005) -> T:
    """Do the same without an event loop."""
    ends = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < ends, f"it did not happen within {PATIENCE:g} s"
        time.sleep(pause)
    return value
