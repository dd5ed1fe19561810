"""Progress that is reported while a generator works, woven into what it yields."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeAlias

from toolexec.model.call import Progress, ProgressCallback
from toolexec.process.settling import retrieve

_Event: TypeAlias = tuple[bool, Any]


async def weave(start: Callable[[ProgressCallback], AsyncGenerator[Any, None]]) -> AsyncGenerator[Any, None]:
    """Yield the items of the generator that *start* makes, and between them the Progress reported to the callback it
    gets.

    Progress arrives while the generator works on its next item. The generator runs in a task of its own, never ahead of
    the consumer; closing this one closes it. What it raises is raised here, after all that came before.
    """
    events: asyncio.Queue[_Event | None] = asyncio.Queue()
    wanted = asyncio.Event()
    left = asyncio.Event()

    def report(progress: Progress) -> None:
        events.put_nowait((False, progress))

    async def work() -> None:
        items = start(report)
        try:
            async for item in items:
                if left.is_set():  # a generator that ignores its cancellation has no consumer any more
                    return
                wanted.clear()
                events.put_nowait((True, item))
                await wanted.wait()
        finally:
            await items.aclose()

    task = asyncio.ensure_future(work())
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            is_item, value = event
            yield value
            if is_item:
                wanted.set()
        await task
    finally:
        left.set()
        wanted.set()
        task.cancel()
        await asyncio.wait([task])
        retrieve(task)  # it was raised above, or is no longer wanted
