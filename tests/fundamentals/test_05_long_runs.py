"""Tools that take their time: streams, progress and limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from toolexec import Exec, Progress, ToolContext, ToolTimeoutError, tool


@tool
async def countdown(start: int) -> AsyncIterator[int]:
    """Count down to one."""
    for number in range(start, 0, -1):
        yield number


@tool
def copy_files(names: list[str], ctx: ToolContext) -> int:
    """Pretend to copy files."""
    for number, name in enumerate(names, 1):
        ctx.report(number, len(names), f"copied {name}")
    return len(names)


async def test_stream() -> None:
    """A generator streams: chunks as they come, then one `done` with all of them."""
    async with Exec() as ex:
        ex.add(countdown)

        events = [(event.kind, event.data) async for event in ex.stream_tool("countdown", {"start": 3})]

        assert events == [("chunk", 3), ("chunk", 2), ("chunk", 1), ("done", [3, 2, 1])]


async def test_leave_a_stream_early() -> None:
    """Closing the stream early stops the tool."""
    async with Exec() as ex:
        ex.add(countdown)
        async with aclosing(ex.stream_tool("countdown", {"start": 1_000_000_000})) as events:
            async for event in events:
                if event.data == 999_999_990:
                    break


async def test_progress() -> None:
    """A tool that asks for a ToolContext can report how far it is."""
    async with Exec() as ex:
        ex.add(copy_files)
        received: list[Progress] = []

        result = await ex.run_tool("copy_files", {"names": ["a", "b"]}, on_progress=received.append)

        assert result.value == 2
        assert [(p.done, p.total, p.message) for p in received] == [
            (0, 1, "started"),
            (1, 2, "copied a"),
            (2, 2, "copied b"),
            (1, 1, "completed"),
        ]


async def test_time_limits() -> None:
    """A call that takes too long is stopped; that is a failure of the tool, so it is a result."""

    @tool
    async def think_for_ever() -> None:
        await asyncio.Event().wait()

    async with Exec(default_timeout=30) as ex:
        ex.add(think_for_ever)
        result = await ex.run_tool("think_for_ever", timeout=0.05)
        assert isinstance(result.error, ToolTimeoutError)
        assert result.error.retryable


async def test_cancel() -> None:
    """A call is cancelled like anything else in asyncio, and the tool with it."""
    started, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with Exec() as ex:
        ex.add(work)
        call = asyncio.create_task(ex.run_tool("work"))
        await started.wait()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert stopped.is_set()
