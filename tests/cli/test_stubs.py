"""The command `stubs`, and the stub in `describe`."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


def attributes(stubs: str, name: str) -> set[str]:
    """Return the members of a class of the stubs."""
    (found,) = (node for node in ast.parse(stubs).body if isinstance(node, ast.ClassDef) and node.name == name)
    functions = {node.name for node in found.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return functions | {ast.unparse(node.target) for node in found.body if isinstance(node, ast.AnnAssign)}


def test_stubs_of_all_tools(cli: Cli, tools_file: Path) -> None:
    """On stdout, without anything else."""
    done = cli("stubs", "-c", tools_file)
    assert done.exit_code == 0
    assert done.stdout.startswith('"""What code can call')
    assert {"math", "odd", "slow", "text"} < attributes(done.stdout, "Tools")
    assert attributes(done.stdout, "Odd") == {"declared", "fail", "hostile", "picture"}
    assert "    def plain(self, *, words: str) -> str:\n" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["math:add"], {"math"}),
        (["math:add", "text:plain", "math:add"], {"math", "text"}),
        (["--namespace", "odd"], {"odd"}),
        (["--namespace", "odd", "--namespace", "slow", "math:add"], {"math", "odd", "slow"}),
    ],
)
def test_stubs_of_some_tools(cli: Cli, tools_file: Path, words: list[str], expected: set[str]) -> None:
    """Those named, and those of the namespaces named."""
    done = cli("stubs", *words, "-c", tools_file)
    assert attributes(done.stdout, "Tools") & {"math", "odd", "slow", "text"} == expected


def test_stubs_for_code_that_awaits(cli: Cli, tools_file: Path) -> None:
    """With --async."""
    assert "    async def add(\n" in cli("stubs", "math:add", "--async", "-c", tools_file).stdout


def test_stubs_for_javascript(cli: Cli, tools_file: Path) -> None:
    """Stubs for JavaScript are TypeScript declarations."""
    text = cli("stubs", "math:add", "--language", "typescript", "-c", tools_file).stdout
    assert "    add(args: {" in text
    assert "  const tools: Tools;" in text


def test_stubs_into_a_file(cli: Cli, tools_file: Path, tmp_path: Path) -> None:
    """The summary goes to stderr; with --json to stdout."""
    file = tmp_path / "__builtins__.pyi"
    done = cli("stubs", "math:add", "-c", tools_file, "-o", file)
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"stubs of 1 tool are in {file}" in done.stderr
    assert file.read_text() == cli("stubs", "math:add", "-c", tools_file).stdout
    data = json.loads(cli("stubs", "--namespace", "text", "--json", "-c", tools_file, "-o", file).stdout)
    assert data == {"tools": ["text:echo", "text:plain"], "file": str(file)}
    assert "class Text:" in file.read_text()


def test_stubs_as_json(cli: Cli, tools_file: Path) -> None:
    """The text, and the tools that are in it."""
    data = json.loads(cli("stubs", "math:add", "--json", "-c", tools_file).stdout)
    assert data["tools"] == ["math:add"]
    assert "class Math:" in data["stubs"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["math:ad"], 3, "did you mean math:add?"),
        (["--namespace", "maths"], 2, "no tools in the namespace 'maths'; namespaces: math, odd, slow, text"),
        (["math:add", "-o", "no/such/directory/x.pyi"], 2, "cannot write no/such/directory/x.pyi: No such file"),
    ],
)
def test_what_cannot_be_done_is_an_error(cli: Cli, tools_file: Path, words: list[str], code: int, message: str) -> None:
    """An impossible request is an error, and nothing is printed."""
    done = cli("stubs", *words, "-c", tools_file)
    assert (done.exit_code, done.stdout) == (code, "")
    assert message in done.stderr


@pytest.mark.full
def test_stubs_mention_what_is_unavailable(cli: Cli, servers_file: Path) -> None:
    """Its tools are missing from the stubs; a tool that is named needs its own server only."""
    done = cli("stubs", "-c", servers_file)
    assert "    def get_current_time(" in done.stdout
    assert "unavailable: dead" in done.stderr
    data = json.loads(cli("stubs", "--json", "-c", servers_file).stdout)
    assert data["unavailable"][0]["backend"] == "dead"
    assert "dead" not in cli("stubs", "time:get_current_time", "-c", servers_file).stderr


def test_describe_says_how_code_calls_a_tool(cli: Cli, tools_file: Path) -> None:
    """Where the tool itself is described, and not in a summary."""
    shown = cli("describe", "math:add", "-c", tools_file).stdout
    lines = [line.rstrip() for line in shown.splitlines()]
    start = lines.index("Call from code")
    assert lines[start + 1] == "  # tools.math.add(a=...)"
    assert lines[start + 3] == "  def add("
    data = json.loads(cli("describe", "math:add", "--level", "schema", "--json", "-c", tools_file).stdout)
    assert data["stub"].startswith("# tools.math.add(a=...)\n\ndef add(\n    *,\n    a: int,\n")
    summary = cli("describe", "math:add", "--level", "summary", "--json", "-c", tools_file).stdout
    assert "stub" not in json.loads(summary)
    assert "Call from code" not in cli("describe", "math:add", "--level", "summary", "-c", tools_file).stdout


def test_describe_knows_names_that_are_shared(cli: Cli, tmp_path: Path) -> None:
    """A tool with a shared name is called by its ID."""
    file = tmp_path / "app.py"
    file.write_text(
        "from toolexec import Tool\n"
        "tools = [Tool(name=n, namespace='a', input_schema={'properties': {}}) for n in ('do-it', 'do.it')]\n"
        "one, two = tools\n"
    )
    assert '# tools.run("a:do.it", {})' in cli("describe", "a:do.it", "-c", file).stdout
