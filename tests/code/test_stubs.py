"""Typed Python stubs, as models read them and as a type checker does."""

from __future__ import annotations

import ast
import io
import itertools
import json
import random
import re
import subprocess
import sys
import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.servers import require_npm_server

from toolexec import Exec, InMemoryIndex, LocalBinding, Tool, ToolAnnotations
from toolexec.code.names import ToolNames
from toolexec.code.stubs import python_stubs, stub_of
from toolexec.errors import InvalidSchemaError

PYRIGHT = Path(sys.executable).with_name("pyright")
OPEN = {"type": "object"}
NOTHING: Mapping[str, Any] = {"properties": {}}
ISSUE = Tool(
    name="create_issue",
    namespace="github",
    description="Creates an issue.\n\nMore than anyone wants to know.",
    annotations=ToolAnnotations(destructive=True),
    input_schema={
        "type": "object",
        "properties": {
            "labels": {"type": "array", "items": {"type": "string"}, "default": []},
            "title": {"type": "string", "description": "What it is about.", "maxLength": 200},
            "state": {"enum": ["open", "closed"]},
        },
        "required": ["title"],
    },
    output_schema={
        "type": "object",
        "properties": {"number": {"type": "integer"}, "user": {"type": ["string", "null"]}},
        "required": ["number", "user"],
    },
)
SEND = Tool(
    name="send-mail",
    namespace="my-mail",
    title="Send a mail",
    annotations=ToolAnnotations(read_only=True, destructive=True),
    input_schema={
        "properties": {"from": {"type": "string", "description": "Who."}, "x-n": {"type": "integer"}, "to": True},
        "required": ["from", "to"],
    },
)
LIST = Tool(
    name="list",
    namespace="github",
    input_schema={"properties": {"ids": {"type": "array", "items": {"type": "integer"}}}},
    output_schema={"type": "array", "items": {"type": "string"}},
)
ECHO = Tool(name="echo", input_schema={"properties": {"words": {"type": "string"}}, "required": ["words"]})


def tool(tool_id: str, schema: Any = NOTHING, **more: Any) -> Tool:
    *namespace, name = tool_id.split(":")
    return Tool(name=name, namespace="".join(namespace), input_schema=schema, **more)


