"""The command `workflow`: check, graph, record, from-chain."""

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


RUN = """input n: integer
print("begun")
for i in range(n) {
  run("math:add", {a: i})
}
try { run("slow:count", {n: -1, m: 2}) } catch { null }
run("math:add", {a: 1})
"""


def test_a_graph_of_a_run(cli: Cli, tools_file: Path, written: Written) -> None:
    """Each call is at its own node, with its time; what the workflow prints is not in the picture."""
    file = written("a.workflow", RUN.replace(", m: 2", ""))
    done = cli("workflow", "graph", file, "n=3", "--run", "-c", tools_file)
    assert done.exit_code == 0, done.stderr
    nodes = [line.strip() for line in done.stdout.splitlines() if "<br/>" in line]
    assert [line.partition("<br/>")[0].partition('"')[2] for line in nodes] == ["math:add", "slow:count", "math:add"]
    assert "3 calls, " in nodes[0]
    assert "begun" not in done.stdout
    assert "begun" in done.stderr


def test_a_graph_of_a_saved_result(cli: Cli, tools_file: Path, written: Written) -> None:
    """The result that --json prints gives the same picture as the run."""
    file = written("a.workflow", 'run("math:add", {a: 1})\nfail "over"\n')
    ran = cli("workflow", "graph", file, "--run", "--json", "-c", tools_file)
    assert ran.exit_code == 1
    data = json.loads(ran.stdout)
    assert data["result"]["toolCalls"][0]["line"] == data["result"]["toolCalls"][0]["column"] == 1
    saved = written("result.json", json.dumps(data["result"]))
    done = cli("workflow", "graph", file, "--result", saved)
    assert (done.exit_code, done.stdout) == (0, data["mermaid"])
    assert "ms" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["n=1"], "give --run, too"),
        (["--run", "--result", "x.json"], "give it or --run"),
        (["--result", "x.json"], "cannot read x.json"),
        (["--result", "a.workflow"], "not JSON"),
        (["--result", "list.json"], "not the result of a run"),
        (["--result", "calls.json"], "cannot be read"),
    ],
)
def test_runs_that_cannot_be_drawn(
    cli: Cli, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    """The command line makes no sense then, and says why."""
    monkeypatch.chdir(tmp_path)
    written("a.workflow", "input n: integer = 1\nreturn n\n")
    written("list.json", "[1]")
    written("calls.json", '{"ok": true, "toolCalls": [{"line": "x"}]}')
    done = cli("workflow", "graph", "a.workflow", *words)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_workflow_of_a_program(cli: Cli, tools_file: Path, written: Written, tmp_path: Path) -> None:
    """The calls that a program makes become a formatted workflow; a saved result does the same."""
    program = written(
        "a.py", 'print("hi")\nx = tools.text.plain(words="some words")\nreturn tools.text.plain(words=x)\n'
    )
    expected = 'plain := run("text:plain", {words: "some words"})\nplain_2 := run("text:plain", {words: plain})\n'
    done = cli("workflow", "record", program, "-c", tools_file)
    assert (done.exit_code, done.stdout) == (0, f"{expected}return plain_2\n")
    assert "hi" in done.stderr
    result = cli("code", program, "-c", tools_file, "--json")
    saved = written("result.json", result.stdout)
    made = tmp_path / "made.workflow"
    assert cli("workflow", "record", "--result", saved, "-o", made).exit_code == 0
    assert made.read_text() == done.stdout
    assert cli("workflow", "run", made, "-c", tools_file).stdout.strip() == "some words"


def test_a_program_that_fails_is_not_recorded(cli: Cli, tools_file: Path) -> None:
    """Its failure is shown; one that calls nothing is refused."""
    done = cli("workflow", "record", "-e", "tools.math.add(a=1)\n1 / 0", "-c", tools_file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "division" in done.stderr
    assert cli("workflow", "record", "-e", "1", "-c", tools_file).exit_code == 3
    assert cli("workflow", "record", "-c", tools_file).exit_code == 2


def test_a_workflow_of_a_chain(cli: Cli, written: Written) -> None:
    """The steps of a chain file become a workflow; a chain that cannot run is refused."""
    steps = [{"tool": "math:add", "args": {"a": 1}}, {"tool": "math:add", "args": {"a": {"$ref": "steps.0"}}}]
    done = cli("workflow", "from-chain", written("chain.json", json.dumps(steps)))
    assert done.exit_code == 0
    assert done.stdout == 'add := run("math:add", {a: 1})\nreturn run("math:add", {a: add})\n'
    wrong = written("wrong.json", json.dumps([{"tool": "math:add", "args": {"a": {"$ref": "steps.3"}}}]))
    assert cli("workflow", "from-chain", wrong).exit_code == 2
