"""The commands that look: search, describe, list, backends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


def test_search_shows_a_table(cli: Cli, tools_file: Path) -> None:
    """ID, what it does, where, score; what the file prints is not among it."""
    done = cli("search", "add numbers", "-c", tools_file)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0].split() == ["Tool", "What", "it", "does", "Where", "Score"]
    assert "math:add" in done.stdout
    assert "Adds two whole numbers.  read-only" in done.stdout
    assert "printed" not in done.stdout


def test_search_gives_json(cli: Cli, tools_file: Path) -> None:
    """With the query, and the summaries best first."""
    data = json.loads(cli("search", "add numbers", "-n", 1, "--json", "-c", tools_file).stdout)
    assert data["query"] == "add numbers"
    assert [found["id"] for found in data["tools"]] == ["math:add"]
    assert data["tools"][0]["score"] > 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--namespace", "math"], {"math:add"}),
        (["--tag", "sums"], {"math:add"}),
        (["--read-only"], {"math:add"}),
        (["--backend", "mcp"], set()),
        (["--namespace", "slow", "--backend", "local"], {"slow:count", "slow:pieces", "slow:forever"}),
    ],
)
def test_search_filters(cli: Cli, tools_file: Path, options: list[str], expected: set[str]) -> None:
    """By namespace, tag, backend and hint."""
    data = json.loads(cli("search", "", *options, "--json", "-c", tools_file).stdout)
    assert {found["id"] for found in data["tools"]} == expected


def test_a_search_without_results_says_where_to_look(cli: Cli, tools_file: Path) -> None:
    """An empty result is not a failure."""
    done = cli("search", "zzzz", "-c", tools_file)
    assert (done.exit_code, done.stdout) == (0, "")
    assert (
        "nothing found for 'zzzz' (no tool has 'zzzz', nor a word like it); namespaces: math, odd, slow, text"
        in done.stderr
    )


def test_a_search_without_results_stays_short(cli: Cli, tmp_path: Path) -> None:
    """A query of 100,000 characters is not printed again, nor are thousands of namespaces."""
    program = """
from toolexec import Exec, Tool
ex = Exec()
for number in range(300):
    ex.add(Tool(name="get", namespace=f"space{number}", input_schema={"type": "object"}), handler=dict)