def check(directory: Path, stubs: str, program: str = "") -> list[tuple[int, str]]:
    """Return pyright's findings in the program, those in the stubs first (as line 0)."""
    (directory / "__builtins__.pyi").write_text(stubs, encoding="utf-8")
    (directory / "program.py").write_text(program, encoding="utf-8")
    (directory / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard", "pythonVersion": "3.11"}')
    command = [PYRIGHT, "--project", directory, "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=85)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] >= 2
    return [
        (0 if problem["file"].endswith(".pyi") else problem["range"]["start"]["line"] + 1, problem["message"])
        for problem in report["generalDiagnostics"]
        if problem["severity"] == "error"
    ]


with_pyright = pytest.mark.skipif(not PYRIGHT.exists(), reason="pyright is not installed")


def test_one_tool() -> None:
    """The stub of one tool has its call, the types it needs, and its signature."""
    assert stub_of(ISSUE) == (
        "# tools.github.create_issue(title=...)\n\n"
        "class CreateIssueResult(TypedDict):\n"
        "    number: int\n"
        "    user: str | None\n\n"
        "def create_issue(\n"
        "    *,\n"
        "    title: str,  # at most 200 characters\n"
        "    labels: list[str] = ...,  # default []\n"
        '    state: Literal["open", "closed"] = ...,\n'
        ") -> CreateIssueResult:\n"
        '    """Creates an issue.\n'
        "    Destructive.\n\n"
        "    Args:\n"
        "        title: What it is about.\n"
        '    """\n'
    )


def test_arguments_that_are_no_names() -> None:
    """Such arguments travel in a dict, whose type lists them."""
    assert stub_of(SEND) == (
        '# tools.my_mail.send_mail(to=..., **{"from": ...})\n\n'
        'SendMailOthers = TypedDict("SendMailOthers", {\n'
        '    "from": str,  # Who.\n'
        '    "x-n": NotRequired[int],\n'
        "})\n\n"
        "def send_mail(*, to: Any, **others: Unpack[SendMailOthers]) -> Any:\n"
        '    """Send a mail\n'
        "    Read-only. ID: my-mail:send-mail\n\n"
        "    Args:\n"
        '        "from": (pass it in **{"from": ...}, required) Who.\n'
        '        "x-n": (pass it in **{"x-n": ...})\n'
        '    """\n'
    )


@pytest.mark.parametrize(
    ("tool", "stub"),
    [
        (tool("ping"), "# tools.ping()\n\ndef ping() -> Any: ...\n"),
        (tool("a:any", OPEN), "# tools.a.any()\n\ndef any(**others: Any) -> Any: ...\n"),
        (
            tool("a:o", {"properties": {"others": True}, "additionalProperties": {"type": "integer"}}),
            "# tools.a.o()\n\ndef o(*, others: Any = ..., **others_: int) -> Any: ...\n",
        ),
        (LIST, "# tools.github.list()\n\ndef list(*, ids: builtins.list[int] = ...) -> builtins.list[str]: ...\n"),
        (tool("x:run"), "# tools.x.run()\n\ndef run() -> Any: ...\n"),
        (tool("run"), '# tools.run_()\n\ndef run() -> Any:\n    """ID: run"""\n'),
    ],
)
def test_small_tools(tool: Tool, stub: str) -> None:
    """One line where that is enough."""
    assert stub_of(tool) == stub.replace("def run() -> Any:\n", "def run_() -> Any:\n")


def test_awaitable_stubs() -> None:
    """For programs that await their calls."""
    assert (
        stub_of(ECHO, awaitable=True) == "# await tools.echo(words=...)\n\nasync def echo(*, words: str) -> Any: ...\n"
    )
    text = python_stubs([ECHO], awaitable=True)
    assert "    async def echo(self, *, words: str) -> Any: ..." in text
    assert "    async def run(self, tool_id: str" in text


def test_a_tool_that_only_its_id_reaches() -> None:
    """The stub says how."""
    index = InMemoryIndex()
    for tool_id in ("a:do-it", "a:do.it"):
        index.register(tool(tool_id, SEND.input_schema), LocalBinding(tool_id))
    stub = stub_of(index.get("a:do.it").tool, names=ToolNames(index))
    assert stub.startswith('# tools.run("a:do.it", {"to": ..., "from": ...})\n')


def test_a_module() -> None:
    """Namespaces are classes, `tools` has them, the tools without one, and what it can do itself."""
    text = python_stubs([ISSUE, ECHO])
    module = ast.parse(text)
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    assert list(classes) == ["ToolError", "CreateIssueResult", "Github", "Tools"]
    methods = [node.name for node in classes["Tools"].body if isinstance(node, ast.FunctionDef)]
    assert methods == ["echo", "run", "run_chain", "search", "describe", "list_namespaces", "examples", "println"]
    assert "class Tools:\n    github: Github\n" in text
    assert "    def create_issue(\n        self, *,\n        title: str,  # at most 200 characters\n" in text
    assert text.endswith("\n\ntools: Tools\n")
    assert "\nfrom typing import Any, Literal, TypedDict\n" in text


def test_no_tools_at_all() -> None:
    """There are still those things that `tools` can do."""
    text = python_stubs([])
    assert "class Tools:\n    def run(self, tool_id: str, args: dict[str, Any] | None = ...) -> Any:" in text
    compile(text, "stubs", "exec")


@pytest.mark.full
def test_the_order_of_tools_makes_no_difference() -> None:
    """The same tools give the same text."""
    tools = [ISSUE, SEND, LIST, ECHO, tool("a:b", version="1.0.0"), tool("a:b", version="2.0.0")]
    strings = {python_stubs(order) for order in itertools.permutations(tools)}
    assert len(strings) == 1


def test_names_that_are_shared() -> None:
    """The exact name keeps its attribute; the others are told with their IDs, and as comments."""
    text = python_stubs(
        [tool("a:do-it"), tool("a:do.it", OPEN), tool("a:done-x"), tool("a:done_x"), tool("b-1:only-x")]
    )
    told = "    # only by its ID, for the name is another tool's or shared: tools.run"
    assert f'{told}("a:do-it", {{...}})\n    # def do_it(self) -> Any:\n' in text
    assert f'{told}("a:do.it", {{...}})\n    # def do_it(self, **others: Any) -> Any:\n' in text
    assert f'{told}("a:done-x", {{...}})\n' in text
    assert "\n    def done_x(self) -> Any: ...\n" in text
    assert 'class B1:\n    def only_x(self) -> Any:\n        """ID: b-1:only-x"""\n' in text
    compile(text, "stubs", "exec")


def test_a_namespace_with_nothing_but_shared_names() -> None:
    """Its class is empty and valid."""
    text = python_stubs([tool("a:do-it"), tool("a:do.it")])
    assert "class A:\n    ...\n    # only by its ID" in text
    compile(text, "stubs", "exec")


def test_versions() -> None:
    """The highest has the attribute, another one is told with its ID."""
    text = python_stubs([tool("a:b", OPEN, version="1.9.0"), tool("a:b", version="1.10.0")])
    assert '    def b(self) -> Any: ...\n    # another version: tools.run("a:b:1.9.0", {...})\n' in text


def test_some_tools_of_an_index() -> None:
    """Tools outside of the selection still count for the names."""
    index = InMemoryIndex()
    for one in (tool("a:do-it"), tool("a:do.it"), tool("a:b", version="1.0.0"), tool("a:b", version="2.0.0")):
        index.register(one, LocalBinding("x"))
    chosen = [index.get("a:do-it").tool, index.get("a:b:1.0.0").tool]
    assert "    def b(self)" in python_stubs(chosen)
    text = python_stubs(chosen, names=ToolNames(index))
    assert "    # def b(self)" in text
    assert "    # def do_it(self)" in text


def test_a_namespace_that_is_a_tool_as_well() -> None:
    """A namespace that is a tool as well can be called, too."""
    text = python_stubs([tool("git"), tool("git:log")])
    assert "class Git:\n    def __call__(self) -> Any: ...\n    def log(self) -> Any: ...\n" in text
    assert text.count("    git: Git\n") == 1


HOSTILE = [
    '"""',
    '\\"""\nimport os',
    "\\",
    '"',
    "'''",
    "\x00\r\n\x0c",
    "\u2028import os",
    "# type: ignore",
    "\\N{BULLET}",
    "x" * 9_999,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_tool_says_becomes_code(text: str) -> None:
    """Descriptions, names of arguments, choices, defaults and patterns stay what they are."""
    schema = {
        "description": text,
        "properties": {
            text: {"type": "string", "description": text, "default": text, "pattern": text, "format": text},
            "ok": {"enum": [text], "description": text},
            "in": {"properties": {text: {"const": text, "description": text}}, "title": text},
            "ref": {"$ref": "#/$defs/x"},
        },
        "additionalProperties": {"properties": {"k": {"description": text}}},
        "$defs": {"x": {"properties": {"y": True}, "title": text}},
    }
    one = tool(
        "a:b", schema, output_schema=schema, description=text, title=text, annotations=ToolAnnotations(title=text)
    )
    for source in (python_stubs([one, tool("a:c-d", schema), tool("a:c.d", schema)]), stub_of(one)):
        assert source.replace("\n", "").isprintable()
        comments = [
            token.string
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        ]
        assert not [comment for comment in comments if re.search(r"#\s*type:\s*ignore", comment)]
        for node in ast.walk(ast.parse(source)):
            assert not isinstance(node, ast.Import) or node.names[0].name in {"builtins", "typing"}
            assert not isinstance(node, ast.ImportFrom) or node.module == "typing"
            assert not isinstance(node, ast.Call) or ast.unparse(node.func) == "TypedDict"


KEYS = [
    "a",
    "list",
    "from",
    "x-y",
    "self",
    "Any",
    "__x",
    "é",
    "ﬁ",
    "",
    "1",
    "A",
    "a b",
    'q"""\\',
    "\n",
    "str",
    "others",
]
LEAVES: list[Any] = [
    True,
    False,
    {},
    {"type": "string"},
    {"type": "integer", "minimum": 1},
    {"$ref": "#/$defs/A"},
    {"$ref": "#/$defs/B"},
    {"$ref": "#"},
    {"$ref": "#/$defs/none"},
    {"enum": ["a", 1, None, True, 2.5, [], {}]},
    {"const": '"""\n\\'},
    {"type": ["string", "null"], "default": "# type: ignore"},
    {"enum": [10**30, "\u202e"]},
]


def odd_schema(rng: random.Random, depth: int) -> Any:
    """A schema of many parts, hostile ones among them."""
    if depth <= 0 or rng.random() < 0.15:
        return rng.choice(LEAVES)

    def inner() -> Any:
        return odd_schema(rng, depth - 1)

    match rng.randrange(8):
        case 0 | 1:
            schema = {"type": "object", "properties": {key: inner() for key in rng.sample(KEYS, rng.randint(0, 6))}}
            return {**schema, "required": rng.sample(KEYS, 2), "description": rng.choice(HOSTILE)}
        case 2:
            return {"type": "array", "items": inner()}
        case 3:
            return {"prefixItems": [inner() for _ in range(rng.randint(0, 4))], "items": inner(), "maxItems": 2}
        case 4:
            return {"additionalProperties": inner(), "patternProperties": {"x": inner()}}
        case 5:
            return {"type": ["object", "array", "null"], "properties": {"p": inner()}, "items": inner()}
        case _:
            keyword = rng.choice(["anyOf", "oneOf", "allOf"])
            return {keyword: [inner() for _ in range(rng.randint(0, 4))], "properties": {"z": inner()}}


def odd_tools(seed: int) -> list[Tool]:
    """Up to four tools with odd names and schemas; those that no tool may have are left out."""
    rng = random.Random(seed)
    found: dict[str, Tool] = {}
    for name in rng.sample(["do-it", "do_it", "do.it", "list", "import", "Any", "2fa", "run"], 4):
        schemas = [odd_schema(rng, 5) for _ in range(2)]
        extra = {"$defs": {"A": odd_schema(rng, 4), "B": odd_schema(rng, 3)}}
        takes, gives = ({**part, **extra} if isinstance(part, dict) else part for part in schemas)
        namespace = rng.choice(["", "Any", "list", "a-b", "run", "Tools", "do-it"])
        try:
            made = Tool(name=name, namespace=namespace, input_schema=takes, output_schema=gives)
        except InvalidSchemaError:
            continue
        found[made.id] = made
    return list(found.values())


@pytest.mark.full
@pytest.mark.parametrize("start", range(0, 400, 100))
def test_odd_schemas_give_valid_python(start: int) -> None:
    """Always the same, and never the end of it."""
    count = 0
    for seed in range(start, start + 100):
        tools = odd_tools(seed)
        count += len(tools)
        text = python_stubs(tools)
        compile(text, f"stubs {seed}", "exec")
        assert text == python_stubs(reversed(tools))
        for one in tools:
            compile(stub_of(one), f"stub {seed} {one.id}", "exec")
    assert count > 100


@pytest.mark.full
@with_pyright
def test_a_type_checker_accepts_odd_stubs(tmp_path: Path) -> None:
    """Not only the parser does: names, references and dicts all make sense."""
    for seed in range(25):
        (tmp_path / f"odd{seed}.pyi").write_text(python_stubs(odd_tools(seed)), encoding="utf-8")
    assert check(tmp_path, python_stubs(odd_tools(99))) == []


PROGRAM = """
issue = tools.github.create_issue(title="x", labels=["bug"], state="open")
total: int = issue["number"] + 1
name: str = issue["user"] or "nobody"
for word in tools.github.list(ids=[1, 2]):
    print(word.upper())
tools.my_mail.send_mail(to=1, **{"from": "me"})
tools.echo(words="x")
tools.run("github:list", {"ids": [1]})
tools.println(tools.search("issues", 3)[0]["id"])
tree = tools.tree.read()
for child in tree.get("kids", []):
    print(child.get("kids"))
try:
    tools.run_tool("x")
except ToolError as error:
    print(error.code.upper(), error.tool_id, error.details["x"])
"""

WRONG = {
    'tools.github.create_issue(titel="x")': 'No parameter named "titel"',
    "tools.github.create_issue()": 'Argument missing for parameter "title"',
    "tools.github.create_issue(title=1)": '"Literal[1]" is not assignable to "str"',
    'tools.github.create_issue("x")': "Expected 0 positional arguments",
    'tools.github.create_issue(title="x", state="ajar")': "'ajar'",
    'tools.github.create_issue(title="x")["nummer"]': '"nummer" is not a defined key',
    'tools.github.create_issue(title="x")["user"].upper()': '"upper" is not a known attribute of "None"',
    "tools.github.no_such_tool()": "no_such_tool",
    "tools.nowhere.x()": "nowhere",
    "tools.my_mail.send_mail(to=1)": 'Argument missing for parameter "from"',
    'tools.my_mail.send_mail(to=1, **{"from": 2})': '"int" is not assignable to "str"',
    'tools.github.list(ids=["a"])': 'is not assignable to "int"',
}

TREE = tool("tree:read", output_schema={"properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}})


@pytest.mark.full
@with_pyright
def test_a_type_checker_knows_right_from_wrong(tmp_path: Path) -> None:
    """A program that uses the stubs well has no errors; each mistake is found where it is."""
    stubs = python_stubs([ISSUE, SEND, LIST, ECHO, TREE])
    lines = PROGRAM.count("\n")
    found = check(tmp_path, stubs, PROGRAM + "\n".join(WRONG))
    assert [problem for problem in found if problem[0] <= lines] == []
    for number, (line, message) in enumerate(WRONG.items(), lines + 1):
        assert any(place == number and message in text for place, text in found), f"{line}: {found}"


@pytest.mark.full
@with_pyright
def test_a_type_checker_knows_what_is_awaited(tmp_path: Path) -> None:
    """With awaitable stubs, calls are awaited and gathered."""
    program = (
        "import asyncio\n"
        "async def main() -> int:\n"
        "    issue = await tools.github.create_issue(title='x')\n"
        "    one, two = await asyncio.gather(tools.github.list(ids=[1]), tools.github.create_issue(title='y'))\n"
        "    print(one[0].upper())\n"
        "    return issue['number'] + two['number']\n"
        "async def wrong() -> None:\n"
        "    tools.github.create_issue(title='x')['number']\n"
    )
    found = check(tmp_path, python_stubs([ISSUE, LIST], awaitable=True), program)
    assert found
    assert {line for line, _ in found} == {8}


@pytest.mark.full
@pytest.mark.full
@with_pyright
async def test_the_tools_of_real_servers(tmp_path: Path) -> None:
    """Servers from npm and PyPI: a type checker accepts their stubs, and a program that calls them."""
    async with Exec() as ex:
        await ex.add_mcp("all", command=require_npm_server("everything"))
        await ex.add_mcp("fs", command=[*require_npm_server("filesystem"), str(tmp_path.resolve())])
        for name in ("time", "git"):
            await ex.add_mcp(name, command=[sys.executable, "-P", "-m", f"mcp_server_{name}"])
        tools = [entry.tool for entry in ex.index.tools()]
        names = ToolNames(ex.index)
        assert len(tools) > 35
        for one in tools:
            compile(stub_of(one, names=names), one.id, "exec")
            assert names.at(names.path_of(one) or ()) == one.id
        program = (
            "weather = tools.all.get_structured_content(location='Chicago')\n"
            "print(weather['temperature'] * 2, tools.all.get_sum(a=1, b=2.5))\n"
            "tools.fs.edit_file(path='a', edits=[{'oldText': 'x', 'newText': 'y'}])\n"
            "tools.all.get_structured_content(location='Paris')\n"
        )
        found = check(tmp_path, python_stubs(tools, names=names), program)
        assert {line for line, _ in found} == {4}
