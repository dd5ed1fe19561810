"""Null for an argument that may be left out."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec import Exec, Step, Tool
from toolexec.code import Tools
from toolexec.errors import InputValidationError
from toolexec.integrations.toolset import Toolset


def add_tools(ex: Exec) -> list[dict[str, Any]]:
    """Add a function and a tool with a schema; return the arguments that handlers get."""
    seen: list[dict[str, Any]] = []

    def find(city: str, days: int = 3, note: str | None = "none") -> str:
        seen.append({"city": city, "days": days, "note": note})
        return city

    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {"type": "integer"}}}},
        "required": ["a"],
        "additionalProperties": False,
    }
    ex.add(find, "t:find")
    ex.add(Tool(name="raw", namespace="t", input_schema=schema), handler=seen.append)
    return seen


async def test_null_means_left_out_on_every_path() -> None:
    """The function's own default holds, in calls, chains, streams and code; null stays where the schema takes it."""
    expected = {"city": "Bern", "days": 3, "note": None}
    args = {"city": "Bern", "days": None, "note": None}
    async with Exec() as ex:
        seen = add_tools(ex)
        assert (await ex.run_tool("t:find", args)).value == "Bern"
        assert (await ex.run_chain([Step("t:find", args)])).value == "Bern"
        async for _ in ex.stream_tool("t:find", args):
            pass
        await Tools(ex.index, ex.docs, ex.runner).run_tool("t:find", args)
        await ex.run_tool("t:raw", {"a": "x", "b": None})
    assert seen == [expected] * 4 + [{"a": "x"}]
    assert args == {"city": "Bern", "days": None, "note": None}


@pytest.mark.parametrize("args", [{"a": None}, {"a": "x", "other": None}, {"a": "x", "b": {"c": None}}, {"b": None}])
async def test_other_nulls_are_refused(args: dict[str, Any]) -> None:
    """A required argument, an unknown one, and one within another."""
    async with Exec() as ex:
        seen = add_tools(ex)
        with pytest.raises(InputValidationError):
            await ex.run_tool("t:raw", args)
    assert seen == []


async def test_null_for_the_tools_that_find_and_run() -> None:
    """The tools of the server, as agents of other frameworks have them, take null for what is left out, too."""
    async with Exec() as ex:
        add_tools(ex)
        toolset = Toolset(ex, "search")
        search = next(face for face in toolset.faces() if face.name == "search_tools")
        found = await toolset.call(search, {"query": "find", "limit": None})
        assert (found.error, "t:find" in found.text) == (None, True)
        wrong = await toolset.call(search, {"query": None})
        assert wrong.error is not None
