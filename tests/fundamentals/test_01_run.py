"""First steps: turn a function into a tool, and run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toolexec import Exec, tool


async def test_run_a_function() -> None:
    """Any function can be a tool; it is called by its ID, with its arguments as a dict."""
    async with Exec() as ex:
        ex.add(lambda a, b: a + b, "math:add")

        result = await ex.run_tool("math:add", {"a": 5, "b": 3})

        assert result.value == 8


async def test_declare_a_tool() -> None:
    """`@tool` makes a tool of a typed function: name, description and schema come from the function itself."""

    @tool(namespace="text", tags=["formatting"])
    def shorten(text: str, length: int = 10) -> str:
        """Cut a text.

        Args:
            text: What to cut.
            length: How much to keep.
        """
        return text[:length]

    assert shorten.tool.id == "text:shorten"
    assert shorten.tool.description == "Cut a text."
    assert shorten.tool.input_schema.to_json()["properties"]["length"] == {
        "type": "integer",
        "default": 10,
        "description": "How much to keep.",
    }
    async with Exec() as ex:
        ex.add(shorten)
        assert (await ex.run_tool("text:shorten", {"text": "a long sentence", "length": 6})).value == "a long"


async def test_a_declared_function_is_still_a_function() -> None:
    """Declared functions can be called and tested as before."""

    @tool
    def double(number: int) -> int:
        return 2 * number

    assert double(21) == 42


async def test_async_functions() -> None:
    """Async functions run on the event loop, others in a thread; the caller sees no difference."""

    @tool
    async def wait_and_see() -> str:
        return "seen"

    @tool
    def look() -> str:
        return "seen"

    async with Exec() as ex:
        ex.add(wait_and_see)
        ex.add(look)
        assert (await ex.run_tool("wait_and_see")).value == (await ex.run_tool("look")).value == "seen"


@dataclass
class Point:
    x: float
    y: float


async def test_rich_types() -> None:
    """Dataclasses, models, enums and literals work: JSON comes in, typed values arrive, JSON goes out."""

    @tool
    def mirror(point: Point, axis: Literal["x", "y"]) -> Point:
        return Point(-point.x, point.y) if axis == "y" else Point(point.x, -point.y)

    async with Exec() as ex:
        ex.add(mirror)
        result = await ex.run_tool("mirror", {"point": {"x": 1, "y": 2}, "axis": "y"})
        assert result.value == {"x": -1.0, "y": 2.0}
