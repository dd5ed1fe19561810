"""The command `runs`, and `--durable`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture
def settings(tmp_path: Path, tools_file: Path) -> Path:
    """Return settings with a journal, over the tools of the tests."""
    path = tmp_path / "toolexec.toml"
    path.write_text(f'[sources]\npython = ["{tools_file}"]\n[durable]\njournal = "runs.db"\nlinger = 0.05\n')
    return path


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Return a chain that adds, waits for a signal, and adds again."""
    path = tmp_path / "chain.json"
    add = {"tool": "math:add", "args": {"a": 1, "b": 2}}
    wait = {"tool": "run:signal", "args": {"name": "go"}, "name": "sent"}
    path.write_text(json.dumps([add, wait, {"tool": "math:add", "args": {"a": {"$ref": "sent"}, "b": 1}}]))
    return path


def test_a_chain_waits_and_goes_on(cli: Cli, settings: Path, steps: Path) -> None:
    """One command begins the run, one wakes it, one goes on with it; each is a process of its own."""
    begun = cli("chain", steps, "--durable", "order", "-c", settings, "--json")
    assert (begun.exit_code, json.loads(begun.stdout)["error"]["code"]) == (4, "run_waiting")
    [run] = json.loads(cli("runs", "list", "--state", "waiting", "-c", settings, "--json").stdout)["runs"]
    assert (run["id"], run["waits"][0]["name"]) == ("order", "go")
    assert "go" in cli("runs", "list", "-c", settings).stdout
    sent = cli("runs", "signal", "order", "go", "41", "-c", settings, "--json")
    assert json.loads(sent.stdout)["waited"] is True
    done = cli("runs", "resume", "--due", "-c", settings, "--json")
    assert json.loads(done.stdout)["runs"]["order"]["value"] == 42
    again = cli("runs", "resume", "order", "-c", settings)
    assert (again.exit_code, again.stdout) == (0, "42\n")
    shown = json.loads(cli("runs", "show", "order", "-c", settings, "--json").stdout)
    assert [call["tool"] for call in shown["calls"]] == ["math:add", "run:signal", "math:add"]
    assert cli("runs", "replay", "order", "-c", settings).exit_code == 0


def test_a_signal_with_a_key_twice_is_refused(cli: Cli, settings: Path, steps: Path) -> None:
    """A payload is JSON or a string: one that is almost JSON is not sent as a string."""
    assert cli("chain", steps, "--durable", "order", "-c", settings).exit_code == 4
    sent = cli("runs", "signal", "order", "go", '{"a": 1, "a": 2}', "-c", settings)
    assert (sent.exit_code, "the key 'a' is there twice" in sent.stderr) == (2, True)


def test_a_run_is_cancelled_and_deleted(cli: Cli, settings: Path, steps: Path) -> None:
    """A run that waits ends at once; only then it can be deleted."""
    assert cli("chain", steps, "--durable", "order", "-c", settings).exit_code == 4
    assert cli("runs", "delete", "order", "-c", settings).exit_code == 3
    assert json.loads(cli("runs", "cancel", "order", "-c", settings, "--json").stdout)["ended"] is True
    assert cli("runs", "delete", "order", "-c", settings).exit_code == 0
    assert "no runs" in cli("runs", "list", "-c", settings).stderr


def test_workflows_and_skills_are_durable_too(cli: Cli, settings: Path, tmp_path: Path) -> None:
    """The same ID gives the value again, with nothing called."""
    flow = tmp_path / "flow.workflow"
    flow.write_text(
        '+++\nname = "sum"\ndescription = "Adds up"\n+++\ninput a: integer\nreturn run("math:add", {a: a, b: 1})'
    )
    assert cli("workflow", "run", flow, "a=1", "--durable", "one", "-c", settings).stdout == "2\n"
    assert cli("skill", "run", flow, "a=2", "--durable", "two", "-c", settings).stdout == "3\n"
    assert cli("skill", "run", flow, "a=2", "--durable", "two", "-c", settings).stdout == "3\n"
    runs = json.loads(cli("runs", "list", "-c", settings, "--json").stdout)["runs"]
    assert [(run["id"], run["state"], run["calls"]) for run in runs] == [("two", "done", 1), ("one", "done", 1)]


