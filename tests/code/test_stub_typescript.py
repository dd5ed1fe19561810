"""TypeScript declarations, as models read them and as the parser of TypeScript does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tree_sitter
import tree_sitter_typescript
from tests.code.test_stubs import ECHO, HOSTILE, ISSUE, LIST, SEND, odd_tools, tool

from toolexec import Exec, InMemoryIndex, LocalBinding, Tool, ToolAnnotations
from toolexec.code.names import ToolNames
from toolexec.code.stubs import stub_of, stubs_in, typescript_stubs

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_typescript.language_typescript()))
LOOP = {"type": "object", "properties": {"value": {"type": "string"}, "next": {"$ref": "#"}}, "required": ["value"]}


def nodes(source: str) -> Iterator[tree_sitter.Node]:
    """Give all parts of a program, which has no mistake."""
    tree = PARSER.parse(source.encode())
    assert not tree.root_node.has_error, source
    pending = [tree.root_node]
    while pending:
        node = pending.pop()
        pending += node.children
        yield node


def kinds(source: str) -> set[str]:
    """Return what the statements of a program are, and what is declared in them."""
    return {node.type for node in nodes(source)}


def returned(schema: Any) -> str:
    """Return the type of the result of a tool with this output."""
    shown = stub_of(Tool(name="t", input_schema={"properties": {}}, output_schema=schema), language="js")
    list(nodes(shown))
    return shown.rpartition("): Promise<")[2].partition(">;")[0]


def test_one_tool() -> None:
    """The declaration of one tool has the types it needs, its arguments as one object, and what it does."""
    assert stub_of(ISSUE, language="typescript") == (
        "interface CreateIssueResult {\n"
        "  number: number;\n"
        "  user: string | null;\n"
        "}\n\n"
        "declare const tools: {\n"
        "  github: {\n"
        "    /**\n"
        "     * Creates an issue.\n"
        "     * Destructive.\n"
        "     */\n"
        "    create_issue(args: {\n"
        "      title: string; // at most 200 characters; What it is about.\n"
        "      labels?: string[]; // default []\n"
        '      state?: "open" | "closed";\n'
        "    }): Promise<CreateIssueResult>;\n"
        "  };\n"
        "};\n"
    )


def test_keys_that_are_no_names() -> None:
    """Any key is an argument in JavaScript: words of the language as they are, others in quotes."""
    shown = stub_of(SEND, language="ts")
    assert "from: string; // Who.\n" in shown
    assert '"x-n"?: number;\n' in shown


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["integer", "number", "null"]}, "number | null"),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": {"type": ["string", "null"]}}, "Array<string | null>"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}}, "boolean[][]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "{ [key: string]: number }"),
        ({"enum": ["a", 1, True, None, 2.5]}, '"a" | 1 | true | number | null'),
        ({"enum": [10**30, 3]}, "3 | number"),
        ({"enum": [f"choice {n}" for n in range(100)]}, "string"),
        ({"const": '"*/\u2028'}, '"\\"*/\\u2028"'),
        ({"prefixItems": [{"type": "string"}, {"type": "integer"}]}, "[string, number, ...any[]]"),
        ({"prefixItems": [{"type": "string"}], "items": False}, "[string]"),
        ({"type": "strange"}, "any"),
        (False, "any"),
    ],
)
def test_types(schema: Any, expected: str) -> None:
    """A schema is a type of TypeScript, and `any` where that has none."""
    assert returned(schema) == expected


def test_defaults_are_values_of_javascript() -> None:
    """A default is a value of JavaScript, not of Python."""
    schema = {"properties": {"a": {"default": True}, "b": {"default": None}}}
    shown = stub_of(tool("a:b", schema), language="javascript")
    assert "a?: any; // default true\n" in shown
    assert "b?: any; // default null\n" in shown


def test_a_schema_with_a_loop() -> None:
    """A type refers to itself by its name, an object as well as a list."""
    shown = stub_of(Tool(name="t", namespace="n", input_schema={}, output_schema=LOOP), language="typescript")
    assert "interface TResult {\n  value: string;\n  next?: TResult;\n}" in shown
    lists = {"type": "array", "items": {"$ref": "#"}}
    shown = stub_of(Tool(name="t", input_schema={}, output_schema=lists), language="typescript")
    assert "type TResult = TResult[];" in shown


@pytest.mark.parametrize("language", ["python", "typescript"])
def test_a_schema_that_is_too_long(language: str) -> None:
    """Of 5,000 properties a hundred are declared, in few characters, and the stub says that it was cut."""
    wide = {"properties": {f"p{number}": {"type": "integer", "description": "x" * 60} for number in range(5_000)}}
    shown = stub_of(tool("a:b", wide, output_schema=wide, description="d " * 50_000), language=language)
    assert len(shown) < 32_000
    assert "Shortened: its schema is longer than a stub." in shown
    assert "p99" in shown
    assert "p100" not in shown
    assert "Shortened" not in stub_of(ISSUE, language=language)


@pytest.mark.parametrize(
    "text", [*HOSTILE, "*/ evil(); /*", "// @ts-nocheck", "@ts-ignore", "eslint-disable", "\u202e"]
)
def test_nothing_that_a_tool_says_becomes_code(text: str) -> None:
    """Descriptions, names of arguments, choices, defaults and patterns stay what they are."""
    schema = {
        "description": text,
        "properties": {
            text: {"type": "string", "description": text, "default": text, "pattern": text, "format": text},
            "ok": {"enum": [text], "description": text},
            "in": {"properties": {text: {"const": text, "description": text}}, "title": text},
        },
        "additionalProperties": {"properties": {"k": {"description": text}}},
    }
    hints = ToolAnnotations(title=text)
    one = tool("a:b", schema, output_schema=schema, description=text, title=text, annotations=hints)
    for source in (typescript_stubs([one, tool("a:c-d", schema), tool("a:c.d", schema)]), stub_of(one, language="ts")):
        assert source.replace("\n", "").isprintable()
        found = kinds(source)
        assert not found & {"expression_statement", "call_expression", "import_statement"}
        for node in nodes(source):
            if node.type == "comment":
                said = (node.text or b"").decode().lstrip("/* ")
                assert not said.startswith(("@ts-", "eslint"))


def test_a_module() -> None:
    """All tools in one file, the same in any order, with what `tools` can do besides."""
    text = typescript_stubs([ISSUE, SEND, LIST, ECHO])
    assert text == typescript_stubs([ECHO, LIST, SEND, ISSUE]) == stubs_in("js", [SEND, LIST, ISSUE, ECHO])
    assert "    list(args?: { ids?: number[] }): Promise<string[]>;\n" in text
    assert "  echo(args: { words: string }): Promise<any>;\n" in text
    assert "  run(id: string, args?: { [key: string]: any }): Promise<any>;\n" in text
    assert "  const tools: Tools;\n" in text
    assert {"interface_declaration", "ambient_declaration"} <= kinds(text)
    assert "interface Tools" in typescript_stubs([])


def test_tools_that_only_their_ids_lead_to() -> None:
    """Tools without a name of their own are declared as calls of `run` with the ID; so is one whose name `tools` has itself in JavaScript."""
    index = InMemoryIndex()
    for name in ("a-b", "a_b-", "a-b-"):
        index.register(tool(f"odd:{name}", {"properties": {"x": {"type": "integer"}}}), LocalBinding(f"odd:{name}"))
    shared = [entry.tool for entry in index.tools() if entry.tool.name != "a-b"]
    text = typescript_stubs(shared, names=ToolNames(index))
    assert '  run(id: "odd:a-b-", args?: { x?: number }): Promise<any>;\n' in text
    assert 'run(id: "odd:a-b-"' in stub_of(shared[0], names=ToolNames(index), language="ts")
    text = typescript_stubs([tool("runChain:x")])
    assert '  run(id: "runChain:x"): Promise<any>;\n' in text or 'run(id: "runChain:x", ' in text
    assert "  runChain: {" not in text
    list(nodes(text))


def test_a_namespace_that_is_a_tool_as_well_and_versions() -> None:
    """A namespace that is a tool can be called; of several versions one is declared, and the others are named."""
    text = typescript_stubs([tool("git"), tool("git:log"), tool("git:log", version="1.0.0")])
    assert "  git: {\n    (): Promise<any>;\n    log(): Promise<any>;\n  };\n" in text or "git: {" in text
    assert '// another version: tools.run("git:log:1.0.0", { ... })' in text
    list(nodes(text))


@pytest.mark.full
@pytest.mark.parametrize("start", range(0, 400, 100))
def test_odd_schemas_give_valid_typescript(start: int) -> None:
    """Always the same, and never the end of it."""
    for seed in range(start, start + 100):
        tools = odd_tools(seed)
        text = typescript_stubs(tools)
        assert not PARSER.parse(text.encode()).root_node.has_error, text
        assert text == typescript_stubs(reversed(tools))
        for one in tools:
            shown = stub_of(one, language="typescript")
            assert not PARSER.parse(shown.encode()).root_node.has_error, shown


async def test_a_program_follows_its_declaration() -> None:
    """The call that is declared is the call that runs, in the sandbox for JavaScript."""
    pytest.importorskip("quickjs_rs")
    async with Exec(default_language="javascript") as ex:
        ex.add(_add, "math:add-up")
        shown = stub_of(ex.index.find("math:add-up").tool, language="javascript")  # type: ignore[union-attr]
        assert "  math: {\n" in shown
        assert "add_up(args: { a: number; b: number }): Promise<" in shown
        result = await ex.execute_code("const sum = await tools.math.add_up({ a: 1, b: 2 });\nreturn sum;")
        assert result.value == 3


def _add(a: int, b: int) -> int:
    return a + b
