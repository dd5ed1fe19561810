"""The written forms are what the vendors' own Python packages take, and what those give is read."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import TypeAdapter

from toolexec.adapter import (
    AnthropicAdapter,
    FormOptions,
    OpenAIAdapter,
)
from toolexec.model import Tool

TOOL = Tool(
    name="find",
    namespace="shop",
    version="1.0",
    title="Find it",
    description="Finds things.",
    tags=["a"],
    input_schema={
        "type": "object",
        "required": ["q", "kind"],
        "properties": {
            "q": {"type": "string", "minLength": 2, "pattern": "^a"},
            "n": {"type": ["integer", "null"], "minimum": 1, "exclusiveMaximum": 501, "default": 10},
            "kind": {"const": "x"},
            "where": {"$ref": "#/$defs/Place"},
            "mode": {"type": ["string", "null"], "enum": ["a", "b", None]},
            "either": {"oneOf": [{"type": "string", "format": "uri"}, {"type": "integer"}]},
            "pos": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "minItems": 2},
            "all": {"allOf": [{"$ref": "#/$defs/Place"}], "description": "merged"},
        },
        "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}}},
    },
    output_schema={"type": "object", "properties": {"a": {"type": "integer"}}},
)


@pytest.mark.parametrize("strict", [True, False])
def test_openai(strict: bool) -> None:
    """Both forms have the types of the package."""
    chat = pytest.importorskip("openai.types.chat")
    responses = pytest.importorskip("openai.types.responses")
    form = OpenAIAdapter().from_tool(TOOL, FormOptions(strict=strict)).form
    TypeAdapter(chat.ChatCompletionToolParam).validate_python(form)
    form = OpenAIAdapter("responses").from_tool(TOOL, FormOptions(strict=strict)).form
    TypeAdapter(responses.FunctionToolParam).validate_python(form)
    assert form["strict"] is strict
    model = responses.FunctionTool.model_validate(form)
    assert OpenAIAdapter("responses").to_tool(model).input_schema.to_json() == form["parameters"]


def test_openai_finds_nothing_to_mend() -> None:
    """The package's own strict conversion leaves a strict schema as it is."""
    module: Any = pytest.importorskip("openai.lib._pydantic")
    schema = OpenAIAdapter().from_tool(TOOL, FormOptions(strict=True)).form["function"]["parameters"]
    assert module._ensure_strict_json_schema(copy.deepcopy(schema), path=(), root=schema) == schema


@pytest.mark.full
@pytest.mark.parametrize("strict", [True, False])
def test_anthropic(strict: bool) -> None:
    """The form has the type of the package."""
    types = pytest.importorskip("anthropic.types")
    done = AnthropicAdapter().from_tool(TOOL, FormOptions(strict=strict))
    TypeAdapter(types.ToolParam).validate_python(done.form)
    assert done.strict is strict
