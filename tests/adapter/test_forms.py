"""Each vendor's form: what is read, what is written, and what goes through and comes back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from toolexec.adapter import (
    META_KEY,
    AnthropicAdapter,
    FormOptions,
    GeminiAdapter,
    LossWarning,
    MCPAdapter,
    NameMap,
    OpenAIAdapter,
    default_adapters,
)
from toolexec.errors import ConversionError
from toolexec.model import Icon, Tool, ToolAnnotations

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"q": {"type": "string", "pattern": "^a"}, "n": {"type": "integer", "minimum": 0, "maximum": 1000}},
    "required": ["q"],
    "additionalProperties": False,
}
FULL = Tool(
    name="find",
    namespace="shop",
    version="1.0",
    title="Find it",
    description="Finds things.",
    input_schema=SCHEMA,
    output_schema={"type": "object", "properties": {"a": {"type": "integer"}}},
    annotations=ToolAnnotations(read_only=True),
    icons=[Icon(src="https://example.com/i.png")],
    tags=["things"],
    meta={"category": "search", "a/b": 1},
)


def told(warnings: tuple[LossWarning, ...]) -> list[str]:
    """The warnings, as path and action."""
    return [f"{w.path} {w.action}" for w in warnings]


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_every_lost_field_is_told(name: str) -> None:
    """In a fixed order, with the tool's ID."""
    done = default_adapters().get(name).from_tool(FULL)
    assert told(done.warnings) == [
        "tool:/namespace rewritten",
        "tool:/version rewritten",
        "tool:/title dropped",
        "tool:/annotations dropped",
        "tool:/outputSchema dropped",
        "tool:/icons dropped",
        "tool:/tags dropped",
        "tool:/_meta/a~1b dropped",
        "tool:/_meta/category dropped",
    ]
    assert {w.tool_id for w in done.warnings} == {"shop:find:1.0"}
    assert done.name == "shop__find__1_0"
    text = str(done.warnings[0])
    assert "namespace" in text
    assert "toolexec → " + name in text
    assert done.warnings[0].to_dict() == {
        "tool": "shop:find:1.0",
        "feature": "namespace",
        "path": "tool:/namespace",
        "action": "rewritten",
        "from": "toolexec",
        "to": name,
        "note": "in the name shop__find__1_0",
    }


class TestOpenAI:
    """Chat Completions and Responses."""

    def test_chat(self) -> None:
        """A function in an entry; `strict` only where it was asked for."""
        form = OpenAIAdapter().from_tool(FULL).form
        function = {"name": "shop__find__1_0", "description": "Finds things.", "parameters": SCHEMA}
        assert form == {"type": "function", "function": function}

    def test_responses(self) -> None:
        """The entry itself, with the output schema, and never strict by omission."""
        done = OpenAIAdapter("responses").from_tool(FULL)
        assert done.form["strict"] is False
        assert done.form["output_schema"] == {"type": "object", "properties": {"a": {"type": "integer"}}}
        assert "tool:/outputSchema dropped" not in told(done.warnings)
        back = OpenAIAdapter("responses").to_tool(done.form)
        assert back.output_schema == FULL.output_schema
        assert back.input_schema == FULL.input_schema

    @pytest.mark.parametrize("api", ["chat", "responses"])
    def test_both_read_both(self, api: Any) -> None:
        """Both readers accept both forms, and a bare function."""
        function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
        for form in ({"type": "function", "function": function}, {"type": "function", **function}, function):
            tool = OpenAIAdapter(api).to_tool(form)
            assert (tool.id, tool.description, tool.input_schema.to_json()) == ("f", "d", {"type": "object"})

    def test_without_parameters(self) -> None:
        """A tool without parameters takes an empty object."""
        tool = OpenAIAdapter().to_tool({"name": "now", "description": None})
        assert tool.description == ""
        assert OpenAIAdapter().from_tool(tool).form["function"]["parameters"] == {"type": "object", "properties": {}}

    @pytest.mark.parametrize("strict", [True, False])
    def test_strict_comes_back(self, strict: bool) -> None:
        """The strict flag comes back, set to true or to false."""
        schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
        form = {"type": "function", "function": {"name": "f", "parameters": schema, "strict": strict}}
        done = OpenAIAdapter().from_tool(OpenAIAdapter().to_tool(form))
        assert done.form == form
        assert done.strict is strict

    def test_what_only_responses_have(self) -> None:
        """A field that only the Responses API has survives a tool, and is reported missing in Chat Completions."""
        form = {
            "type": "function",
            "name": "f",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
            "defer_loading": True,
            "allowed_callers": ["direct", "programmatic"],
        }
        tool = OpenAIAdapter("responses").to_tool(form)
        assert OpenAIAdapter("responses").from_tool(tool).form == form
        chat = OpenAIAdapter().from_tool(tool)
        assert told(chat.warnings) == ["tool:/openai/defer_loading dropped", "tool:/openai/allowed_callers dropped"]
        other = AnthropicAdapter().from_tool(tool)
        assert "tool:/openai/defer_loading dropped" in told(other.warnings)

    @pytest.mark.parametrize(
        "form",
        [
            {"type": "web_search"},
            {"type": "function", "function": 5},
            {"name": "f", "parameters": {"$ref": "http://x"}},
        ],
    )
    def test_not_a_function(self, form: Any) -> None:
        """Other tools of the vendor, and schemas that lead outside, are refused."""
        with pytest.raises(ConversionError, match=r"^openai to_tool: "):
            OpenAIAdapter().to_tool(form)

    def test_a_long_description_is_cut(self) -> None:
        """At what the API takes, and that is told."""
        done = OpenAIAdapter().from_tool(FULL.replace(description="x" * 2000))
        assert len(done.form["function"]["description"]) == 1024
        assert "tool:/description loosened" in told(done.warnings)

    @pytest.mark.parametrize(
        ("parts", "expected"),
        [
            ({"description": "", "meta": {"summary": "In short."}}, "In short."),
            ({"description": "", "meta": None}, "Find it"),
            ({"description": "", "meta": None, "title": ""}, None),
        ],
    )
    def test_what_stands_in_for_a_description(self, parts: dict[str, Any], expected: str | None) -> None:
        """The summary, else the title, else nothing."""
        form = OpenAIAdapter().from_tool(FULL.replace(**parts)).form
        assert form["function"].get("description") == expected


