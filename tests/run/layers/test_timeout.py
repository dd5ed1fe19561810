"""Timeout: every kind of handler, calls and streams; what is stopped, what is left behind, what is untouched."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from toolexec.backend import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery import InMemoryIndex
from toolexec.errors import ConfigurationError, HandlerError, ToolTimeoutError
from toolexec.model import FunctionTool, LocalBinding, ToolContext, declare
from toolexec.run import DefaultRunner, StreamEvent, Timeout, ToolCall

SHORT = 0.05
LONG = 60.0


class Clocked:
    """One local tool behind a Timeout."""

    def __init__(self, function: Callable[..., Any], seconds: float | None, **parts: Any) -> None:
        declared = function if isinstance(function, FunctionTool) else declare(function, "t", **parts)
        index, backends = InMemoryIndex(), BackendRegistry()
        index.register(declared.tool, LocalBinding(declared.tool.id))
        self.local = LocalBackend()
        backends.register(self.local)
        self.local.add(declared)
        self.runner = Timeout(DefaultRunner(index, backends), seconds)

    async def stream(self, **parts: Any) -> list[StreamEvent]:
        """All events."""
        return [event async for event in self.runner.stream(ToolCall("t", **parts))]


def _is_late(error: Any) -> bool:
    return isinstance(error, ToolTimeoutError) and error.code == "timeout" and error.retryable


async def _forever() -> None:
    await asyncio.Event().wait()


class TestHandlers:
    """What becomes of a handler that takes too long."""

    async def test_async(self) -> None:
        """An async handler is cancelled and can clean up; the result has a ToolTimeoutError."""
        log: list[str] = []

        async def slow() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                log.append("cleaned up")

        result = await Clocked(slow, SHORT).runner.run(ToolCall("t"))
        assert _is_late(result.error)
        assert isinstance(result.error, TimeoutError)
        assert (result.tool_id, result.error.details) == ("t", {"timeout": SHORT})
        assert log == ["cleaned up"]

    async def test_sync_in_a_thread(self) -> None:
        """The caller goes on; the thread is left behind and its result dropped."""
        release, finished = threading.Event(), threading.Event()

        def slow() -> str:
            release.wait(LONG)
            finished.set()
            return "too late"

        result = await Clocked(slow, SHORT).runner.run(ToolCall("t"))
        assert _is_late(result.error)
        assert not finished.is_set()
        release.set()
        assert await asyncio.to_thread(finished.wait, LONG)

    async def test_inline(self) -> None:
        """An inline handler holds up the loop and cannot be stopped; its value counts."""

        def busy() -> int:
            return sum(range(1000))

        assert (await Clocked(busy, 1e-9, inline=True).runner.run(ToolCall("t"))).value == 499500

    @pytest.mark.full
    async def test_killable(self, killable: ModuleType, tmp_path: Path) -> None:
        """Its process is killed: the work does not go on."""
        clocked = Clocked(killable.sleep_then_write, 1.5)
        path = tmp_path / "log"
        try:
            result = await clocked.runner.run(ToolCall("sleep_then_write", {"seconds": LONG, "path": str(path)}))
        finally:
            await clocked.local.aclose()
        assert _is_late(result.error)
        assert not path.exists() or path.read_text() == "started"

    async def test_killable_in_time(self, killable: ModuleType, tmp_path: Path) -> None:
        """One that is quick enough gives its value."""
        clocked = Clocked(killable.sleep_then_write, LONG)
        try:
            result = await clocked.runner.run(
                ToolCall("sleep_then_write", {"seconds": 0, "path": str(tmp_path / "log")})
            )
        finally:
            await clocked.local.aclose()
        assert result.value == "slept"

    async def test_generator_that_is_run(self) -> None:
        """A generator that is called in one piece is stopped, too."""
        closed: list[bool] = []

        async def slow() -> AsyncIterator[int]:
            try:
                yield 0
                await asyncio.Event().wait()
            finally:
                closed.append(True)

        assert _is_late((await Clocked(slow, SHORT).runner.run(ToolCall("t"))).error)
        assert closed == [True]

    async def test_its_own_timeout_error(self) -> None:
        """A TimeoutError that the handler raises is its own failure, not a passed limit."""

        async def impatient() -> None:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()

        result = await Clocked(impatient, LONG).runner.run(ToolCall("t"))
        assert type(result.error) is HandlerError
        assert isinstance(result.error.__cause__, TimeoutError)

    async def test_anyio_scopes(self) -> None:
        """Scopes inside the handler work as ever."""

        async def scoped() -> bool:
            with anyio.move_on_after(0.01) as scope:
                await anyio.sleep_forever()
            return scope.cancelled_caught

        assert (await Clocked(scoped, LONG).runner.run(ToolCall("t"))).value is True

    async def test_one_that_swallows_the_cancellation(self) -> None:
        """The value that it gives all the same is the result."""

        async def stubborn() -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "anyway"
            return ""

        assert (await Clocked(stubborn, SHORT).runner.run(ToolCall("t"))).value == "anyway"


@pytest.fixture
def killable() -> Iterator[ModuleType]:
    """The module with handlers for worker processes, importable by its name."""
    path = Path(__file__).with_name("killable_tools.py")
    spec = importlib.util.spec_from_file_location("killable_tools", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["killable_tools"] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(path.parent))
    del sys.modules["killable_tools"]


class TestLimits:
    """Which limit counts."""

    @pytest.mark.parametrize("seconds", [0, -1, math.nan, -math.inf])
    def test_it_must_be_above_zero(self, seconds: float) -> None:
        """Anything else is a configuration error."""
        with pytest.raises(ConfigurationError, match="above 0"):
            Clocked(_forever, seconds)

    @pytest.mark.parametrize("seconds", [0, -1, math.nan])
    async def test_so_must_a_calls_own(self, seconds: float) -> None:
        """A call with a senseless limit is refused, run or streamed, before anything runs."""
        clocked = Clocked(_forever, LONG)
        with pytest.raises(ConfigurationError) as caught:
            await clocked.runner.run(ToolCall("t", timeout=seconds))
        assert caught.value.tool_id == "t"
        with pytest.raises(ConfigurationError):
            await clocked.stream(timeout=seconds, fallback=True)

    async def test_a_calls_own_limit_wins(self) -> None:
        """A call's own limit may be shorter than the layer's, or set one where there is none."""
        for seconds in (LONG, None):
            result = await Clocked(_forever, seconds).runner.run(ToolCall("t", timeout=SHORT))
            assert _is_late(result.error)
            assert result.error.details == {"timeout": SHORT}

    async def test_a_calls_own_limit_may_be_longer(self) -> None:
        """A call may ask for more time than the layer gives by default."""

        async def short_sleep() -> str:
            await asyncio.sleep(0.01)
            return "slept"

        result = await Clocked(short_sleep, 0.001).runner.run(ToolCall("t", timeout=LONG))
        assert result.value == "slept"

    async def test_cancelled_from_outside(self) -> None:
        """A cancellation is never turned into a time-out."""
        began = asyncio.Event()

        async def slow() -> None:
            began.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(Clocked(slow, LONG).runner.run(ToolCall("t")))
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    async def test_infinity(self) -> None:
        """An infinite limit is as good as none."""

        async def quick() -> int:
            await asyncio.sleep(0)
            return 1

        assert (await Clocked(quick, 1e9).runner.run(ToolCall("t"))).value == 1


class TestStreams:
    """The limit is for the whole stream."""

    async def test_in_time(self) -> None:
        """Nothing changes."""

        async def numbers() -> AsyncIterator[int]:
            yield 1
            await asyncio.sleep(0)
            yield 2

        for seconds in (LONG, None):
            assert [e.kind for e in await Clocked(numbers, seconds).stream()] == ["chunk", "chunk", "done"]

    async def test_late_in_the_middle(self) -> None:
        """The chunks before it arrive, then one `error`; the generator is closed."""
        closed: list[bool] = []

        async def stuck() -> AsyncIterator[int]:
            try:
                yield 1
                await asyncio.Event().wait()
            finally:
                closed.append(True)

        events = await Clocked(stuck, SHORT).stream()
        assert [e.kind for e in events] == ["chunk", "error"]
        assert _is_late(events[-1].error)
        assert events[-1].data["code"] == "timeout"
        assert events[-1].tool_id == "t"
        assert closed == [True]

    async def test_many_events_add_up(self) -> None:
        """Quick events do not start the clock again."""

        async def endless() -> AsyncIterator[int]:
            while True:
                await asyncio.sleep(0)
                yield 0

        events = await Clocked(endless, SHORT).stream()
        assert _is_late(events[-1].error)

    async def test_one_that_never_waits(self) -> None:
        """Stops even a generator that never gives a timer a chance."""

        async def endless() -> AsyncIterator[int]:
            while True:
                yield 0

        events = await Clocked(endless, SHORT).stream()
        assert [e.kind for e in events].count("error") == 1
        assert _is_late(events[-1].error)

    async def test_a_plain_handler(self) -> None:
        """A handler that answers in one piece is stopped, and its progress arrived."""
        stopped: list[bool] = []

        async def work(ctx: ToolContext) -> None:
            ctx.report(1)
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(True)

        events = await Clocked(work, SHORT).stream()
        assert [e.kind for e in events] == ["progress", "error"]
        assert stopped == [True]

    async def test_scopes_across_yields(self) -> None:
        """The generator stays in one task, so scopes that it holds open across yields work, under a limit too."""
        tasks: set[Any] = set()

        async def scoped() -> AsyncIterator[int]:
            async with asyncio.timeout(LONG):
                with anyio.move_on_after(LONG):
                    for number in range(3):
                        tasks.add(asyncio.current_task())
                        await asyncio.sleep(0)
                        yield number

        for seconds in (LONG, None):
            assert [e.kind for e in await Clocked(scoped, seconds).stream()] == ["chunk"] * 3 + ["done"]
        assert tasks == {asyncio.current_task()}

    async def test_a_scope_of_the_generator_that_is_late(self) -> None:
        """Its own scope passes its own limit, and the stream goes on."""

        async def scoped() -> AsyncIterator[str]:
            with anyio.move_on_after(0.01):
                yield "before"
                await anyio.sleep_forever()
            yield "after"

        events = await Clocked(scoped, LONG).stream()
        assert [e.data for e in events] == ["before", "after", ["before", "after"]]

    async def test_leaving_early(self) -> None:
        """Closing the stream early stops the tool."""
        closed: list[bool] = []

        async def endless() -> AsyncIterator[int]:
            try:
                while True:
                    yield 0
            finally:
                closed.append(True)

        async with aclosing(Clocked(endless, LONG).runner.stream(ToolCall("t"))) as events:
            await anext(events)
        assert closed == [True]

    async def test_the_last_event_counts_even_if_it_is_late(self) -> None:
        """A `done` that is there is not thrown away because the consumer took its time."""

        async def quick() -> AsyncIterator[int]:
            yield 1

        async with aclosing(Clocked(quick, SHORT).runner.stream(ToolCall("t"))) as events:
            await anext(events)
            await asyncio.sleep(2 * SHORT)
            assert (await anext(events)).kind == "done"

    async def test_an_inner_stream_that_just_ends(self) -> None:
        """Timeout adds no end of its own to a stream that has none."""

        class Silent:
            async def run(self, call: ToolCall) -> Any:
                raise NotImplementedError

            async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
                for event in ():
                    yield event

        assert [event async for event in Timeout(Silent(), LONG).stream(ToolCall("t"))] == []
