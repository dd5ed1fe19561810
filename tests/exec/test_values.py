"""Results, chunks and arguments of any Python type, by every way of declaring a tool."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, NamedTuple

import numpy as np
import pydantic
import pytest

from toolexec import Exec, Tool, tool
from toolexec.errors import InputValidationError, InvalidResultError


class Text(str):
    __slots__ = ()


class Pair(NamedTuple):
    a: Any
    b: Any


class Color(enum.Enum):
    RED = "red"


class Row(pydantic.BaseModel):
    day: dt.date = pydantic.Field(alias="on")


ROW = Row(on=dt.date(2026, 1, 31))
CASES: list[tuple[Any, Any]] = [
    (np.float64(1.5), 1.5),
    (np.int64(3), 3),
    (np.array([1, 2]), [1, 2]),
    (Text("x"), "x"),
    (Pair(1, np.float64(2.5)), [1, 2.5]),
    (decimal.Decimal("1.10"), "1.10"),
    (Color.RED, "red"),
    (dt.datetime(2026, 1, 31, 12), "2026-01-31T12:00:00"),
    (ROW, {"on": "2026-01-31"}),
    (
        {"row": ROW, "rows": [ROW, {"when": dt.date(2026, 1, 31)}]},
        {"row": {"on": "2026-01-31"}, "rows": [{"on": "2026-01-31"}, {"when": "2026-01-31"}]},
    ),
    ({1: "a", None: (1, 2)}, {"1": "a", "null": [1, 2]}),
    (collections.OrderedDict(a={1}), {"a": [1]}),
]


def declared(annotation: Any, value: Any, *, sync: bool = False) -> Any:
    """A tool that gives *value* and is annotated with *annotation*."""

    async def give():
        return value

    def give_sync():
        return value

    function = give_sync if sync else give
    if annotation is not None:
        function.__annotations__["return"] = annotation
    return tool("t:give")(function)


@pytest.mark.parametrize(("value", "plain"), CASES)
async def test_results(value: Any, plain: Any) -> None:
    """The same JSON comes out whatever the annotation, and by `handler=`; it can be written and crosses to MCP."""
    for annotation in (None, Any, object, type(value)):
        if annotation in (np.ndarray, np.float64, np.int64, Text, collections.OrderedDict):
            continue  # pydantic has no schema for the class itself
        async with Exec() as ex:
            ex.add(declared(annotation, value, sync=annotation is object))
            result = (await ex.run_tool("t:give")).raise_for_error()
            assert result.value == plain
            assert json.loads(json.dumps(result.to_dict()))["value"] == plain
    for annotation in (dict, list[Any], dict[str, Any]):
        async with Exec(validate_output="warn") as ex:
            ex.add(declared(annotation, value))
            assert (await ex.run_tool("t:give")).raise_for_error().value == plain
    async with Exec() as ex:
        ex.add(Tool(name="give", input_schema={"type": "object"}), handler=lambda args: value)
        assert (await ex.run_tool("give")).raise_for_error().value == plain


@pytest.mark.parametrize(("value", "plain"), CASES)
async def test_arguments(value: Any, plain: Any) -> None:
    """A handler gets the same JSON, in calls and in chains."""
    async with Exec() as ex:
        ex.add(Tool(name="echo", input_schema={"type": "object"}), handler=lambda args: args)
        assert (await ex.run_tool("echo", {"x": value})).raise_for_error().value == {"x": plain}
        chain = await ex.run_chain([{"tool": "echo", "args": {"x": [value]}}])
        assert chain.raise_for_error().value == {"x": [plain]}
        assert chain.steps[0].args == {"x": [plain]}
        json.dumps(chain.to_dict())


@pytest.mark.parametrize(("value", "plain"), CASES)
async def test_chunks(value: Any, plain: Any) -> None:
    """Generators stream the same JSON that their result is made of, typed or not."""

    async def untyped():
        yield value

    async def typed() -> AsyncIterator[Any]:
        yield value

    def sync() -> Iterator[object]:
        yield value

    for function in (untyped, typed, sync):
        async with Exec() as ex:
            ex.add(function, "t:stream")
            async with aclosing(ex.stream_tool("t:stream")) as stream:
                events = [event async for event in stream]
            assert [(event.kind, event.data) for event in events] == [("chunk", plain), ("done", [plain])]
            assert (await ex.run_tool("t:stream")).raise_for_error().value == [plain]
            json.dumps([event.to_dict() for event in events])


async def test_typed_chunks() -> None:
    """A chunk is written as its type says, like the result."""

    async def rows() -> AsyncIterator[Row]:
        yield ROW

    async with Exec() as ex:
        ex.add(rows, "t:rows")
        async with aclosing(ex.stream_tool("t:rows")) as stream:
            assert [event.data async for event in stream] == [{"on": "2026-01-31"}, [{"on": "2026-01-31"}]]


@pytest.mark.parametrize(
    "odd",
    [object(), float("nan"), np.float64("inf"), 1j, b"\xff", "\ud800", {(1,): 2}, pytest.param(10**5000, id="long")],
)
async def test_what_has_no_json_form(odd: Any) -> None:
    """Refuses such a value with its location, on every path; nothing else is raised."""

    async def give() -> dict[str, Any]:
        return {"list": [1, odd]}

    async def stream() -> AsyncIterator[Any]:
        yield 1
        yield {"list": [1, odd]}

    async with Exec() as ex:
        ex.add(give, "t:give")
        ex.add(stream, "t:stream")
        ex.add(Tool(name="echo", input_schema={"type": "object"}), handler=lambda args: args)
        result = await ex.run_tool("t:give")
        assert isinstance(result.error, InvalidResultError)
        assert "/list/1" in result.error.message
        json.dumps(result.to_dict(), allow_nan=False)
        with pytest.raises(InputValidationError) as caught:
            await ex.run_tool("echo", {"x": [odd]})
        assert caught.value.violations[0].path.startswith("/x/0")
        async with aclosing(ex.stream_tool("t:stream")) as events:
            last = [event async for event in events][-1]
        assert isinstance(last.error, InvalidResultError)
        assert "/list/1" in last.error.message


@pytest.mark.full
async def test_too_large_a_value_of_a_program() -> None:
    """An honest program whose value has too many parts is told so, and accused of nothing."""
    async with Exec() as ex:
        result = await ex.execute_code("return [[] for _ in range(1_100_000)]")
        assert "more than 1,000,000 lists and objects" in str(result.error)
        assert "forged" not in str(result.error)
        assert (await ex.execute_code("return '[' * 1_100_000")).value == "[" * 1_100_000
