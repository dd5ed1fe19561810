"""A handler that swallows its cancellation does not hold up its caller: it is left behind, and ended at the close."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from toolexec import Exec, ToolContext
from toolexec.errors import ToolTimeoutError
from toolexec.run.deadline import DeadlineExceededError, LeftBehind, with_deadline

SHORT = 0.02


class Stubborn:
    """Handlers that go on after their cancellation, until `free` is set, and note what happens to them."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.log: list[str] = []

    async def wait(self) -> str:
        """Swallow every cancellation while waiting for an event."""
        try:
            while not self.free.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await self.free.wait()
        except GeneratorExit:
            self.log.append("ended")
            raise
        self.log.append("finished")
        return "late"

    async def spin(self) -> str:
        """Swallow every cancellation and never really wait."""
        while not self.free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        self.log.append("finished")
        return "late"

    async def inner_task(self) -> str:
        """Wait for a task that swallows its cancellation: this handler never sees its own."""
        return await asyncio.create_task(self.wait())

    async def gathered(self) -> list[str]:
        """Wait for a group of tasks that swallow their cancellation."""
        return await asyncio.gather(self.wait(), self.wait())

    async def cleaning_up(self) -> None:
        """Take long to clean up."""
        try:
            await asyncio.Event().wait()
        finally:
            await self.free.wait()
            self.log.append("cleaned up")

    async def raising(self) -> None:
        """Fail long after the cancellation."""
        await self.wait()
        raise ValueError("too late")

    async def with_context(self, context: ToolContext) -> str:
        """Swallow every cancellation; could report progress."""
        return await self.wait()

    async def generator(self) -> AsyncIterator[int]:
        """Swallow every cancellation after the first value."""
        yield 1
        await self.wait()
        yield 2

    async def generator_with_context(self, context: ToolContext) -> AsyncIterator[int]:
        """Swallow every cancellation after the first value; could report progress."""
        yield 1
        await self.wait()
        yield 2


KINDS = [
    "wait",
    "spin",
    "inner_task",
    "gathered",
    "cleaning_up",
    "raising",
    "with_context",
    "generator",
    "generator_with_context",
]


@pytest.fixture
async def stubborn() -> AsyncIterator[Stubborn]:
    """Stubborn handlers, freed in the end."""
    stubborn = Stubborn()
    yield stubborn
    stubborn.free.set()


@pytest.mark.parametrize("kind", KINDS)
class TestItsLimitHolds:
    """The caller has the timeout at the limit, by every path."""

    @pytest.mark.full
    async def test_run_tool(self, stubborn: Stubborn, kind: str) -> None:
        """A call ends although its handler does not, and the task that awaits it is not cancelled."""
        async with Exec() as ex:
            ex.add(getattr(stubborn, kind), "t:stubborn")
            result = await bounded(ex.run_tool("t:stubborn", timeout=SHORT))
            assert isinstance(result.error, ToolTimeoutError)
            assert stubborn.log == []
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            stubborn.free.set()

    @pytest.mark.full
    async def test_a_stream(self, stubborn: Stubborn, kind: str) -> None:
        """A stream ends with the error."""
        async with Exec() as ex:
            ex.add(getattr(stubborn, kind), "t:stubborn")

            async def last() -> Any:
                return [event async for event in ex.stream_tool("t:stubborn", timeout=SHORT)][-1]

            event = await bounded(last())
            assert isinstance(event.error, ToolTimeoutError)
            stubborn.free.set()


