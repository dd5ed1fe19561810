"""One line for each tool, short and complete."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec import Tool
from toolexec.code import compact
from toolexec.code.compact import compact_stub, first_sentence
from toolexec.code.stub_dialects import PYTHON
from toolexec.model.tool import ToolAnnotations


def stub(properties: dict[str, Any] | None = None, required: list[str] | None = None, **more: Any) -> str:
    """Return the line for a tool `n:f` with these arguments."""
    schema = {"type": "object", "properties": properties or {}, "required": required or []}
    return compact_stub(Tool(**({"name": "f", "namespace": "n", "input_schema": schema} | more)))


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "string"}, "a: str"),
        ({"type": ["integer", "null"]}, "a: int|None"),
        ({"enum": ["low", "high"]}, 'a: "low"|"high"'),
        ({"type": "string", "enum": [f"choice {n}" for n in range(30)]}, "a: str"),
        ({"type": "array", "items": {"type": "number"}}, "a: list[float]"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "a: dict[str, bool]"),
        ({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}, "a: {x: int}"),
        ({"type": "object", "properties": {"x": {"type": "integer"}}}, "a: {x?: int}"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "a: str|None"),
        ({"$ref": "https://elsewhere.example/schema"}, "a: any"),
        ({}, "a: any"),
    ],
)
def test_types(schema: dict[str, Any], shown: str) -> None:
    """Each type has a short name that Python knows or a reader of Python."""
    from toolexec.code.compact import _Types

    document = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    assert _Types(document, PYTHON).arguments() == shown


def test_optional_arguments_come_last() -> None:
    """A default stands for the type; without one there is a question mark."""
    properties = {
        "limit": {"type": "integer", "default": 10},
        "kind": {"enum": ["a", "b"], "default": "a"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "id": {"type": "string"},
        "deep": {"type": "boolean", "default": False},
    }
    assert stub(properties, ["id"]) == 'n:f(id: str, limit=10, kind: "a"|"b"="a", note?: str, deep=False)'


def test_results_of_any_type_are_not_called_strings() -> None:
    """A field whose type is not described, or too deep to be shown, says so."""
    deep = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"$ref": "#"}}}, "c": {}}}
    assert stub(output_schema=deep) == "n:f() -> {a: {b: dict}, c: any}"


def test_headings_and_notes_are_no_part_of_a_sentence() -> None:
    """A mark of a note is left out, a name with one stays."""
    for words, shown in (("# Reads C# code", "Reads C# code"), ("Zip  # gone: x", "Zip gone: x"), ("See #5", "See #5")):
        assert first_sentence(Tool(name="f", description=words, input_schema={"type": "object"})) == shown


def test_results_have_no_word_for_strings() -> None:
    """A field of a result without a type is a string; what is not described is left out."""
    rows = {"type": "array", "items": {"$ref": "#/$defs/Row"}}
    row = {"type": "object", "properties": {"id": {"type": "string"}, "size": {"type": "integer"}}}
    assert stub(output_schema=rows | {"$defs": {"Row": row}}) == "n:f() -> list[{id, size: int}]"
    assert stub(output_schema={"type": "string"}) == "n:f() -> str"
    assert stub(output_schema={}) == "n:f()"


def test_a_schema_that_refers_to_itself_ends() -> None:
    """A cycle is followed a few levels deep."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
    line = stub(output_schema={"$ref": "#/$defs/Node", "$defs": {"Node": node}})
    assert len(line) < 200
    assert "{next" in line


def test_a_line_has_a_bound() -> None:
    """Of 5,000 properties, 100 KB of description and long names there is a beginning, and it says that it was cut."""
    properties = {f"property_{number}": {"type": "string"} for number in range(5000)}
    line = stub(
        properties,
        ["property_4999"],
        description="word " * 20_000,
        output_schema={"properties": properties, "type": "object"},
    )
    assert len(line) < 900
    assert line.startswith("n:f(property_4999: str, property_0?: str")
    assert "more)" in line
    assert line.endswith("…")
    assert len(stub({"x" * 5000: {"type": "string"}})) < 600


def test_long_schemas_are_not_remembered() -> None:
    """Keep nothing of tools that a backend could make new and large all the time; short ones are read once."""
    before = compact._remembered.cache_info()
    stub({"a": {"type": "string", "description": "x" * 20_000}})
    assert compact._remembered.cache_info() == before
    for _ in range(2):
        stub({"only here": {"type": "string"}})
    after = compact._remembered.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 1)


