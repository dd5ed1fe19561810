"""Run in the environment of `environment.py`: google-genai takes what is written, and what it gives is read."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from google.genai import types

sys.path.insert(0, str(Path(__file__).parent))
from tools import TOOLS  # pyright: ignore[reportMissingImports]

from toolexec import Exec
from toolexec.adapter import GeminiAdapter
from toolexec.adapter.messages import gemini_calls
from toolexec.model import Tool


@pytest.mark.parametrize("json_schema", [True, False])
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_declarations(tool: Tool, json_schema: bool) -> None:
    """The package has a closed set of fields: each form is one of its tools, and is read from one."""
    form = GeminiAdapter(json_schema=json_schema).from_tool(tool).form
    model = types.Tool.model_validate(form)
    assert model.function_declarations is not None
    assert GeminiAdapter().to_tool(model).description == tool.description


def _shop() -> Exec:
    """Two tools, one of them without arguments."""
    ex = Exec()
    ex.add(lambda: "12:00", "clock")
    ex.add(lambda item: {"item": item, "euros": 3}, "price")
    return ex


def _responses() -> list[Any]:
    """A response with a call that has arguments and one that has none, in every shape that the package gives it."""
    calls = [types.FunctionCall(name="price", args={"item": "tea"}), types.FunctionCall(name="clock")]
    content = types.Content(role="model", parts=[types.Part(text="hm"), *(types.Part(function_call=c) for c in calls)])
    response = types.GenerateContentResponse(candidates=[types.Candidate(content=content)])
    return [
        response,
        content,
        content.parts,
        response.function_calls,
        response.model_dump(),
        response.model_dump(exclude_none=True, by_alias=True),
        json.loads(response.model_dump_json()),
        json.loads(response.model_dump_json(exclude_none=True)),
    ]


@pytest.mark.parametrize("message", _responses(), ids=range(8))
def test_calls(message: Any) -> None:
    """A call without arguments is a call: the package gives None for them."""
    assert [(call.name, call.args) for call in gemini_calls(message)] == [("price", {"item": "tea"}), ("clock", {})]

    async def answers() -> list[dict[str, Any]]:
        async with _shop() as ex:
            return await ex.handle_gemini_function_calls(message)

    parts = [types.Part.model_validate(answer) for answer in asyncio.run(answers())]
    outputs = [part.function_response.response for part in parts if part.function_response is not None]
    assert outputs == [{"output": {"item": "tea", "euros": 3}}, {"output": "12:00"}]
