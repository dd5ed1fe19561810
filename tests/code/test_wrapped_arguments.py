"""Arguments within one that holds them all."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec import Exec, Tool


@pytest.mark.parametrize("name", ["arguments", "args", "params", "parameters", "input", "kwargs"])
async def test_arguments_in_one_are_the_arguments(name: str) -> None:
    """A call that passes all arguments in one, as other APIs do, means what is in it."""
    async with Exec() as ex:
        ex.add(lambda a, b=1: a + b, "math:add")
        result = await ex.execute_code(f"call_tool('math:add', {name}={{'a': 2}})")
        assert result.value == 3, result.error
        assert result.tool_calls[0].args == {"a": 2}


async def test_a_tool_that_takes_it_gets_it() -> None:
    """A tool with such an argument, or that takes any, gets what was passed."""
    named = Tool(name="x", namespace="own", input_schema={"type": "object", "properties": {"args": {"type": "string"}}})
    anything = Tool(name="y", namespace="own", input_schema={"type": "object"})
    seen: list[Any] = []
    async with Exec() as ex:
        for tool in (named, anything):
            ex.add(tool, handler=seen.append)
        await ex.execute_code("tools.own.y(args={'a': 2})")
        result = await ex.execute_code("tools.own.x(args={'a': 2})")
    assert seen == [{"args": {"a": 2}}]
    assert "is not of type" in str(result.error)
