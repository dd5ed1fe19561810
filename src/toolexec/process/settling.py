"""How tasks and futures end: work that a cancellation does not cut in two, results of those that may be over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(task: asyncio.Task[None]) -> None:
    """Wait for *task* even if that is cancelled meanwhile; the cancellation then takes effect."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


async def uncut(
    work: Coroutine[Any, Any, T],
    *,
    stop: Callable[[], None] | None = None,
    undo: Callable[[T], Awaitable[None]] | None = None,
    seconds: float | None = None,
) -> T:
    """Return what *work* gives; a cancellation takes effect only when that has ended.

    Until then *stop* may hurry it, *undo* takes back what it gave, and after *seconds* it is cancelled itself.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if stop is not None:
            stop()
        await to_the_end(asyncio.create_task(_ended(task, undo, seconds)))
        raise


def settle(future: asyncio.Future[T], outcome: T) -> None:
    """Give *future* its result, unless it is over. To be called on its event loop."""
    if not future.done():
        future.set_result(outcome)


def retrieve(task: asyncio.Future[Any]) -> None:
    """Retrieve the failure of a task that has ended and is no longer awaited, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


async def _ended(task: asyncio.Task[T], undo: Callable[[T], Awaitable[None]] | None, seconds: float | None) -> None:
    await asyncio.wait({task}, timeout=seconds)
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is None and undo is not None:
        await undo(task.result())
