"""Work in tasks of one's own, so that closing down never cancels the task of a caller."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from toolexec.errors import ClosedError

__all__ = ["OwnRuns"]

T = TypeVar("T")


class OwnRuns:
    """Runs work for callers, each in a task that `aclose` cancels; the caller then gets a ClosedError.

    A caller that is cancelled itself cancels its work, and waits until that has ended.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what *work* gives; raises what it raises, and ClosedError when it was stopped by `aclose`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # the cancellation is what the caller hears of
            raise
        if task.cancelled():
            raise ClosedError("the run was stopped: what it runs in was closed; make a new one and run it again")
        return task.result()

    async def aclose(self) -> None:
        """Cancel all work and wait until it has ended; work that closes what it runs in does not wait for itself."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
