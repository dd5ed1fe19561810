"""Progress between the items of a generator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from toolexec.backend.weave import weave
from toolexec.model.call import Progress, ProgressCallback


async def test_progress_and_items_come_in_order() -> None:
    """Everything arrives as it happened."""

    async def work(report: ProgressCallback) -> AsyncGenerator[Any, None]:
        report(Progress(done=1))
        yield "a"
        report(Progress(done=2))
        report(Progress(done=3))
        yield "b"
        report(Progress(done=4))

    found = [item async for item in weave(work)]
    assert found == [Progress(done=1), "a", Progress(done=2), Progress(done=3), "b", Progress(done=4)]


async def test_progress_does_not_wait_for_the_next_item() -> None:
    """Progress arrives while the generator still works."""
    gate = asyncio.Event()

    async def work(report: ProgressCallback) -> AsyncGenerator[Any, None]:
        report(Progress(done=1))
        await gate.wait()
        yield "a"

    async with aclosing(weave(work)) as items:
        assert await anext(items) == Progress(done=1)
        gate.set()
        assert await anext(items) == "a"


async def test_the_generator_is_never_ahead() -> None:
    """An endless generator makes no item before it is wanted."""
    made: list[int] = []

    async def work(_: ProgressCallback) -> AsyncGenerator[Any, None]:
        while True:
            made.append(len(made))
            yield made[-1]

    async with aclosing(weave(work)) as items:
        assert await anext(items) == 0
        await asyncio.sleep(0.02)
        assert made == [0]
        assert await anext(items) == 1


async def test_a_failure_comes_after_what_was_before() -> None:
    """An exception of the generator is raised once, in its position."""

    async def work(report: ProgressCallback) -> AsyncGenerator[Any, None]:
        yield "a"
        report(Progress(done=1))
        raise ValueError("no")

    found: list[Any] = []
    with pytest.raises(ValueError, match="no"):
        async for item in weave(work):
            found.append(item)
    assert found == ["a", Progress(done=1)]


@pytest.mark.parametrize("waiting", [False, True])
async def test_closing_closes_the_generator(waiting: bool) -> None:
    """Its cleanup has run when the closing is over, whether it was waiting or not."""
    closed: list[str] = []

    async def work(report: ProgressCallback) -> AsyncGenerator[Any, None]:
        try:
            if waiting:
                report(Progress(done=0))
                await asyncio.Event().wait()
            yield "a"
            yield "b"
        finally:
            closed.append("yes")

    async with aclosing(weave(work)) as items:
        await anext(items)
    assert closed == ["yes"]


async def test_a_failing_cleanup_is_not_left_unheard() -> None:
    """A generator that fails while it is closed early disturbs no caller, and asyncio has nothing to complain about."""

    async def work(_: ProgressCallback) -> AsyncGenerator[Any, None]:
        try:
            yield "a"
        finally:
            raise ValueError("in the cleanup")

    async with aclosing(weave(work)) as items:
        assert await anext(items) == "a"


async def test_cancelling_the_consumer_closes_the_generator() -> None:
    """A cancellation reaches the generator and comes out again."""
    closed: list[str] = []

    async def work(_: ProgressCallback) -> AsyncGenerator[Any, None]:
        try:
            await asyncio.Event().wait()
            yield "a"
        finally:
            closed.append("yes")

    async def consume() -> None:
        async with aclosing(weave(work)) as items:
            await anext(items)

    task = asyncio.ensure_future(consume())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == ["yes"]
