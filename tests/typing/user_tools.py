"""Declaring tools: `@tool` keeps the function's signature."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

from toolexec import Exec, LocalBinding, Tool, ToolAnnotations, ToolContext, tool
from toolexec.model import ToolBuilder


@dataclass
class Point:
    """A place."""

    x: float
    y: float


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool("geo:move", read_only=True, inline=True)
def move(point: Point, by: float) -> Point:
    """Move a point."""
    return Point(point.x + by, point.y)


@tool(namespace="web", open_world=True)
async def fetch(url: str, ctx: ToolContext) -> dict[str, Any]:
    """Get a page."""
    ctx.report(1, 2, "half")
    return {"url": url}


@tool
async def count(to: int) -> AsyncIterator[int]:
    """Count."""
    for number in range(to):
        yield number


takes_two_numbers: Callable[[int, int], int] = add
assert_type(add(1), int)
assert_type(move(Point(1, 2), by=3), Point)
assert_type(add.tool, Tool)
assert_type(add.tool.id, str)
assert_type(add.tool.annotations, ToolAnnotations)
assert_type(count(3), AsyncIterator[int])

add("one")  # pyright: ignore[reportArgumentType]
add(1, c=2)  # pyright: ignore[reportCallIssue]
move(Point(1, 2))  # pyright: ignore[reportCallIssue]


def call_it(ctx: ToolContext) -> Coroutine[Any, Any, dict[str, Any]]:
    """A declared coroutine function is still one."""
    return fetch("https://example.com", ctx)


def identity(a: int) -> int:
    """A function without decoration."""
    return a


def echo(args: dict[str, Any]) -> dict[str, Any]:
    """A handler of a tool written by hand."""
    return args


def register(ex: Exec) -> None:
    """Everything that `add` takes."""
    assert_type(ex.add(add), Tool)
    assert_type(ex.add(identity, "identity"), Tool)
    by_hand = ToolBuilder("ping").namespace("net").input_schema({"type": "object"}).read_only().build()
    assert_type(by_hand, Tool)
    ex.add(by_hand, handler=echo)
    ex.add(by_hand, binding=LocalBinding("ping"))
    ex.add(5)  # pyright: ignore[reportArgumentType]
    ex.add(by_hand, binding="ping")  # pyright: ignore[reportArgumentType]
