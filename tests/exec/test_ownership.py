"""Arguments and results belong to their holders, on every path."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from toolexec import Exec, Gate, Policy, Rule, Step, StreamEvent, Tool, ToolReply, tool
from toolexec.run import ToolCall

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=10,
)


def spoil(value: Any) -> None:
    """Change every dict and list in a value."""
    if isinstance(value, dict):
        for item in list(value.values()):
            spoil(item)
        value["spoilt"] = True
    elif isinstance(value, list):
        for item in list(value):
            spoil(item)
        value.append("spoilt")


class Bench:
    """Tools that spoil what they are given and give away what they keep."""

    def __init__(self) -> None:
        self.kept: Any = None

        @tool("t:async_spoil")
        async def async_spoil(value: Any) -> Any:
            mine = copy.deepcopy(value)
            spoil(value)
            return mine

        @tool("t:sync_spoil")
        def sync_spoil(value: Any) -> Any:
            mine = copy.deepcopy(value)
            spoil(value)
            return mine

        @tool("t:give")
        async def give() -> Any:
            return self.kept

        @tool("t:give_typed")
        def give_typed() -> dict[str, list[Any]] | list[Any]:
            return self.kept

        @tool("t:give_reply")
        async def give_reply() -> ToolReply:
            return ToolReply(structured=self.kept, has_structured=True, content=[{"type": "x", "data": self.kept}])

        @tool("t:stream")
        async def stream(value: Any) -> AsyncIterator[Any]:
            spoil(value)
            yield self.kept
            yield StreamEvent(kind="progress", data={"progress": 1, "kept": self.kept})
            spoil(self.kept)
            yield self.kept

        self.tools = (async_spoil, sync_spoil, give, give_typed, give_reply, stream)

    def exec(self, **options: Any) -> Exec:
        ex = Exec(**options)
        for each in self.tools:
            ex.add(each)
        ex.add(Tool(name="mapping", input_schema={"type": "object"}), handler=self._mapping)
        return ex

    def _mapping(self, args: dict[str, Any]) -> Any:
        spoil(args)
        return self.kept


Path = Callable[[Exec, str, dict[str, Any]], Awaitable[Any]]


async def by_run(ex: Exec, name: str, args: dict[str, Any]) -> Any:
    return (await ex.run_tool(name, args)).raise_for_error().value


async def by_chain(ex: Exec, name: str, args: dict[str, Any]) -> Any:
    return (await ex.run_chain([Step(name, args)])).raise_for_error().value


async def by_stream(ex: Exec, name: str, args: dict[str, Any]) -> Any:
    async with aclosing(ex.stream_tool(name, args)) as events:
        return [event.data async for event in events][-1]


async def by_runner(ex: Exec, name: str, args: dict[str, Any]) -> Any:
    return (await ex.runner.run(ToolCall(name, args))).raise_for_error().value


PATHS: list[Path] = [by_run, by_chain, by_stream, by_runner]
BENCH = Bench()


@settings(max_examples=20, deadline=None)
@given(value=json_values)
def test_what_is_passed_in_is_never_changed(value: Any) -> None:
    """Whatever a handler does to its arguments, its caller's data stay, however deep."""
    before = copy.deepcopy(value)

    async def check() -> None:
        async with BENCH.exec() as ex:
            for path, name in itertools.product(PATHS, ["t:async_spoil", "t:sync_spoil", "mapping"]):
                args = {"value": value, "flat": 1} if name == "mapping" else {"value": value}
                given_back = await path(ex, name, args)
                assert name == "mapping" or given_back == before
                assert args["value"] is value
                assert value == before
                assert args.keys() <= {"value", "flat"}

    asyncio.run(check())


@settings(max_examples=20, deadline=None)
@given(value=json_values)
def test_a_result_is_the_callers_own(value: Any) -> None:
    """Whatever a caller does to a result, what the tool keeps stays, and so do other callers' results."""
    before = copy.deepcopy(value)

    async def check() -> None:
        async with BENCH.exec(validate_output="off") as off, BENCH.exec() as strict:
            BENCH.kept = value
            for path, name in itertools.product(PATHS, ["t:give", "t:give_typed", "t:give_reply", "mapping"]):
                for ex in (off, strict) if name != "t:give_typed" else (off,):
                    first = await path(ex, name, {})
                    second = await path(ex, name, {})
                    assert first == second == before
                    spoil(first)
                    assert second == BENCH.kept == before

    asyncio.run(check())


async def test_the_blocking_twin() -> None:
    """The blocking twin behaves the same from threads."""
    bench = Bench()
    bench.kept = {"a": [1]}

    def check() -> None:
        with bench.exec().sync as ex:
            args: dict[str, Any] = {"value": {"a": [1]}}
            assert ex.run_tool("t:sync_spoil", args).value == {"a": [1]}
            assert args == {"value": {"a": [1]}}
            spoil(ex.run_tool("t:give").value)
            assert bench.kept == {"a": [1]}

    await asyncio.to_thread(check)


