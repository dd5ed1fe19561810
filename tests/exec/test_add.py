"""What `Exec.add` makes of functions and tools, and what options it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from toolexec import ConfigurationError, Exec, Options, Result, Tool, tool
from toolexec.model import ToolCall
from toolexec.run import Runner


async def test_annotations_may_name_local_types() -> None:
    """A function inside of a function may use types that are defined there."""

    @dataclass
    class Point:
        x: int

    def shift(point: Point) -> int:
        return point.x + 1

    async with Exec() as ex:
        ex.add(shift)
        assert (await ex.run_tool("shift", {"point": {"x": 1}})).value == 2


def test_a_name_is_for_plain_functions() -> None:
    """A tool that has a name keeps it; another one is refused, not ignored."""

    @tool
    def named() -> None: ...

    ex = Exec()
    with pytest.raises(ConfigurationError, match="has a name already"):
        ex.add(named, "other")
    with pytest.raises(ConfigurationError, match="has a name already"):
        ex.add(Tool(name="t", input_schema={}), "other", handler=lambda args: None)
    assert len(ex.index) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"default_timeout": "5"},
        {"default_timeout": True},
        {"start_timeout": None},
        {"max_tool_calls": "x"},
        {"max_tool_calls": 1.5},
        {"max_examples": -1},
        {"trace": 5},
        {"mcp_executor": "x"},
        {"layers": [None]},
    ],
)
def test_options_of_the_wrong_type_are_refused(settings: dict[str, Any]) -> None:
    """Every value is checked when it is given, and the error names the option."""
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        Options(**settings)


async def test_layers_go_around_every_call_first_one_outermost() -> None:
    """Layers see calls of tools and of chain steps alike, in the order in which they are given."""
    seen: list[str] = []

    class Noting:
        def __init__(self, inner: Runner, name: str) -> None:
            self.inner, self.name = inner, name

        async def run(self, call: ToolCall) -> Result:
            seen.append(f"{self.name} {call.tool_id}")
            return await self.inner.run(call)

        def stream(self, call: ToolCall) -> Any:
            seen.append(f"{self.name} streams {call.tool_id}")
            return self.inner.stream(call)

    async with Exec(layers=[lambda inner: Noting(inner, "outer"), lambda inner: Noting(inner, "inner")]) as ex:
        ex.add(lambda: 1, "one")
        await ex.run_tool("one")
        await ex.run_chain([{"tool": "one"}])
        assert [event.data async for event in ex.stream_tool("one")] == [1]
    assert seen == ["outer one", "inner one"] * 2 + ["outer streams one", "inner streams one"]


def test_the_blocking_twin_adds_tools_and_servers() -> None:
    """Everything that an Exec takes in, its twin takes in, and a server is connected when the call returns."""
    with Exec().sync as ex:
        ex.add(lambda a, b: a + b, "math:add")
        status = ex.add_mcp("gone", command="no-such-program-anywhere")
        assert not status.available
        assert "not found" in (status.reason or "")
        assert [known.name for known in ex.backend_statuses()] == ["local", "gone"]
        assert ex.run_tool("math:add", {"a": 5, "b": 3}).value == 8
