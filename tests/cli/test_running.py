"""The commands that do: run and chain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


def test_run_prints_the_value(cli: Cli, tools_file: Path) -> None:
    """On stdout there is nothing else; what the tool prints goes to stderr."""
    done = cli("run", "math:add", "a=40", "b=2", "-c", tools_file)
    assert (done.exit_code, done.stdout) == (0, "42\n")
    assert done.stderr == "printed while loading\nprinted while running\n"


def test_run_gives_json(cli: Cli, tools_file: Path) -> None:
    """The whole result as one document."""
    data = json.loads(cli("run", "math:add", '{"a": 40, "b": 2}', "--json", "-c", tools_file).stdout)
    assert (data["ok"], data["toolId"], data["value"]) == (True, "math:add", 42)
    assert data["durationMs"] >= 0


def test_values_are_read_by_the_schema(cli: Cli, tools_file: Path) -> None:
    """Text stays text, numbers and lists become what the tool takes."""
    words = ["words=42", "times=2", "tags=a", "tags=b", "numbers=1", "loud=true", "anything=3", "style=low"]
    data = json.loads(cli("run", "text:echo", *words, "--json", "-c", tools_file).stdout)
    assert data["value"] == {
        "words": "42",
        "times": 2,
        "tags": ["a", "b"],
        "numbers": [1],
        "loud": True,
        "anything": 3,
        "style": "low",
    }


def test_arguments_come_from_a_file_and_stdin(cli: Cli, tools_file: Path, tmp_path: Path) -> None:
    """Arguments of the command line override those of a file and stdin."""
    (tmp_path / "args.json").write_text('{"a": 1, "b": 1}')
    assert cli("run", "math:add", "@args.json", "b=2", "-c", tools_file).stdout == "3\n"
    assert cli("run", "math:add", "-", "-c", tools_file, stdin='{"a": 4}').stdout == "5\n"


def test_stdin_that_is_no_text_is_refused(cli: Cli, tools_file: Path) -> None:
    """Arguments are UTF-8."""
    done = cli("run", "math:add", "-", "-c", tools_file, stdin=b"\xff\xfe")
    assert done.exit_code == 2
    assert "stdin is not UTF-8" in done.stderr


def test_structured_values_are_indented(cli: Cli, tools_file: Path) -> None:
    """`--raw` has them on one line."""
    assert '\n  "words": "x"' in cli("run", "text:echo", "words=x", "-c", tools_file).stdout
    assert cli("run", "text:echo", "words=ü", "--raw", "-c", tools_file).stdout.startswith('{"words": "ü", ')


def test_text_is_printed_as_text(cli: Cli, tools_file: Path) -> None:
    """Without quotes; long lines are not broken, markup is not read."""
    text = "[bold]" + "x" * 300
    assert cli("run", "text:plain", f"words={text}", "-c", tools_file).stdout == f"{text}\n"


def test_hostile_values_are_harmless(cli: Cli, tools_file: Path) -> None:
    """Escape sequences are shown as such; `--raw` into a pipe keeps every byte."""
    assert cli("run", "odd:hostile", "-c", tools_file).stdout == "a\\x1b[2Jb [bold]c[/bold] \\x9b31md \\u202ee\n"
    assert "\x1b[2J" in cli("run", "odd:hostile", "--raw", "-c", tools_file).stdout
    as_json = cli("run", "odd:hostile", "--json", "-c", tools_file).stdout
    assert as_json.isascii()
    assert "\x1b" not in as_json


def test_a_picture_alone_has_no_value(cli: Cli, tmp_path: Path) -> None:
    """Lists a picture, and prints no placeholder for the absent text."""
    file = tmp_path / "app.py"
    file.write_text(
        "from toolexec import ToolReply, tool\nfrom toolexec.model.content import image\n"
        "@tool\ndef dot() -> ToolReply:\n    return ToolReply(content=[image(b'x')])\n"
    )
    assert cli("run", "dot", "-c", file).stdout == "[image] image/png, 1 byte\n"


def test_other_content_is_listed(cli: Cli, tools_file: Path) -> None:
    """With its type and size, beside the text."""
    assert cli("run", "odd:picture", "-c", tools_file).stdout == "look\n[image] image/png, 3.0 kB\n"
    data = json.loads(cli("run", "odd:picture", "--json", "-c", tools_file).stdout)
    assert data["content"][0]["mimeType"] == "image/png"


def test_a_tool_that_says_no_exits_with_1(cli: Cli, tools_file: Path) -> None:
    """One line on stderr, or the result with its error as JSON."""
    done = cli("run", "odd:fail", "-c", tools_file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "error: odd:fail raised ValueError: no, because"
    done = cli("run", "odd:fail", "--json", "-c", tools_file)
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"]["code"] == "handler_failed"


def test_wrong_arguments_are_all_named(cli: Cli, tools_file: Path) -> None:
    """In one go, with a hint for a misspelt name."""
    done = cli("run", "text:echo", "wrds=x", "times=many", "-c", tools_file)
    assert done.exit_code == 3
    line = done.stderr.splitlines()[-1]
    assert '"words" is a required property' in line
    assert "'wrds' is not a known name; did you mean 'words'?" in line
    assert '/times: "many" is not of type "integer"' in line
    data = json.loads(cli("run", "text:echo", "wrds=x", "times=many", "--json", "-c", tools_file).stdout)
    assert len(data["error"]["details"]["violations"]) == 3


def test_an_unknown_tool_comes_with_a_hint(cli: Cli, tools_file: Path) -> None:
    """The nearest IDs."""
    done = cli("run", "math:ad", "a=1", "-c", tools_file)
    assert done.exit_code == 3
    assert "no tool math:ad; did you mean math:add?" in done.stderr


@pytest.mark.full
def test_an_unavailable_server_exits_with_3(cli: Cli, servers_file: Path) -> None:
    """With the reason."""
    done = cli("run", "dead:anything", "-c", servers_file)
    assert done.exit_code == 3
    assert "backend dead is unavailable: the command 'no-such-command-anywhere' was not found" in done.stderr
    data = json.loads(cli("run", "dead:anything", "--json", "-c", servers_file).stdout)
    assert (data["error"]["code"], data["error"]["retryable"]) == ("backend_unavailable", True)


def test_a_server_that_is_not_needed_is_not_started(cli: Cli, servers_file: Path, tmp_path: Path) -> None:
    """Only the one that the ID names."""
    data = json.loads(servers_file.read_text())
    marker = tmp_path / "started"
    data["mcpServers"]["other"] = {"command": "touch", "args": [str(marker)]}
    servers_file.write_text(json.dumps(data))
    done = cli("run", "time:get_current_time", "timezone=UTC", "--json", "-c", servers_file)
    assert json.loads(done.stdout)["value"]["timezone"] == "UTC"
    assert not marker.exists()


@pytest.mark.full
def test_a_server_under_another_namespace_is_found(cli: Cli, servers_file: Path) -> None:
    """The ID does not say which server it is, so all are started."""
    data = json.loads(servers_file.read_text())
    del data["mcpServers"]["dead"]
    data["mcpServers"]["time"]["namespace"] = "clock"
    servers_file.write_text(json.dumps(data))
    assert cli("run", "clock:get_current_time", "timezone=UTC", "-c", servers_file).exit_code == 0


def test_a_result_against_its_schema_is_shown_with_a_warning(cli: Cli, tmp_path: Path) -> None:
    """For a tool whose output is only warned about."""
    file = tmp_path / "app.py"
    file.write_text(
        "from toolexec import Exec, Tool\n"
        "ex = Exec(validate_output='warn')\n"
        "t = Tool(name='t', input_schema={}, output_schema={'type': 'integer'})\n"
        "ex.add(t, handler=lambda args: 'text')\n"
    )
    done = cli("run", "t", "-c", file)
    assert (done.exit_code, done.stdout) == (0, "text\n")
    assert "warning: does not match its output schema: (root):" in done.stderr


def test_the_time_limit_is_that_of_the_command(cli: Cli, tools_file: Path) -> None:
    """Past it, the tool is stopped; a limit of 0 makes no sense."""
    done = cli("run", "slow:forever", "--timeout", "0.2", "--json", "-c", tools_file)
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"]["code"] == "timeout"
    assert cli("run", "slow:forever", "--timeout", "0", "-c", tools_file).exit_code == 2


def test_streaming_prints_pieces_as_they_come(cli: Cli, tools_file: Path) -> None:
    """Each on its line; a tool in one piece prints its value."""
    assert cli("run", "slow:pieces", "n=2", "--stream", "-c", tools_file).stdout == '{"piece": 0}\n{"piece": 1}\n'
    assert cli("run", "slow:count", "n=2", "--stream", "-c", tools_file).stdout == "2\n"
    assert cli("run", "text:plain", "words=x", "--stream", "-c", tools_file).stdout == "x\n"


def test_streaming_text_pieces(cli: Cli, tmp_path: Path) -> None:
    """Pieces of text are printed as text, not JSON; a tool's own events count as well."""
    file = tmp_path / "app.py"
    file.write_text(
        "from toolexec import StreamEvent, tool\n@tool\nasync def poem():\n"
        "    yield StreamEvent(kind='progress', data='odd')\n    yield 'roses'\n    yield 'violets'\n"
    )
    assert cli("run", "poem", "--stream", "-c", file).stdout == "roses\nviolets\n"
    assert "violets" in cli("run", "poem", "--stream", "-c", file, FORCE_COLOR="1").stdout