async def test_the_parts_of_a_reply_are_the_callers_own() -> None:
    """A part that the handler keeps is not the one in the reply."""
    bench = Bench()
    bench.kept = {"a": [1]}
    async with bench.exec() as ex:
        result = await ex.run_tool("t:give_reply")
        spoil(result.value)
        for part in result.content:
            spoil(part)
    assert bench.kept == {"a": [1]}


async def test_events_of_a_stream_are_the_callers_own() -> None:
    """A chunk stays as it was when it came, and neither side changes what the other one has."""
    bench = Bench()
    bench.kept = [1]
    args: dict[str, Any] = {"value": [1]}
    async with bench.exec() as ex:
        events: list[StreamEvent] = []
        async with aclosing(ex.stream_tool("t:stream", args)) as stream:
            async for event in stream:
                events.append(event)
                if event.kind != "done":
                    before = copy.deepcopy(bench.kept)
                    spoil(event.data)
                    assert bench.kept == before
        assert events[-1].data == [[1], [1, "spoilt"]]
        assert (await ex.run_tool("t:stream", args)).value == [[1, "spoilt"], [1, "spoilt", "spoilt"]]
    assert args == {"value": [1]}


async def test_steps_of_a_chain_share_nothing() -> None:
    """No step reaches into the value of an earlier one, by whichever way it got it; the report shows what went in."""
    bench = Bench()
    bench.kept = {"value": {"a": [1]}}
    given_args: dict[str, Any] = {"value": {"own": [1]}}
    async with bench.exec() as ex:
        chain = await ex.run_chain(
            [
                Step("t:give", name="first"),
                Step("t:async_spoil", {"value": {"$ref": "first"}}),
                Step("t:async_spoil", {"value": {"$ref": "first.value.a"}}),
                Step("t:give"),
                Step("t:sync_spoil", use_previous=True),
                Step("t:async_spoil", given_args),
                Step("t:async_spoil", {"value": {"$literal": {"$ref": "x"}}}),
            ]
        )
        chain.raise_for_error()
        assert chain.steps[0].value == chain.steps[3].value == {"value": {"a": [1]}}
        assert chain.steps[1].args == {"value": {"value": {"a": [1]}}}
        assert chain.steps[2].args == {"value": [1]}
        assert chain.steps[4].args == {"value": {"a": [1]}}
        for step in chain.steps:
            spoil(step.args)
        assert chain.steps[0].value == chain.steps[3].value == {"value": {"a": [1]}}
        assert given_args == {"value": {"own": [1]}}
    assert bench.kept == {"value": {"a": [1]}}


async def test_attempts_share_nothing() -> None:
    """Changes of a failed attempt to its arguments are not in the next one."""
    seen: list[Any] = []

    @tool("t:retry", read_only=True)
    async def retry(value: list[int]) -> int:
        seen.append(copy.deepcopy(value))
        value.append(9)
        if len(seen) < 3:
            raise TimeoutError("again")
        return 1

    async with Exec() as ex:
        ex.add(retry)
        call = ToolCall("t:retry", {"value": [1]})
        for _ in range(3):
            await ex.runner.run(call)
    assert seen == [[1], [1], [1]]


async def test_rules_see_what_the_tool_gets() -> None:
    """A rule decides on plain JSON that stays unchanged until the call is made."""
    import numpy as np

    seen: list[Any] = []
    rule = Rule("allow", tools=["t:pay"], when={"amount": {"below": 50}})

    @tool("t:pay")
    async def pay(amount: float, lines: list[int]) -> Any:
        return [amount, lines]

    async with Exec(
        gate=Gate(policy=Policy([rule], default="deny")), trace=lambda event: seen.append(event.call.args)
    ) as ex:
        ex.add(pay)
        args = {"amount": np.float64(20), "lines": (1, 2)}
        assert (await ex.run_tool("t:pay", args)).value == [20.0, [1, 2]]
    assert all(type(given_args["amount"]) is float and given_args["lines"] == [1, 2] for given_args in seen)


async def test_code_and_tools_share_nothing() -> None:
    """A program's data, the trace and what tools keep are apart, also for calls made in the sandbox's own thread."""
    bench = Bench()
    bench.kept = {"a": [1]}
    program = """
data = {"a": [1]}
back = tools.t.sync_spoil(value=data)
again = tools.t.async_spoil(value=data)
kept = tools.t.give()
kept["a"].append(2)
return [data, back, again, tools.t.give()]
"""
    async with bench.exec() as ex:
        result = (await ex.execute_code(program)).raise_for_error()
        assert result.value == [{"a": [1]}] * 4
        assert [call.args for call in result.tool_calls][:2] == [{"value": {"a": [1]}}] * 2
        spoil(result.tool_calls[2].value)
    assert bench.kept == {"a": [1]}
