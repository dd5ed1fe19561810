"""An error of a tool keeps its class in programs and in their results, whatever code it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, tool
from toolexec.errors import CodeError, ExecutionError, Outcome, ToolExecError

CODES = ["closed", "limit_exceeded", "tool_call_limit", "timeout", "policy_denied", "approval_required", "sold_out"]
CATCH = """
try:
    CALL
except LimitExceededError:
    return "a limit"
except PolicyError:
    return "a policy"
except TimeoutError:
    return "a timeout"
except ExecutionError as error:
    return error.code
"""
CALLS = {
    "run": 'tools.run("t:fails")',
    "awaited": 'await tools.run("t:fails")',
    "chain": 'tools.run_chain([{"tool_id": "t:fails"}])',
}
SANDBOXES: dict[str, dict[str, Any]] = {
    "wasm": {},
    "unsafe_host": {"profile": "dev", "unsafe_opt_in": True},
}
UNCAUGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "python": ('tools.run("t:fails")', {}),
    "javascript": ('await tools.run("t:fails", {})', {"language": "javascript"}),
    "workflow": ('run("t:fails")', {"language": "workflow"}),
    "python on the host": ('tools.run("t:fails")', SANDBOXES["unsafe_host"]),
}
AGAIN = ("python", "javascript", "workflow")  # the host's own Python cannot be made again


def failing(code: str) -> Exec:
    """Return an Exec with a tool whose error has this code, and has not done anything that is known."""

    @tool("t:fails")
    def fails() -> None:
        raise ExecutionError("the tool says so", code=code)

    ex = Exec()
    ex.add(fails)
    return ex


@pytest.mark.parametrize("sandbox", SANDBOXES.values(), ids=SANDBOXES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("code", CODES)
async def test_a_program_catches_it_by_its_class(code: str, call: str, sandbox: dict[str, Any]) -> None:
    """A code that some class of toolexec has does not make the error one of that class."""
    async with failing(code) as ex:
        result = await ex.execute_code(CATCH.replace("CALL", call), **sandbox)
    assert (result.value, result.error) == (code, None)


@pytest.mark.parametrize(
    ("kind", "durable"), [*((kind, False) for kind in UNCAUGHT), *((kind, True) for kind in AGAIN)]
)
@pytest.mark.parametrize("code", CODES)
async def test_a_result_has_the_same_error_as_a_call(code: str, kind: str, durable: bool, tmp_path: Path) -> None:
    """The cause of what a program failed with is of the class that a direct call fails with."""
    source, settings = UNCAUGHT[kind]
    ex = failing(code)
    ex.reconfigure(journal=tmp_path / "runs.db")
    async with ex:
        direct = (await ex.run_tool("t:fails")).error
        more: dict[str, Any] = {"durable": "r"} if durable else {}
        result: Any = await ex.execute_code(source, **settings, **more)
    assert isinstance(direct, ExecutionError)
    assert isinstance(result.error, CodeError), result
    cause = result.error.__cause__
    assert isinstance(cause, ToolExecError)
    assert (type(cause), cause.code) == (type(direct), code)
    assert cause.outcome in (direct.outcome, Outcome.UNKNOWN)  # a guest is not believed that nothing was done
