"""The commands for queues and schedules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture
def settings(tmp_path: Path, tools_file: Path) -> Path:
    """Return settings with a journal and a queue, over the tools of the tests."""
    path = tmp_path / "toolexec.toml"
    text = f'[sources]\npython = ["{tools_file}"]\n[durable]\njournal = "runs.db"\nlinger = 0.05\n'
    path.write_text(text + "[queues.mail]\nconcurrency = 1\nrate = [10, 1.0]\n")
    return path


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Return a chain that adds."""
    path = tmp_path / "chain.json"
    path.write_text(json.dumps([{"tool": "math:add", "args": {"a": 1, "b": 2}}]))
    return path


def test_a_run_is_queued_and_taken(cli: Cli, settings: Path, steps: Path, tmp_path: Path) -> None:
    """One command puts it there, one shows it, one takes it."""
    queued = cli("runs", "enqueue", "mail", steps, "--id", "sum", "--priority", "3", "-c", settings, "--json")
    assert json.loads(queued.stdout) == {"run": "sum", "state": "queued", "queue": "mail", "priority": 3}
    flow = tmp_path / "add.workflow"
    flow.write_text('input n: integer\nreturn run("math:add", {a: n, b: 1})\n')
    assert cli("runs", "enqueue", "mail", flow, "n=4", "--id", "flow", "-c", settings).exit_code == 0
    [queue] = json.loads(cli("runs", "queues", "-c", settings, "--json").stdout)["queues"]
    assert (queue["name"], queue["queued"], queue["limits"]["rate"]) == ("mail", 2, [10, 1.0])
    assert "mail" in cli("runs", "queues", "-c", settings).stdout
    [*listed] = json.loads(cli("runs", "list", "--state", "queued", "-c", settings, "--json").stdout)["runs"]
    assert [(run["id"], run["queue"]) for run in listed] == [("flow", "mail"), ("sum", "mail")]
    done = json.loads(cli("runs", "resume", "--due", "-c", settings, "--json").stdout)["runs"]
    assert {run_id: result["value"] for run_id, result in done.items()} == {"flow": 5, "sum": 3}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("mial",), 2, "did you mean mail"),
        (("mail", "--delay", "-1"), 2, "delay must be 0 or more"),
        (("mail", "n=4"), 2, "only a workflow has inputs"),
    ],
)
def test_what_cannot_be_queued(
    words: tuple[str, ...], code: int, message: str, cli: Cli, settings: Path, steps: Path
) -> None:
    """The error says what to write."""
    queue, *more = words
    done = cli("runs", "enqueue", queue, steps, *more, "-c", settings)
    assert (done.exit_code, message in done.stderr) == (code, True), done.stderr


def test_a_schedule_from_its_beginning_to_its_end(cli: Cli, settings: Path, steps: Path) -> None:
    """A schedule is added, listed, paused and removed."""
    assert "no schedules" in cli("schedules", "list", "-c", settings).stderr
    added = cli("schedules", "add", "tidy", steps, "--every", "300", "--queue", "mail", "-c", settings, "--json")
    facts = json.loads(added.stdout)
    assert (facts["name"], facts["timing"]["every"], facts["queue"], facts["paused"]) == ("tidy", 300.0, "mail", False)
    assert cli("schedules", "pause", "tidy", "-c", settings).exit_code == 0
    assert "paused" in cli("schedules", "list", "-c", settings).stdout
    assert cli("schedules", "pause", "tidy", "--off", "-c", settings).exit_code == 0
    [again] = json.loads(cli("schedules", "list", "-c", settings, "--json").stdout)["schedules"]
    assert again | {"due": ""} == facts | {"due": ""}
    assert cli("schedules", "remove", "tidy", "-c", settings).exit_code == 0
    assert cli("schedules", "remove", "tidy", "-c", settings).exit_code == 3


def test_a_schedule_without_a_time(cli: Cli, settings: Path, steps: Path) -> None:
    """The error says which two there are."""
    done = cli("schedules", "add", "tidy", steps, "-c", settings)
    assert (done.exit_code, "either cron" in done.stderr) == (2, True)


def test_another_schedule_of_a_name_says_how_to_replace_it(cli: Cli, settings: Path, steps: Path) -> None:
    """The error has the option of the command, which then replaces the schedule."""
    assert cli("schedules", "add", "tidy", steps, "--every", "300", "-c", settings).exit_code == 0
    done = cli("schedules", "add", "tidy", steps, "--every", "301", "-c", settings)
    assert (done.exit_code, "--replace" in done.stderr) == (3, True)
    assert cli("schedules", "add", "tidy", steps, "--every", "301", "--replace", "-c", settings).exit_code == 0