def test_names_of_strangers_stay_in_their_line() -> None:
    """Line breaks and escapes of names and descriptions are shown as such."""
    line = stub({"a\nb": {"enum": ["x\x1b[31m"]}}, description="One\nline\x00.")
    assert "\n" not in line
    assert "\x1b" not in line
    assert "\x00" not in line


@pytest.mark.parametrize(
    ("name", "description", "sentence"),
    [
        ("list_events", "List the events.", ""),
        ("list_events", "List all events of a day. Slow.", "List all events of a day."),
        ("get", "", ""),
        ("get", "\u67e5\u627e\u53d1\u7968\u3002\u5f88\u6162\u3002", "\u67e5\u627e\u53d1\u7968\u3002"),
        ("get", "\u0646\u062a\u064a\u062c\u0629", "\u0646\u062a\u064a\u062c\u0629"),
        ("recup", "R\u00e9cup\u00e8re", "R\u00e9cup\u00e8re"),
    ],
)
def test_what_the_name_says_is_not_repeated(name: str, description: str, sentence: str) -> None:
    """The first sentence is left out where it adds nothing; one of another script adds something."""
    assert first_sentence(Tool(name=name, description=description, input_schema={"type": "object"})) == sentence


def test_the_path_of_code() -> None:
    """Code calls a tool by its attributes, and is warned of what destroys."""
    tool = Tool(
        name="rm",
        namespace="fs",
        description="Erases.",
        input_schema={"type": "object"},
        annotations=ToolAnnotations(destructive=True),
    )
    assert compact_stub(tool, ("tools", "fs", "rm")) == "tools.fs.rm(**any)  # Erases. Destructive."


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "string"}, "a: string"),
        ({"type": ["integer", "number", "null"]}, "a: number|null"),
        ({"enum": ["low", "high"]}, 'a: "low"|"high"'),
        ({"type": "array", "items": {"type": "number"}}, "a: number[]"),
        ({"type": "array", "items": {"type": ["string", "null"]}}, "a: (string|null)[]"),
        (
            {"type": "array", "items": {"type": "object", "properties": {"x": {"enum": ["|", "}"]}}}},
            'a: {x?: "|"|"}"}[]',
        ),
        ({"type": "array"}, "a: any[]"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "a: Record<string, boolean>"),
        ({"type": "object"}, "a: object"),
        ({}, "a: any"),
    ],
)
def test_types_of_typescript(schema: dict[str, Any], shown: str) -> None:
    """For JavaScript, each type is one of TypeScript, and all arguments are one object."""
    tool = Tool(name="f", input_schema={"type": "object", "properties": {"a": schema}, "required": ["a"]})
    assert compact_stub(tool, ("tools", "f"), language="js") == f"tools.f({{{shown}}})"


def test_a_line_for_javascript() -> None:
    """Defaults are values of JavaScript, comments its comments, and keys of any kind are in quotes."""
    properties = {
        "from": {"type": "string"},
        "x-n": {"type": "integer"},
        "deep": {"default": False},
        "kind": {"enum": ["a"], "default": "a"},
    }
    tool = Tool(
        name="f",
        namespace="n",
        description="Sends it.",
        input_schema={"type": "object", "properties": properties, "required": ["from", "x-n"]},
        output_schema={"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}},
        annotations=ToolAnnotations(destructive=True),
    )
    assert compact_stub(tool, language="typescript") == (
        'n:f({from: string, "x-n": number, deep?=false, kind?: "a"="a"}) -> {id, n: number}  // Sends it. Destructive.'
    )
    assert compact_stub(Tool(name="f", input_schema={"type": "object"}), language="ts") == "f({…})"


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_hostile_schemas_stay_a_line(language: str) -> None:
    """Descriptions of 100 KB, 5,000 properties, loops and results that do not end: a line stays short, says what was
    cut, and stays a line."""
    loop = {"type": "object", "properties": {"again": {"$ref": "#"}, "list": {"type": "array", "items": {"$ref": "#"}}}}
    wide = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(5_000)}}
    for schema in (loop, wide):
        tool = Tool(name="f", description="word\n" * 20_000, input_schema=schema, output_schema=schema)
        line = compact_stub(tool, language=language)
        assert len(line) < 900
        assert len(line.splitlines()) == 1
    assert "more" in line
    assert "…" in line