class TestAnthropic:
    """Client tools."""

    FORM: dict[str, Any] = {
        "name": "get_weather",
        "description": "Tells the weather.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
        "input_examples": [{"city": "Bern"}, {"city": "Köln"}],
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
        "allowed_callers": ["direct"],
        "strict": False,
    }

    def test_everything_comes_back(self) -> None:
        """Fields of its own are kept in the meta; the examples are the tool's examples, too."""
        before = copy.deepcopy(self.FORM)
        tool = AnthropicAdapter().to_tool(self.FORM)
        assert before == self.FORM
        assert tool.meta["examples"] == ['{"city": "Bern"}', '{"city": "Köln"}']
        assert set(tool.meta[META_KEY]["anthropic"]) == set(self.FORM) - {"name", "description", "input_schema"}
        done = AnthropicAdapter().from_tool(tool)
        assert done.form == self.FORM
        assert done.warnings == ()

    def test_they_are_missed_elsewhere(self) -> None:
        """Each with a warning of its own."""
        tool = AnthropicAdapter().to_tool(self.FORM)
        assert told(OpenAIAdapter().from_tool(tool).warnings) == [
            "tool:/_meta/examples dropped",
            "tool:/anthropic/allowed_callers dropped",
            "tool:/anthropic/cache_control dropped",
            "tool:/anthropic/input_examples dropped",
            "tool:/anthropic/strict dropped",
        ]

    def test_a_deferred_tool_is_not_cached(self) -> None:
        """The API takes only one of the two."""
        done = AnthropicAdapter().from_tool(AnthropicAdapter().to_tool({**self.FORM, "defer_loading": True}))
        assert "cache_control" not in done.form
        assert told(done.warnings) == ["tool:/anthropic/cache_control dropped"]

    def test_code_cannot_call_strict_tools(self) -> None:
        """A tool that code may call is not strict."""
        tool = AnthropicAdapter().to_tool({**self.FORM, "allowed_callers": ["code_execution_20260120"]})
        done = AnthropicAdapter().from_tool(tool, FormOptions(strict=True))
        assert done.form["strict"] is False
        assert told(done.warnings) == ["tool:/strict dropped"]

    def test_strict_closes_objects(self) -> None:
        """Strict mode closes objects and leaves optional properties optional."""
        done = AnthropicAdapter().from_tool(AnthropicAdapter().to_tool(self.FORM), FormOptions(strict=True))
        assert done.strict
        assert done.form["strict"] is True
        schema = {**self.FORM["input_schema"], "additionalProperties": False, "required": []}
        assert done.form["input_schema"] == schema

    def test_tools_of_the_vendor_have_no_schema(self) -> None:
        """Refuses a provider's own tools, which have no schema."""
        with pytest.raises(ConversionError, match="has no schema of its own"):
            AnthropicAdapter().to_tool({"type": "bash_20250124", "name": "bash"})
        assert AnthropicAdapter().to_tool({"type": "custom", "name": "x"}).input_schema.to_json() == {"type": "object"}

    def test_names_of_properties_keep_to_the_rule(self) -> None:
        """Those at the top get another name, which the answer tells; those further in go."""
        schema = {
            "type": "object",
            "properties": {
                "$filter": {"type": "string"},
                "_filter": {"type": "string"},
                "in": {"type": "object", "properties": {"a b": {"type": "integer"}, "c": {}}, "required": ["a b", "c"]},
            },
            "required": ["$filter", "in"],
        }
        done = AnthropicAdapter().from_tool(Tool(name="odata", input_schema=schema))
        assert done.renamed == {"_filter_2": "$filter"}
        assert done.form["input_schema"]["required"] == ["_filter_2", "in"]
        assert done.form["input_schema"]["properties"]["in"] == {
            "type": "object",
            "properties": {"c": {}},
            "required": ["c"],
        }
        assert told(done.warnings) == [
            "input:/properties/$filter rewritten",
            "input:/properties/in/properties/a b dropped",
        ]


