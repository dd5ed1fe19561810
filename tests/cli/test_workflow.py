"""The command `workflow`: check, graph, from-chain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a function that writes a file and gives its path."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


Written = Callable[[str, str], Path]


def test_findings_are_shown_with_their_lines(cli: Cli, tools_file: Path, written: Written) -> None:
    """Each has its place, its line and what to write; an error gives the exit code 1."""
    file = written("a.workflow", 'total := run("math:ad", {a: 1})\nprint(total)\n')
    done = cli("workflow", "check", file, "-c", tools_file)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == f"{file}:1:14: error: there is no tool math:ad [unknown-tool]"
    assert lines[1].endswith('total := run("math:ad", {a: 1})')
    assert lines[3] == "  = did you mean math:add?"
    assert "1 error, 0 warnings" in done.stderr


def test_findings_as_json(cli: Cli, tools_file: Path, written: Written) -> None:
    """All files are in one document; warnings alone leave the exit code 0."""
    right = written("right.workflow", 'run("math:add", {a: 1})\n')
    unused = written("unused.workflow", 'x := run("math:add", {a: 1})\n')
    done = cli("workflow", "check", right, unused, "-c", tools_file, "--json")
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    assert data["ok"] is True
    assert [[each["kind"] for each in file["findings"]] for file in data["files"]] == [[], ["unused-name"]]


def test_a_syntax_error_is_a_finding(cli: Cli, tools_file: Path, written: Written) -> None:
    """A file that cannot be parsed has one finding, in the same form."""
    done = cli("workflow", "check", written("a.workflow", "x := [1,\n"), "-c", tools_file, "--json")
    assert done.exit_code == 1
    (finding,) = json.loads(done.stdout)["files"][0]["findings"]
    assert (finding["kind"], finding["line"], finding["column"]) == ("syntax", 1, 6)
    assert "line 1" not in finding["message"]


def test_without_tools_calls_are_not_checked(
    cli: Cli, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note says so; the workflow itself is checked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOOLEXEC_CONFIG", raising=False)
    done = cli("workflow", "check", written("a.workflow", 'run("no:such", {a: b})\n'))
    assert done.exit_code == 1
    assert "undefined-name" in done.stdout
    assert "unknown-tool" not in done.stdout
    assert "calls were not checked" in done.stderr


def test_a_file_that_is_not_there(cli: Cli, tools_file: Path, tmp_path: Path) -> None:
    """The exit code is that of a wrong command line."""
    done = cli("workflow", "check", tmp_path / "none.workflow", "-c", tools_file)
    assert done.exit_code == 2
    assert "cannot read" in done.stderr


def test_graphs(cli: Cli, written: Written, tmp_path: Path) -> None:
    """Mermaid text on stdout, SVG into a file."""
    file = written("a.workflow", 'for n in [1, 2] {\n  run("math:add", {a: n})\n}\n')
    done = cli("workflow", "graph", file)
    assert done.exit_code == 0
    assert done.stdout.startswith("flowchart TD\n")
    assert "math:add" in done.stdout
    drawn = tmp_path / "a.svg"
    assert cli("workflow", "graph", file, "--svg", "-o", drawn).exit_code == 0
    assert drawn.read_text().startswith("<svg ")


def test_a_workflow_of_a_chain(cli: Cli, written: Written) -> None:
    """The steps of a chain file become a workflow; a chain that cannot run is refused."""
    steps = [{"tool": "math:add", "args": {"a": 1}}, {"tool": "math:add", "args": {"a": {"$ref": "steps.0"}}}]
    done = cli("workflow", "from-chain", written("chain.json", json.dumps(steps)))
    assert done.exit_code == 0
    assert done.stdout == 'add := run("math:add", {a: 1})\nreturn run("math:add", {a: add})\n'
    wrong = written("wrong.json", json.dumps([{"tool": "math:add", "args": {"a": {"$ref": "steps.3"}}}]))
    assert cli("workflow", "from-chain", wrong).exit_code == 2