def test_streaming_pieces_of_any_type(cli: Cli, tmp_path: Path) -> None:
    """Typed and untyped generators stream models, dates and numbers of NumPy as JSON."""
    file = tmp_path / "typed.py"
    file.write_text(
        "import datetime as dt, pydantic, numpy as np\n"
        "from collections.abc import Iterator\n"
        "from toolexec import tool\n"
        "class Row(pydantic.BaseModel):\n    day: dt.date\n"
        "@tool('t:typed')\ndef typed() -> Iterator[Row]:\n    yield Row(day=dt.date(2026, 1, 31))\n"
        "@tool('t:untyped')\ndef untyped():\n    yield Row(day=dt.date(2026, 1, 31))\n    yield np.float64(1.5)\n"
    )
    row = '{"day": "2026-01-31"}\n'
    assert cli("run", "t:typed", "--stream", "-c", file).stdout == row
    assert cli("run", "t:untyped", "--stream", "-c", file).stdout == row + "1.5\n"
    assert json.loads(cli("run", "t:typed", "-c", file).stdout) == [{"day": "2026-01-31"}]


def test_a_value_that_breaks_its_schema_is_shown(cli: Cli, tmp_path: Path) -> None:
    """The value goes to stdout, what is wrong with it to stderr, and the exit code says that it failed."""
    file = tmp_path / "liar.py"
    file.write_text("from toolexec import tool\n@tool('t:liar')\ndef liar() -> int:\n    return [1, 2]\n")
    done = cli("run", "t:liar", "-c", file)
    assert done.exit_code == 1
    assert json.loads(done.stdout) == [1, 2]
    assert "the tool ran" in " ".join(done.stderr.split())


