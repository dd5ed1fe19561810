"""The written forms are what the vendors' own Python packages take, and what those give is read."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import TypeAdapter

from toolexec.adapter import (
    AnthropicAdapter,
    FormOptions,
    GeminiAdapter,
    OpenAIAdapter,
    ProviderCard,
    ProviderInterface,
    card_to_provider,
    default_adapters,
    provider_to_card,
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
    """What makes a schema strict in the package leaves a strict one as it is."""
    module: Any = pytest.importorskip("openai.lib._pydantic")
    schema = OpenAIAdapter().from_tool(TOOL, FormOptions(strict=True)).form["function"]["parameters"]
    assert module._ensure_strict_json_schema(copy.deepcopy(schema), path=(), root=schema) == schema


@pytest.mark.parametrize("strict", [True, False])
def test_anthropic(strict: bool) -> None:
    """The form has the type of the package."""
    types = pytest.importorskip("anthropic.types")
    done = AnthropicAdapter().from_tool(TOOL, FormOptions(strict=strict))
    TypeAdapter(types.ToolParam).validate_python(done.form)
    assert done.strict is strict


@pytest.mark.parametrize("json_schema", [True, False])
def test_gemini(json_schema: bool) -> None:
    """The form is read by the package, which has a closed set of fields, and its objects are read here."""
    types = pytest.importorskip("google.genai.types")
    form = GeminiAdapter(json_schema=json_schema).from_tool(TOOL).form
    model = types.Tool.model_validate(form)
    back = GeminiAdapter().to_tool(model)
    assert back.id == "shop__find__1_0"
    assert back.input_schema.to_json()["required"] == ["q", "kind"]
    if not json_schema:
        assert back.input_schema.to_json()["properties"]["n"]["type"] == ["integer", "null"]


def test_a2a() -> None:
    """A card and a skill are messages of the package, and are read from them."""
    types = pytest.importorskip("a2a.types")
    json_format = pytest.importorskip("google.protobuf.json_format")
    card = ProviderCard(
        name="p",
        description="d",
        version="1",
        skills=(TOOL,),
        interfaces=(ProviderInterface(url="https://a.example"),),
        capabilities={"streaming": True},
        security_schemes={"k": {"apiKeySecurityScheme": {"location": "header", "name": "X"}}},
        security_requirements=[{"k": ["a"]}],
        organization="o",
        organization_url="https://o.example",
    )
    written, _ = provider_to_card(card)
    message = json_format.ParseDict(written, types.AgentCard())
    assert card_to_provider(message) == card_to_provider(written)
    skill = default_adapters().get("a2a").from_tool(TOOL).form
    assert default_adapters().get("a2a").to_tool(json_format.ParseDict(skill, types.AgentSkill())).id == TOOL.id