class TestGemini:
    """Function declarations."""

    def test_one_declaration(self) -> None:
        """Within a tool, with the response."""
        form = GeminiAdapter().from_tool(FULL).form
        (declaration,) = form["functionDeclarations"]
        assert declaration["name"] == "shop__find__1_0"
        assert declaration["parameters"] == {key: SCHEMA[key] for key in ("type", "properties", "required")}
        assert declaration["response"] == {"type": "object", "properties": {"a": {"type": "integer"}}}

    def test_as_json_schema(self) -> None:
        """In the fields for that."""
        (declaration,) = GeminiAdapter(json_schema=True).from_tool(FULL).form["functionDeclarations"]
        assert declaration["parametersJsonSchema"]["additionalProperties"] is False
        assert declaration["parametersJsonSchema"]["properties"]["q"] == {
            "type": "string",
            "description": "(matches the pattern ^a)",
        }
        assert "parameters" not in declaration
        assert GeminiAdapter().to_tool(declaration).output_schema == FULL.output_schema

    def test_without_parameters(self) -> None:
        """There is no schema: the API refuses an object without properties."""
        form = GeminiAdapter().from_tool(Tool(name="2now", input_schema={"type": "object"})).form
        assert form == {"functionDeclarations": [{"name": "_2now"}]}
        assert GeminiAdapter().to_tool(form).input_schema.to_json() == {"type": "object"}

    def test_reading_its_words(self) -> None:
        """Types in capitals, null as a flag, long numbers as text, in both spellings."""
        declaration = {
            "name": "a.b:c",
            "behavior": "NON_BLOCKING",
            "parameters": {
                "type": "OBJECT",
                "properties": {
                    "s": {"type": "STRING", "nullable": True, "max_length": "5", "enum": ["a"], "example": "a"},
                    "i": {"type": "INTEGER", "format": "enum", "enum": ["1", "2"]},
                    "l": {"type": "ARRAY", "items": {"any_of": [{"type": "NUMBER"}, {"type": "TYPE_UNSPECIFIED"}]}},
                },
            },
        }
        for form in ({"functionDeclarations": [declaration]}, {"function_declarations": [declaration]}, declaration):
            tool = GeminiAdapter().to_tool(form)
            assert tool.input_schema.to_json()["properties"] == {
                "s": {"type": ["string", "null"], "maxLength": 5, "enum": ["a", None], "examples": ["a"]},
                "i": {"type": "integer", "enum": [1, 2]},
                "l": {"type": "array", "items": {"anyOf": [{"type": "number"}, {}]}},
            }
        assert GeminiAdapter().from_tool(tool).form["functionDeclarations"][0]["behavior"] == "NON_BLOCKING"

    @pytest.mark.parametrize(
        "form",
        [
            {"functionDeclarations": []},
            {"functionDeclarations": [{"name": "a"}, {"name": "b"}]},
            {"functionDeclarations": "x"},
            {"name": "a", "parameters": {"properties": {"i": {"format": "enum", "type": "integer", "enum": ["x"]}}}},
        ],
    )
    def test_not_one_declaration(self, form: Any) -> None:
        """Several are to be converted one by one."""
        with pytest.raises(ConversionError, match=r"^gemini to_tool: "):
            GeminiAdapter().to_tool(form)

    def test_names_may_be_ids(self) -> None:
        """Google allows colons."""
        assert GeminiAdapter().to_tool({"name": "shop:find"}).namespace == "shop"

    def test_it_knows_no_strict_tools(self) -> None:
        """Reports that Gemini has no strict tools."""
        done = GeminiAdapter().from_tool(FULL, FormOptions(strict=True))
        assert not done.strict
        assert "tool:/strict dropped" in told(done.warnings)


