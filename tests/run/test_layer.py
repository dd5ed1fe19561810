"""Layer: a rule is one method, and holds for calls, for streams, and for calls in the caller's own thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from tests.run.conftest import Workshop

from toolexec.errors import HandlerError, PolicyError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run.layer import CallEnd, Layer, ObserverLayer
from toolexec.run.runner import Runner
from toolexec.run.types import Result


class Rule(Layer):
    """Refuses -1, answers 0 itself, calls with 2 for 1; adds ten to every sum."""

    def before(self, call: ToolCall) -> ToolCall | Result | None:
        match (call.args or {})["a"]:
            case -1:
                raise PolicyError("no", tool_id=call.tool_id)
            case 0:
                return Result(call.tool_id, "known")
            case 1:
                return replace(call, args={"a": 2})
            case _:
                return None

    def after(self, call: ToolCall, result: Result) -> Result | None:
        return replace(result, value=result.value + 10) if result.error is None else None


class SlowRule(Layer):
    """The same, in coroutines."""

    async def before(self, call: ToolCall) -> ToolCall | Result | None:
        await asyncio.sleep(0)
        return Rule(self.inner).before(call)

    async def after(self, call: ToolCall, result: Result) -> Result | None:
        await asyncio.sleep(0)
        return Rule.after(self, call, result)  # pyright: ignore[reportArgumentType]


def echo(a: int) -> int:
    """Return it, or fail."""
    if a > 5:
        raise ValueError("too much")
    return a


async def on_run(runner: Layer, call: ToolCall) -> Result:
    """Make the call on the event loop."""
    return await runner.run(call)


async def on_stream(runner: Layer, call: ToolCall) -> Result:
    """Make the call as a stream of one event."""
    call.fallback = True
    [event] = [event async for event in runner.stream(call)]
    assert event.kind == ("done" if event.error is None else "error")
    return Result(event.tool_id, event.data if event.error is None else None, event.error)


async def in_thread(runner: Layer, call: ToolCall) -> Result:
    """Make the call in this thread; what is awaited gets a loop of its own."""

    def wait(work: Any) -> Any:
        return asyncio.run(work)

    result = await asyncio.to_thread(runner.run_in_thread, call, wait, 1.0)
    assert result is not None
    return result


@pytest.mark.parametrize("make", [on_run, on_stream, in_thread])
@pytest.mark.parametrize("rule", [Rule, SlowRule])
async def test_a_rule_holds_on_every_path(workshop: Workshop, make: Any, rule: type[Layer]) -> None:
    """A rule's `before` may raise, return and replace on each path, and so may `after`."""
    workshop.add(echo, "t:echo")
    runner = rule(workshop.runner())
    with pytest.raises(PolicyError):
        await make(runner, ToolCall("t:echo", {"a": -1}))
    assert (await make(runner, ToolCall("t:echo", {"a": 0}))).value == "known"
    assert (await make(runner, ToolCall("t:echo", {"a": 1}))).value == 12
    assert (await make(runner, ToolCall("t:echo", {"a": 3}))).value == 13
    failed = await make(runner, ToolCall("t:echo", {"a": 6}))
    assert isinstance(failed.error, HandlerError)


async def test_a_result_with_an_error_ends_a_stream(workshop: Workshop) -> None:
    """A result that `after` returns becomes the last event, an error too; the events before it pass."""

    async def count(to: int) -> AsyncGenerator[int, None]:
        for number in range(to):
            yield number

    class Refuse(Layer):
        def after(self, call: ToolCall, result: Result) -> Result:
            return Result(result.tool_id, None, ToolExecError(f"no {result.value}"))

    workshop.add(count, "t:count")
    async with aclosing(Refuse(workshop.runner()).stream(ToolCall("t:count", {"to": 2}))) as events:
        seen = [event async for event in events]
    assert [event.kind for event in seen] == ["chunk", "chunk", "error"]
    assert str(seen[-1].error) == "no [0, 1]"


class Bare:
    """A runner that needs the event loop, and whose stream ends with an error that is not an exception."""

    async def run(self, call: ToolCall) -> Result:
        return Result(call.tool_id, 1)

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        yield StreamEvent(kind="error", data={"code": "odd"})


class Observer(ObserverLayer):
    """Keeps what it sees of calls."""

    def __init__(self, inner: Runner) -> None:
        super().__init__(inner)
        self.seen: list[tuple[Result | None, BaseException | None]] = []

    def begin(self, call: ToolCall) -> CallEnd:
        return lambda result, failure: self.seen.append((result, failure))


async def test_an_observer_sees_an_error_without_an_exception() -> None:
    """An error event that comes without its exception is a failed call all the same, and passes unchanged."""
    observer = Observer(Bare())
    assert [event.data async for event in observer.stream(ToolCall("t:x"))] == [{"code": "odd"}]
    result, failure = observer.seen[0]
    assert result is not None
    assert result.error is not None
    assert failure is None


async def test_an_observer_in_the_callers_thread(workshop: Workshop) -> None:
    """An observer sees results and exceptions; a call that needs the loop is not begun."""
    workshop.add(echo, "t:echo")
    observer = Observer(workshop.runner())
    assert (await in_thread(observer, ToolCall("t:echo", {"a": 2}))).value == 2
    with pytest.raises(ToolExecError):
        await in_thread(observer, ToolCall("t:echo", {"b": 2}))
    assert [(result is None, failure is None) for result, failure in observer.seen] == [(False, True), (True, False)]
    assert Observer(Bare()).run_in_thread(ToolCall("t:echo", {"a": 2}), lambda work: None, 1.0) is None


async def test_a_layer_that_must_not_run_in_threads(workshop: Workshop) -> None:
    """With `in_thread` off every call goes to the loop."""

    class OnLoop(Rule):
        in_thread = False

    workshop.add(echo, "t:echo")
    assert not OnLoop(workshop.runner()).runs_in_thread(ToolCall("t:echo", {"a": 1}), 1.0)