def test_a_workflow_that_waits(cli: Cli, settings: Path, tmp_path: Path) -> None:
    """The check knows the tools of durable runs, a run that is not durable says so, and a resumed one prints."""
    flow = tmp_path / "flow.workflow"
    flow.write_text('print("begun")\nreturn run("run:input", {question: "How many?"})\n')
    assert cli("workflow", "check", flow, "-c", settings).exit_code == 0
    failed = cli("workflow", "run", flow, "-c", settings)
    assert failed.exit_code != 0
    assert "only a durable run has it" in failed.stderr
    waiting = cli("workflow", "run", flow, "--durable", "form", "-c", settings)
    assert (waiting.exit_code, "input:0.1" in waiting.stderr) == (4, True)
    assert cli("runs", "resume", "form", "-c", settings).exit_code == 4
    cli("runs", "signal", "form", "input:0.1", "3", "-c", settings)
    assert cli("runs", "resume", "form", "-c", settings).stdout == "begun\n3\n"


def test_code_is_durable_too(cli: Cli, settings: Path) -> None:
    """The program prints as ever."""
    code = "print('adding')\nreturn tools.math.add(a=1, b=2)"
    done = cli("code", "-e", code, "--durable", "sum", "-c", settings)
    assert (done.exit_code, done.stdout) == (0, "adding\n3\n")
    assert cli("runs", "replay", "sum", "-c", settings).exit_code == 0


def test_the_operator_sees_what_is_waited_for(cli: Cli, settings: Path) -> None:
    """Since when, until when and for whom a run waits is listed; so is a signal that it does not wait for."""
    code = "return tools.run('run:signal', {'name': 'go', 'timeout': 9000})"
    assert cli("code", "-e", code, "--durable", "order", "-c", settings).exit_code == 4
    assert json.loads(cli("runs", "signal", "order", "gone", "-c", settings, "--json").stdout)["waited"] is False
    listed = cli("runs", "list", "-c", settings).stdout
    assert all(name in listed for name in ("Caller", "Waits for", "Since", "Due"))
    [run] = json.loads(cli("runs", "list", "-c", settings, "--json").stdout)["runs"]
    assert run["waits"][0]["due"] - run["waits"][0]["since"] == 9000
    shown = cli("runs", "show", "order", "-c", settings).stderr
    assert "waits for go since 20" in shown
    assert "nothing has taken the signal gone, sent 20" in shown
    [kept] = json.loads(cli("runs", "show", "order", "-c", settings, "--json").stdout)["signals"]
    assert kept["name"] == "gone"


def test_what_cannot_be_meant(cli: Cli, settings: Path) -> None:
    """A run that there is not, and no run at all, are errors with a code."""
    assert cli("runs", "resume", "-c", settings).exit_code == 2
    unknown = cli("runs", "show", "nothing", "-c", settings, "--json")
    assert (unknown.exit_code, json.loads(unknown.stdout)["error"]["code"]) == (3, "run_not_found")


def test_code_that_sleeps_is_listed_with_its_due_time(
    cli: Cli, tmp_path: Path, tools_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is that of the state directory, where the settings name none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings = tmp_path / "toolexec.toml"
    settings.write_text(f'[sources]\npython = ["{tools_file}"]\n[durable]\nlinger = 0.05\n')
    code = "import time; time.sleep(3600)"
    assert cli("code", "-e", code, "--durable", "long", "-c", settings).exit_code == 4
    [run] = json.loads(cli("runs", "list", "-c", settings, "--json").stdout)["runs"]
    [wait] = run["waits"]
    assert (wait["kind"], wait["due"] - wait["since"]) == ("time", pytest.approx(3600))
