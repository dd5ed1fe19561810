"""Trace: a hook is notified of the start and the end of every call, whatever the end is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from toolexec.backend import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery import InMemoryIndex
from toolexec.errors import HandlerError, ToolNotFoundError
from toolexec.model import LocalBinding, declare
from toolexec.run import DefaultRunner, Timeout, ToolCall, Trace, TraceEvent


class Traced:
    """Local tools behind a Trace, and what its hook received."""

    def __init__(self, *functions: Callable[..., Any], timeout: float | None = None) -> None:
        index, backends, local = InMemoryIndex(), BackendRegistry(), LocalBackend()
        backends.register(local)
        for function in functions:
            declared = declare(function)
            index.register(declared.tool, LocalBinding(declared.tool.id))
            local.add(declared)
        self.received: list[TraceEvent] = []
        self.runner = Trace(Timeout(DefaultRunner(index, backends), timeout), self.received.append)

    @property
    def end(self) -> TraceEvent:
        """The one end of the one call, checked."""
        start, end = self.received
        assert (start.kind, end.kind) == ("start", "end")
        assert start.call_number == end.call_number
        assert start.call is end.call
        assert end.duration >= 0
        assert (end.result is None) is (end.error is not None)
        return end


async def add(a: int, b: int) -> int:
    return a + b


async def fail() -> None:
    raise ValueError("no")


async def wait() -> None:
    await asyncio.Event().wait()


async def count() -> AsyncIterator[int]:
    yield 1
    yield 2


async def break_off() -> AsyncIterator[int]:
    yield 1
    raise ValueError("no")


async def test_a_call() -> None:
    """The end has the very result that the caller gets."""
    traced = Traced(add)
    call = ToolCall("add", {"a": 1, "b": 2})
    result = await traced.runner.run(call)
    assert traced.end.result is result
    assert traced.end.call is call


async def test_a_failed_call() -> None:
    """A tool that failed ends with a result that says so."""
    traced = Traced(fail)
    await traced.runner.run(ToolCall("fail"))
    assert traced.end.result is not None
    assert isinstance(traced.end.result.error, HandlerError)


async def test_a_call_that_was_not_made() -> None:
    """The exception is the end's error."""
    traced = Traced(add)
    with pytest.raises(ToolNotFoundError) as caught:
        await traced.runner.run(ToolCall("sub"))
    assert traced.end.error is caught.value


async def test_a_cancelled_call() -> None:
    """A cancelled call ends with the cancellation."""
    traced = Traced(wait)
    task = asyncio.create_task(traced.runner.run(ToolCall("wait")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert isinstance(traced.end.error, asyncio.CancelledError)


async def test_a_call_that_is_too_late() -> None:
    """A passed limit is part of the result."""
    traced = Traced(wait, timeout=0.01)
    await traced.runner.run(ToolCall("wait"))
    assert traced.end.result is not None
    assert traced.end.result.error is not None
    assert traced.end.result.error.code == "timeout"


async def test_calls_are_told_apart() -> None:
    """Starts and ends of calls at the same time are joined by their number."""
    traced = Traced(add, wait, timeout=0.2)
    await asyncio.gather(traced.runner.run(ToolCall("wait")), traced.runner.run(ToolCall("add", {"a": 1, "b": 2})))
    assert [(e.kind, e.call.tool_id, e.call_number) for e in traced.received] == [
        ("start", "wait", 1),
        ("start", "add", 2),
        ("end", "add", 2),
        ("end", "wait", 1),
    ]


async def test_a_hook_that_raises(caplog: Any) -> None:
    """The exception is logged with the tool's ID, and the call goes on."""

    def broken(event: TraceEvent) -> None:
        raise RuntimeError("no")

    result = await Trace(Traced(add).runner, broken).run(ToolCall("add", {"a": 1, "b": 2}))
    assert result.value == 3
    assert caplog.text.count("the trace hook failed on add") == 2


class TestStreams:
    """The end of a stream."""

    async def test_done(self) -> None:
        """A finished stream is a result with the whole value."""
        traced = Traced(count)
        async for _ in traced.runner.stream(ToolCall("count")):
            pass
        assert traced.end.result is not None
        assert traced.end.result.value == [1, 2]

    async def test_error(self) -> None:
        """A failed stream is a result with the error."""
        traced = Traced(break_off)
        async for _ in traced.runner.stream(ToolCall("break_off")):
            pass
        assert traced.end.result is not None
        assert isinstance(traced.end.result.error, HandlerError)

    async def test_refused(self) -> None:
        """An exception of the first step is the end's error."""
        traced = Traced(count)
        with pytest.raises(ToolNotFoundError) as caught:
            await anext(traced.runner.stream(ToolCall("cuont")))
        assert traced.end.error is caught.value

    async def test_left_early(self) -> None:
        """A consumer that leaves in the middle counts as a cancellation."""
        traced = Traced(count)
        async with aclosing(traced.runner.stream(ToolCall("count"))) as events:
            await anext(events)
        assert isinstance(traced.end.error, asyncio.CancelledError)
        assert "closed early" in str(traced.end.error)

    async def test_left_at_the_last_event(self) -> None:
        """A consumer that has the last event and asks for no more has left a call that ended well."""
        traced = Traced(count)
        async with aclosing(traced.runner.stream(ToolCall("count"))) as events:
            async for event in events:
                if event.kind == "done":
                    break
        assert traced.end.result is not None
        assert traced.end.result.value == [1, 2]

    async def test_never_begun(self) -> None:
        """A stream that is never iterated is not a call."""
        traced = Traced(count)
        await traced.runner.stream(ToolCall("count")).aclose()
        assert traced.received == []

    async def test_one_without_an_end(self) -> None:
        """A broken inner runner whose stream just ends is reported as an empty result."""

        class Silent(Traced):
            async def run(self, call: ToolCall) -> Any:
                raise NotImplementedError

            async def stream(self, call: ToolCall) -> AsyncIterator[Any]:
                for event in ():
                    yield event

        received: list[TraceEvent] = []
        async for _ in Trace(Silent(), received.append).stream(ToolCall("t")):
            pass
        assert [event.kind for event in received] == ["start", "end"]
        assert received[1].result is not None