def test_streaming_gives_one_event_per_line(cli: Cli, tools_file: Path) -> None:
    """Each event is one line, and exactly one of them is the last."""
    done = cli("run", "slow:count", "n=2", "--stream", "--json", "-c", tools_file)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["kind"] for event in events] == ["progress", "progress", "done"]
    assert events[0]["data"] == {"progress": 1, "total": 2, "message": "item 0"}
    assert events[-1]["data"] == 2


def test_a_failing_stream_exits_with_1(cli: Cli, tools_file: Path) -> None:
    """Its last event is the error."""
    done = cli("run", "odd:fail", "--stream", "-c", tools_file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "odd:fail raised ValueError" in done.stderr
    done = cli("run", "odd:fail", "--stream", "--json", "-c", tools_file)
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == ["error"]


def test_a_stream_that_cannot_begin_gives_one_line(cli: Cli, tools_file: Path) -> None:
    """As all other lines of a stream are."""
    done = cli("run", "math:add", "--stream", "--json", "-c", tools_file)
    assert done.exit_code == 3
    assert len(done.stdout.splitlines()) == 1
    assert json.loads(done.stdout)["error"]["code"] == "validation_input"


def test_a_terminal_gets_a_bar_and_a_footer(cli: Cli, tools_file: Path) -> None:
    """While the tool reports progress, and when it is done."""
    done = cli("run", "slow:count", "n=5", "-c", tools_file, FORCE_COLOR="1")
    assert "5/5" in done.stdout
    assert "✓ slow:count · local local" in done.stderr
    assert "5/5" in cli("run", "slow:count", "n=5", "--stream", "-c", tools_file, FORCE_COLOR="1").stdout


CHAIN = [
    {"tool": "math:add", "args": {"a": 1, "b": 2}, "name": "first"},
    {"tool": "math:add", "args": {"a": {"$ref": "first"}, "b": {"$ref": "steps.0"}}},
]


def test_a_chain_shows_its_steps(cli: Cli, tools_file: Path, tmp_path: Path) -> None:
    """A chain shows its steps and the last value below."""
    (tmp_path / "chain.json").write_text(json.dumps(CHAIN))
    done = cli("chain", "chain.json", "-c", tools_file)
    assert done.exit_code == 0
    assert "math:add as first" in done.stdout
    assert done.stdout.count("✓ ok") == 2
    assert done.stdout.endswith("\n6\n")


def test_a_chain_gives_json(cli: Cli, tools_file: Path) -> None:
    """From stdin, too."""
    data = json.loads(cli("chain", "-", "--json", "-c", tools_file, stdin=json.dumps(CHAIN)).stdout)
    assert (data["ok"], data["value"]) == (True, 6)
    assert [step["value"] for step in data["steps"]] == [3, 6]


def test_a_failed_step_stops_the_chain(cli: Cli, tools_file: Path) -> None:
    """Exit code 1; what was done before is there, the rest is skipped."""
    steps = [CHAIN[0], {"tool": "odd:fail"}, CHAIN[0] | {"name": "third"}]
    done = cli("chain", "-", "-c", tools_file, stdin=json.dumps(steps))
    assert done.exit_code == 1
    for part in ("✓ ok", "✗ failed", "- skipped"):
        assert part in done.stdout
    assert "stopped at step 1\nerror: odd:fail raised ValueError: no, because" in done.stderr
    done = cli("chain", "-", "--json", "-c", tools_file, stdin=json.dumps(steps))
    assert done.exit_code == 1
    assert json.loads(done.stdout)["steps"][2]["skipped"] is True


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"tool": "math:add", "args": {"a": {"$ref": "later"}}}], "refers to no step"),
        ([{"tol": "math:add"}], "a step has no setting 'tol'; did you mean tool"),
    ],
)
def test_a_chain_that_makes_no_sense_exits_with_2(
    cli: Cli, tools_file: Path, steps: list[dict[str, Any]], message: str
) -> None:
    """Nothing has run."""
    done = cli("chain", "-", "-c", tools_file, stdin=json.dumps(steps))
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    data = json.loads(cli("chain", "-", "--json", "-c", tools_file, stdin=json.dumps(steps)).stdout)
    assert data["error"]["code"] == "invalid_chain"


def test_a_missing_chain_file_exits_with_2(cli: Cli, tools_file: Path) -> None:
    """The message names it."""
    done = cli("chain", "none.json", "-c", tools_file)
    assert done.exit_code == 2
    assert "cannot read none.json: No such file or directory" in done.stderr