class TestTheEnd:
    """What becomes of a handler that was left behind."""

    async def test_it_may_finish(self, stubborn: Stubborn) -> None:
        """An abandoned call goes on by itself, so that its cleanup gets done."""
        async with Exec() as ex:
            ex.add(stubborn.cleaning_up, "t:stubborn")
            await bounded(ex.run_tool("t:stubborn", timeout=SHORT))
            stubborn.free.set()
        assert stubborn.log == ["cleaned up"]

    async def test_it_is_ended_with_its_exec(self, stubborn: Stubborn) -> None:
        """Closing waits a while for it and then ends it, so that nothing outlives the block."""
        before = asyncio.all_tasks()
        ex = Exec()
        ex._parts.close_patience = SHORT
        ex.add(stubborn.wait, "t:stubborn")
        await bounded(ex.run_tool("t:stubborn", timeout=SHORT))
        await bounded(ex.aclose())
        assert stubborn.log == ["ended"]
        assert asyncio.all_tasks() == before

    @pytest.mark.full
    async def test_a_caller_that_leaves_a_stream(self, stubborn: Stubborn) -> None:
        """Closing a stream whose generator refuses to end takes no longer than the call may."""

        async def generator() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                await stubborn.wait()

        async with Exec() as ex:
            ex.add(generator, "t:stubborn")
            stream = ex.stream_tool("t:stubborn", timeout=1.0)
            assert (await anext(stream)).data == 1
            await bounded(stream.aclose())
            stubborn.free.set()

    async def test_a_loop_that_ends(self) -> None:
        """Nothing that was left behind keeps an event loop from ending, though it was never closed."""
        log: list[str] = []

        async def main() -> None:
            stubborn = Stubborn()
            stubborn.log = log
            with pytest.raises(DeadlineExceededError):
                await with_deadline(stubborn.wait(), SHORT, LeftBehind())

        await asyncio.to_thread(asyncio.run, main())
        assert log == ["ended"]


class TestWithDeadline:
    """The mechanism itself."""

    async def test_a_caller_that_is_cancelled_meanwhile(self, stubborn: Stubborn) -> None:
        """A cancellation from elsewhere passes through, and the work is left behind all the same."""
        left = LeftBehind()

        async def main() -> None:
            await with_deadline(stubborn.wait(), SHORT, left)

        task = asyncio.create_task(main())
        await asyncio.sleep(0)
        task.cancel()
        await bounded(asyncio.wait([task]))
        assert task.cancelled()
        assert len(left) == 1
        stubborn.free.set()
        await left.aclose(30)
        assert stubborn.log == ["finished"]

    async def test_a_task_that_heeds_its_cancellation(self) -> None:
        """Work that waits for a well-behaved task is cancelled through it, as ever."""
        log: list[str] = []

        async def inner() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                log.append("inner")

        async def outer() -> None:
            try:
                await asyncio.create_task(inner())
            except asyncio.CancelledError:
                log.append("outer")
                raise

        left = LeftBehind()
        with pytest.raises(DeadlineExceededError) as caught:
            await with_deadline(outer(), SHORT, left)
        assert log == ["inner", "outer"]
        assert caught.value.task is None
        assert len(left) == 0

    async def test_a_caller_is_cancelled_through_a_task(self) -> None:
        """A caller that another task cancels is cancelled as well."""
        log: list[str] = []

        async def inner() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                log.append("inner")

        async def work() -> None:
            await asyncio.create_task(inner())

        async def main() -> None:
            await with_deadline(work(), 60, LeftBehind())

        task = asyncio.create_task(main())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await bounded(asyncio.wait([task]))
        assert task.cancelled()
        assert log == ["inner"]

    async def test_results_of_tasks_pass(self) -> None:
        """Work that waits for tasks has their values and exceptions."""

        async def value(pauses: int) -> int:
            for _ in range(pauses):
                await asyncio.sleep(0)
            return pauses

        async def fail() -> None:
            await asyncio.sleep(0)
            raise KeyError("x")

        async def work(make: Callable[[], Awaitable[Any]]) -> Any:
            return await make()

        many = with_deadline(work(lambda: asyncio.gather(value(3), value(5))), 60, LeftBehind())
        assert await many == [3, 5]
        with pytest.raises(KeyError):
            await with_deadline(work(lambda: asyncio.create_task(fail())), 60, LeftBehind())


async def bounded(work: Awaitable[Any]) -> Any:
    """Return the result of *work*; it must not take longer than a hung call would ever be waited for."""
    return await asyncio.wait_for(work, 30)
