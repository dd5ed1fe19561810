"""The command `export`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.mark.parametrize("format", ["openai", "openai-responses", "anthropic", "gemini", "mcp", "a2a"])
def test_every_form(cli: Cli, tools_file: Path, format: str) -> None:
    """The list is on stdout, as JSON, and nothing else; what is lost is on stderr."""
    done = cli("export", "--format", format, "-c", tools_file)
    assert done.exit_code == 0
    tools = json.loads(done.stdout)
    assert isinstance(tools, list)
    assert "add" in done.stdout
    assert "\x1b" not in done.stdout
    assert "warning: " in done.stderr


def test_some_tools(cli: Cli, tools_file: Path) -> None:
    """By namespace and by tag."""
    for words in (["--namespace", "math"], ["--tag", "sums"]):
        tools = json.loads(cli("export", "-f", "openai", *words, "-c", tools_file).stdout)
        assert [tool["function"]["name"] for tool in tools] == ["math__add"]


def test_strict_and_words(cli: Cli, tools_file: Path) -> None:
    """Both can be chosen."""
    words = ["export", "-f", "openai", "--namespace", "math", "--strict", "-c", tools_file]
    (tool,) = json.loads(cli(*words).stdout)
    assert tool["function"]["strict"] is True
    assert "(default 1)" in tool["function"]["parameters"]["properties"]["b"]["description"]
    (tool,) = json.loads(cli(*words, "--no-words").stdout)
    assert "(default 1)" not in tool["function"]["parameters"]["properties"]["b"]["description"]


def test_search(cli: Cli, tools_file: Path) -> None:
    """The tool that finds the others comes first."""
    tools = json.loads(cli("export", "-f", "anthropic", "--search", "client", "-c", tools_file).stdout)
    assert tools[0]["name"] == "search_tools"
    assert all(tool["defer_loading"] for tool in tools[1:])


def test_into_a_file(cli: Cli, tools_file: Path, tmp_path: Path) -> None:
    """The export goes into the file, and stdout is empty."""
    file = tmp_path / "tools.json"
    done = cli("export", "-f", "mcp", "--namespace", "math", "--out", file, "-c", tools_file)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "1 tool is in " in done.stderr
    assert json.loads(file.read_text())[0]["name"] == "math__add"


def test_as_json(cli: Cli, tools_file: Path, tmp_path: Path) -> None:
    """The names and the warnings are in the document."""
    words = ["export", "-f", "gemini", "--namespace", "math", "--json", "-c", tools_file]
    done = cli(*words)
    data = json.loads(done.stdout)
    assert data["names"] == {"math__add": "math:add"}
    assert data["tools"][0]["functionDeclarations"][0]["name"] == "math__add"
    assert {"tool", "feature", "path", "action", "from", "to"} <= set(data["warnings"][0])
    assert data["skipped"] == {}
    assert "warning" not in done.stderr
    data = json.loads(cli(*words, "-o", tmp_path / "x.json").stdout)
    assert data["file"].endswith("x.json")


def test_a_tool_that_cannot_be_exported(cli: Cli, tmp_path: Path) -> None:
    """Names the tool; the exit code reports that something is missing."""
    file = tmp_path / "app.py"
    file.write_text(
        "from toolexec import Tool, tool\n"
        "odd = Tool(name='odd', input_schema={'type': 'string'})\n"
        "@tool\n"
        "def fine() -> int:\n"
        "    return 1\n"
    )
    done = cli("export", "-f", "anthropic", "-c", file)
    assert done.exit_code == 1
    assert [tool["name"] for tool in json.loads(done.stdout)] == ["fine"]
    assert "left out: odd: anthropic from_tool: arguments are an object" in done.stderr


def test_many_warnings(cli: Cli, tmp_path: Path) -> None:
    """The first fifty are shown."""
    file = tmp_path / "app.py"
    file.write_text(
        "from toolexec import Tool\n"
        "p = {f'p{n}': {'type': 'string', 'contentEncoding': 'base64'} for n in range(60)}\n"
        "t = Tool(name='t', input_schema={'type': 'object', 'properties': p})\n"
    )
    done = cli("export", "-f", "gemini", "-c", file)
    assert done.stderr.count("warning: ") == 50
    assert "and 10 more warnings; --json has them all" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-f", "openai", "--namespace", "maths"], "no tools in the namespace 'maths'; namespaces: math, odd"),
        (["-f", "gemini", "--search", "client"], "gemini has neither tool search nor callers"),
        (["-f", "openai", "-o", "no/such/directory/x.json"], "cannot write no/such/directory/x.json: No such file"),
        (["-f", "xml"], "xml"),
        ([], "--format"),
    ],
)
def test_what_cannot_be_done(cli: Cli, tools_file: Path, words: list[str], message: str) -> None:
    """Nothing is printed, and the error says why."""
    done = cli("export", *words, "-c", tools_file)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
