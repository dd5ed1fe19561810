"""A result that breaks its schema: every face says that the tool ran, and shows the value."""

from __future__ import annotations

import json
import pickle
from contextlib import aclosing
from typing import Any

import pytest

from toolexec import Exec, Step, tool
from toolexec.errors import OutputValidationError

VALUE = {"lines": [1, 2]}


@tool("t:liar", read_only=True)
async def liar() -> int:
    """Promises a number."""
    return VALUE  # type: ignore[return-value]


@pytest.fixture
async def ex() -> Any:
    async with Exec() as ex:
        ex.add(liar)
        yield ex


async def test_a_call(ex: Exec) -> None:
    """The value is in the result and in what it raises; the words say that the tool ran."""
    result = await ex.run_tool("t:liar")
    assert not result.ok
    assert result.value == VALUE
    assert result.to_dict()["value"] == VALUE
    with pytest.raises(OutputValidationError, match="the tool ran") as caught:
        result.raise_for_error()
    assert caught.value.value == VALUE
    assert pickle.loads(pickle.dumps(caught.value)).value == VALUE


async def test_a_stream(ex: Exec) -> None:
    """The last event's error has it."""
    async with aclosing(ex.stream_tool("t:liar")) as events:
        last = [event async for event in events][-1]
    assert isinstance(last.error, OutputValidationError)
    assert last.error.value == VALUE


async def test_a_chain(ex: Exec) -> None:
    """Step and chain have it; a later step is not given it."""
    chain = await ex.run_chain([Step("t:liar")])
    assert isinstance(chain.error, OutputValidationError)
    assert chain.value == chain.steps[0].value == chain.to_dict()["steps"][0]["value"] == VALUE


async def test_code(ex: Exec) -> None:
    """A program catches the error and goes on with the value; the trace has it."""
    program = "try:\n    tools.t.liar()\nexcept ToolError as error:\n    return [error.code, error.value]"
    result = (await ex.execute_code(program)).raise_for_error()
    assert result.value == ["validation_output", VALUE]
    assert result.tool_calls[0].value == VALUE
    assert result.tool_calls[0].to_dict()["structured"] == VALUE


async def test_code_in_chains(ex: Exec) -> None:
    """A chain that a program runs tells as much."""
    result = await ex.execute_code("return tools.run_chain([{'tool_id': 't:liar'}])")
    assert result.tool_calls[0].value == VALUE


async def test_vendors(ex: Exec) -> None:
    """A model that called the tool reads both."""
    call = {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "t__liar", "arguments": "{}"}}],
    }
    (message,) = await ex.handle_openai_tool_calls(call)
    data = json.loads(message["content"])
    assert data["value"] == VALUE
    assert data["error"]["code"] == "validation_output"


async def test_integrations(ex: Exec) -> None:
    """Broken output does not break an Exec in a foreign agent loop, either."""
    from toolexec.integrations.toolset import _run_tool

    answer = await _run_tool(ex, "t:liar", {})  # type: ignore[arg-type]
    assert json.loads(answer.text)["value"] == VALUE


async def test_the_server(ex: Exec) -> None:
    """The server's own tools show it, and so does a tool that is shown directly."""
    from toolexec.server.replies import failure

    result = await ex.run_tool("t:liar")
    assert result.error is not None
    (part,) = failure(result.error, liar.tool.output_schema)["content"]
    data = json.loads(part["text"])
    assert data["value"] == VALUE
    assert data["error"]["code"] == "validation_output"
