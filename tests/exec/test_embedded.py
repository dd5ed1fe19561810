"""The engine for executors that are built by hand."""

from __future__ import annotations

import pytest
from tests.testbed import testbed

from toolexec.code import ExecuteRequest, Executor
from toolexec.errors import ConfigurationError
from toolexec.exec import EmbeddedEngine
from toolexec.testing.gateway_testbed import GatewayTestbed

__all__ = ["testbed"]


async def test_python_runs_in_the_embedded_sandbox(testbed: GatewayTestbed) -> None:
    """A runner and the engine are all that a program with tools needs."""
    made = Executor(testbed.runner, EmbeddedEngine())
    code = "found = tools.search_tools('', 100)\nreturn [len(found), tools.suite.add(a=5, b=3)]"
    result = await made.execute(ExecuteRequest(code=code, timeout=60))
    assert result.raise_for_error().value == [len(list(testbed.index.tools())), 8]
    assert [call.tool_id for call in result.tool_calls] == ["suite:add"]
    assert result.backend is not None
    assert result.backend.kind == "wasm"


@pytest.mark.parametrize("language", ["workflow", "dsl"])
async def test_workflows_run_in_this_process(testbed: GatewayTestbed, language: str) -> None:
    """The workflow language needs no sandbox."""
    code = 'x := run("suite:add", {a: 5, b: 3})\nprint(x)\nreturn x + 1'
    result = await Executor(testbed.runner, EmbeddedEngine()).execute(ExecuteRequest(code=code, language=language))
    assert (result.raise_for_error().value, result.stdout, result.language) == (9, "8\n", "workflow")
    assert [call.tool_id for call in result.tool_calls] == ["suite:add"]


@pytest.mark.parametrize("language", ["go", "golang"])
async def test_other_languages_are_refused(testbed: GatewayTestbed, language: str) -> None:
    """The refusal names the engine to give instead."""
    made = Executor(testbed.runner, EmbeddedEngine())
    with pytest.raises(ConfigurationError, match=r"runs python and workflow only, not go; .*Runtime\("):
        await made.execute(ExecuteRequest(code="return 1", language=language))
