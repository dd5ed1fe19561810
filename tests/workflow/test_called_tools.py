"""Tools that are called like methods: the suggestion is the call as the language has it, if there is such a tool."""

from __future__ import annotations

import pytest

from toolexec import Exec, tool
from toolexec.errors import WorkflowSyntaxError


@tool("math:add")
def add(a: int, b: int, exact: bool = True) -> int:
    """Adds."""
    return a + b


@tool("clock:now")
def now() -> int:
    """Reads the clock."""
    return 1


CALL = 'write run("math:add", {a: value, b: value})'


@pytest.mark.parametrize(
    ("source", "suggestion"),
    [
        ("math.add(1, 2)", CALL),
        ("x := 1\ny := x + math.add({a: 1, b: 2})", CALL),
        ("return math.add(a=1, b=2)", CALL),
        ("math.add(a: 1)", CALL),
        ("clock.now()", 'write run("clock:now")'),
        ("math.ad(1)", "write ad(math), if there is such a function"),
        ("xs.push(1)", "write xs = xs + [value]"),
        ("x.math.add(1)", "write x.math = x.math + [value]"),
        ("clock.now", ""),
    ],
)
async def test_the_call_is_suggested(source: str, suggestion: str) -> None:
    """Required arguments are named; a value's method gets the usual advice."""
    async with Exec() as ex:
        ex.add(add)
        ex.add(now)
        error = (await ex.run_workflow(source)).error
    if isinstance(error, WorkflowSyntaxError):
        assert error.suggestion == suggestion
        assert suggestion in str(error)
    else:
        assert suggestion == ""


async def test_a_tool_that_may_not_be_called_is_not_named() -> None:
    """Nothing is said of it."""
    async with Exec() as ex:
        ex.add(add)
        error = (await ex.run_workflow("math.add(1, 2)", allowed_tools=["other:*"])).error
    assert isinstance(error, WorkflowSyntaxError)
    assert "run(" not in error.suggestion