"""
    (tmp_path / "many.py").write_text(program)
    done = cli("search", "z" * 100_000, "-c", tmp_path / "many.py")
    assert done.exit_code == 0
    assert "and 280 more; toolexec list shows all tools" in done.stderr
    assert "…' (the query is too long; only its beginning was used;" in done.stderr
    assert len(done.stderr) < 1000


def test_search_says_what_was_meant(cli: Cli, tools_file: Path) -> None:
    """A misspelt word is corrected, and that is said."""
    done = cli("search", "add nubmers", "-c", tools_file)
    assert "did you mean: add numbers" in done.stderr
    assert "math:add" in done.stdout
    assert json.loads(cli("search", "nubmers", "--json", "-c", tools_file).stdout)["didYouMean"] == "numbers"


def test_search_explains(cli: Cli, tools_file: Path) -> None:
    """Each hit with the words that matched, how, where, and the piece of text around them."""
    done = cli("search", "sum nubmers", "--explain", "-c", tools_file)
    assert "nubmers spelling numbers  in description" in done.stdout
    assert "**numbers.**" in done.stdout
    data = json.loads(cli("search", "numbers", "--explain", "--json", "-c", tools_file).stdout)
    assert data["tools"][0]["explanation"]["matches"][0]["fields"] == ["description", "parameters"]


def test_search_by_what_is_produced(cli: Cli, tmp_path: Path) -> None:
    """Tools whose results give a value for an argument; and `describe` names them."""
    file = tmp_path / "tools.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from toolexec import tool\n"
        "@dataclass\nclass Issue:\n    id: str\n"
        "@tool('tracker:create_issue')\ndef create_issue(title: str) -> Issue:\n    return Issue(title)\n"
        "@tool('tracker:close_issue')\ndef close_issue(issue_id: str) -> bool:\n    return True\n"
    )
    done = cli("search", "", "--produces", "issue_id", "-c", file)
    assert "tracker:create_issue" in done.stdout
    assert "in its result: id" in done.stdout
    assert "tracker:close_issue" not in done.stdout
    told = cli("describe", "tracker:close_issue", "-c", file).stdout
    assert "Arguments that other tools produce" in told
    assert "tracker:create_issue id" in told


def test_search_counts(cli: Cli, tools_file: Path) -> None:
    """Counts tools by namespace, tag, backend and hint."""
    done = cli("search", "", "--namespace", "math", "--facets", "-c", tools_file)
    assert "all 1" in done.stdout
    assert "math 1" in done.stdout
    data = json.loads(cli("search", "", "--facets", "--json", "-c", tools_file).stdout)["facets"]
    assert data["total"] == sum(data["namespaces"].values()) == data["backends"]["local"]


@pytest.mark.full
def test_search_mentions_what_is_unavailable(cli: Cli, servers_file: Path) -> None:
    """Its tools may be missing from the answer."""
    done = cli("search", "time", "-c", servers_file)
    assert "time:get_current_time" in done.stdout
    assert "unavailable: dead: the command 'no-such-command-anywhere' was not found" in done.stderr
    data = json.loads(cli("search", "time", "-c", servers_file, "--json").stdout)
    assert data["unavailable"][0]["backend"] == "dead"


def test_a_person_is_told_where_to_read_more(cli: Cli, servers_file: Path) -> None:
    """On a terminal there is one more line."""
    assert "toolexec backends says more" in cli("search", "time", "-c", servers_file, FORCE_COLOR="1").stderr


def test_a_tool_that_became_unavailable_is_marked(cli: Cli, tmp_path: Path) -> None:
    """With the reason, where its description is."""
    file = tmp_path / "app.py"
    file.write_text(
        "from toolexec import Exec, Tool\n"
        "from toolexec.backend import LocalBackend\n"
        "from toolexec.model import LocalBinding\n"
        "ex = Exec()\n"
        "ex.add_backends(LocalBackend('away'))\n"
        "ex.backends.get('away').enabled = False\n"
        "from toolexec.model import ProviderBinding\n"
        "ex.add(Tool(name='far', description='Far away.', input_schema={}), binding=ProviderBinding('away', 'far'))\n"
    )
    assert "unavailable: switched off" in cli("search", "far", "-c", file).stdout
    assert "unavailable: switched off" in cli("describe", "far", "-c", file).stdout
    assert "switched off" in cli("backends", "-c", file).stdout


def test_describe_lays_out_a_tool(cli: Cli, tools_file: Path) -> None:
    """Parameters, result, and a command that is ready to run."""
    done = cli("describe", "math:add", "-c", tools_file, COLUMNS="160")
    assert done.exit_code == 0
    assert "read-only · local · tags: sums" in done.stdout
    assert "the first number" in done.stdout
    assert done.stdout.rstrip().endswith(f"toolexec run math:add -c {tools_file} a=1")


def test_describe_gives_a_command_to_copy(cli: Cli, tools_file: Path, tmp_path: Path) -> None:
    """However long it is, and whatever the width, the command is on one line."""
    file = tmp_path / ("long" * 30) / tools_file.name
    file.parent.mkdir()
    file.write_text(tools_file.read_text())
    lines = cli("describe", "math:add", "-c", file, COLUMNS="60").stdout.splitlines()
    assert lines[-1] == f"  toolexec run math:add -c {file} a=1"


def test_describe_has_levels(cli: Cli, tools_file: Path) -> None:
    """A summary has no parameters, a schema no example."""
    summary = cli("describe", "math:add", "--level", "summary", "-c", tools_file).stdout
    schema = cli("describe", "math:add", "--level", "schema", "-c", tools_file).stdout
    assert "Adds two whole numbers." in summary
    assert "Parameters" not in summary
    assert "Parameters" in schema
    assert "Try it" not in schema


def test_describe_gives_json(cli: Cli, tools_file: Path) -> None:
    """The whole documentation, schemas included."""
    data = json.loads(cli("describe", "math:add", "--json", "-c", tools_file).stdout)
    assert data["tool"]["inputSchema"]["required"] == ["a"]
    assert data["exampleCall"] == {"tool": "math:add", "args": {"a": 1}}


def test_describe_shows_what_people_wrote(cli: Cli, tmp_path: Path) -> None:
    """Notes, examples and references."""
    file = tmp_path / "app.py"
    file.write_text(
        "from toolexec import DocEntry, Exec, ToolExample\n"
        "ex = Exec()\n"
        "examples = (ToolExample(title='Small', args={'a': [1]}, result_hint='2'), ToolExample(args={}))\n"
        "doc = DocEntry(notes='Mind the gap.', examples=examples, external_refs=('https://example.com',))\n"
        "ex.add(lambda a=1: a, 'own:inc', doc=doc)\n"
    )
    shown = " ".join(cli("describe", "own:inc", "-c", file).stdout.split())  # a long path makes a command two lines
    for part in ("Mind the gap.", "Small", "'{\"a\": [1]}'", "→ 2", "See also", "https://example.com", "not declared"):
        assert part in shown
    assert "Try it" not in shown


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ("{'type': 'object'}", "its schema names none"),
        ("{'type': 'object', 'additionalProperties': False}", "none"),
        ("False", "none"),
    ],
)
def test_describe_without_named_parameters(cli: Cli, tmp_path: Path, schema: str, shown: str) -> None:
    """Describes what may be passed."""
    file = tmp_path / "app.py"
    out = "{'type': 'object', 'properties': {'x': {'type': 'null', 'description': 'a hole'}}}"
    file.write_text(
        f"from toolexec import Tool\nt = Tool(name='t', title='Big T', input_schema={schema}, output_schema={out})\n"
    )
    page = cli("describe", "t", "-c", file).stdout
    assert "t  Big T" in page
    assert "(no description)" in page
    assert shown in page
    assert "a hole" in page


@pytest.mark.parametrize(
    ("tool", "code", "message"),
    [
        ("math:ad", "tool_not_found", "did you mean math:add?"),
        ("a:b:c:d", "invalid_tool_id", "is not a tool ID"),
    ],
)
def test_describe_of_nothing_is_an_error(cli: Cli, tools_file: Path, tool: str, code: str, message: str) -> None:
    """On stderr as a line, with --json on stdout."""
    done = cli("describe", tool, "-c", tools_file)
    assert (done.exit_code, done.stdout) == (3, "")
    assert message in done.stderr.splitlines()[-1]
    data = json.loads(cli("describe", tool, "-c", tools_file, "--json").stdout)
    assert data["error"]["code"] == code


def test_list_groups_by_namespace(cli: Cli, tools_file: Path) -> None:
    """With counts, and no more of each than asked for."""
    done = cli("list", "-n", 2, "-c", tools_file)
    assert "slow  3 tools" in done.stdout
    assert "… and 1 more; --all shows them" in done.stdout
    assert "10 tools in 4 namespaces" in done.stdout
    assert "more;" not in cli("list", "-n", 2, "--all", "-c", tools_file).stdout


def test_list_gives_json(cli: Cli, tools_file: Path) -> None:
    """All of it, whatever the limit says."""
    data = json.loads(cli("list", "-n", 1, "--json", "-c", tools_file).stdout)
    assert data["count"] == 10
    assert {group["namespace"]: group["count"] for group in data["namespaces"]} == {
        "math": 1,
        "odd": 4,
        "slow": 3,
        "text": 2,
    }


def test_list_of_one_namespace(cli: Cli, tools_file: Path) -> None:
    """Others are left out; an unknown one is told, with those there are."""
    assert "slow:count" not in cli("list", "--namespace", "math", "-c", tools_file).stdout
    done = cli("list", "--namespace", "nope", "-c", tools_file)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "no tools in nope; namespaces: math, odd, slow, text" in done.stderr


def test_tools_without_a_namespace_have_a_heading(cli: Cli, tmp_path: Path) -> None:
    """Tools without a namespace are listed under a heading of their own."""
    file = tmp_path / "app.py"
    file.write_text("from toolexec import tool\n@tool\ndef alone() -> None: ...\n")
    assert "(no namespace)  1 tool" in cli("list", "-c", file).stdout
    assert "1 tool in 1 namespace" in cli("list", "-c", file).stdout


def test_hostile_descriptions_are_harmless(cli: Cli, tools_file: Path) -> None:
    """Markup is text, and escape sequences are shown as such."""
    for words in (["list"], ["search", "shows"], ["describe", "odd:hostile"]):
        shown = cli(*words, "-c", tools_file).stdout
        assert "\\x1b[31mred\\x1b[0m and [bold]markup[/bold]" in " ".join(shown.split())
        assert "\x1b" not in shown
    data = cli("list", "--json", "-c", tools_file).stdout
    assert "\x1b" not in data
    assert "\\u001b[31m" in data


@pytest.mark.full
def test_backends_shows_states_and_reasons(cli: Cli, servers_file: Path) -> None:
    """Tools, transport, and why one is not there; that is an answer and no failure."""
    done = cli("backends", "-c", servers_file)
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert done.exit_code == 0
    assert lines["time"].split()[1:5] == ["●", "ready", "2", "stdio"]
    assert "unavailable" in lines["dead"]
    assert "no-such-command-anywhere" in done.stdout
    data = json.loads(cli("backends", "-c", servers_file, "--json").stdout)
    assert [(b["name"], b["available"]) for b in data["backends"]] == [("local", True), ("time", True), ("dead", False)]