class TestMCP:
    """MCP's own form."""

    def test_nothing_is_lost(self) -> None:
        """A field without an equal in MCP goes into the meta and comes back out of it."""
        done = MCPAdapter().from_tool(FULL)
        assert done.warnings == ()
        assert done.form["name"] == "find"
        assert done.form["_meta"]["category"] == "search"
        assert MCPAdapter().to_tool(done.form) == FULL
        assert MCPAdapter().to_tool(FULL) is FULL

    def test_another_name(self) -> None:
        """Does not change which tool it is."""
        done = MCPAdapter().from_tool(FULL, FormOptions(name="shop__find", strict=True))
        assert done.form["name"] == "shop__find"
        assert MCPAdapter().to_tool(done.form) == FULL
        assert told(done.warnings) == ["tool:/strict dropped"]

    def test_the_source_is_not_changed(self) -> None:
        """Neither its meta nor its schemas."""
        form = {"name": "t", "inputSchema": {"type": "object"}, "_meta": {"x": {"y": 1}}}
        before = copy.deepcopy(form)
        done = MCPAdapter().from_tool(MCPAdapter().to_tool(form).replace(tags=["a"]))
        done.form["_meta"]["x"]["y"] = 2
        done.form["inputSchema"]["type"] = "array"
        assert form == before
        assert MCPAdapter().from_tool(MCPAdapter().to_tool(form)).form == before

    def test_an_output_that_is_no_object(self) -> None:
        """Clients refuse such a schema; it waits in the meta."""
        tool = FULL.replace(output_schema={"type": "string"})
        done = MCPAdapter().from_tool(tool)
        assert "outputSchema" not in done.form
        assert told(done.warnings) == ["tool:/outputSchema rewritten"]
        assert MCPAdapter().to_tool(done.form) == tool

    def test_schemas_may_be_text(self) -> None:
        """As everywhere else here; what is no schema is an error."""
        assert MCPAdapter().to_tool({"name": "t", "inputSchema": '{"type": "object"}'}).input_schema.to_json()
        for schema in ("no", None, 5, '{"a": NaN}'):
            with pytest.raises(ConversionError, match=r"^mcp to_tool: "):
                MCPAdapter().to_tool({"name": "t", "inputSchema": schema})

    def test_what_other_forms_keep_goes_along(self) -> None:
        """From Anthropic through MCP and back."""
        form = TestAnthropic.FORM
        found = default_adapters()
        over = found.convert(form, "anthropic", "mcp").form
        assert found.convert(over, "mcp", "anthropic").form == form

    def test_names_can_be_given(self) -> None:
        """A server that lists exported tools under their vendor names."""
        names = NameMap(["shop:find"])
        tool = MCPAdapter().to_tool({"name": "shop__find", "inputSchema": {}}, names=names)
        assert tool.id == "shop:find"


@pytest.mark.parametrize("stored", [5, {"anthropic": 5}, {"anthropic": {"strict": "x", "allowed_callers": 3}}, []])
@pytest.mark.parametrize("name", ["openai", "openai-responses", "anthropic", "gemini", "mcp", "a2a"])
def test_a_hostile_meta(name: str, stored: Any) -> None:
    """Foreign values under the adapters' own keys break nothing."""
    tool = FULL.replace(meta={META_KEY: stored})
    assert default_adapters().get(name).from_tool(tool).form


def test_objects_of_a_package() -> None:
    """Anything with `model_dump` is read."""

    class Model:
        def model_dump(self, **options: Any) -> dict[str, Any]:
            assert options["by_alias"]
            return {"name": "f", "input_schema": {"type": "object"}}

    assert AnthropicAdapter().to_tool(Model()).id == "f"


def test_a_form_has_bounds() -> None:
    """Endless descriptions are cut."""
    with pytest.raises(ConversionError, match="is the most"):
        AnthropicAdapter().to_tool({"name": "f", "input_schema": {}, "x": "y" * (5 << 20)})
