"""`--on-error undo` and `--dry-run`, of chains and of workflows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]

TOOLS = """
from pathlib import Path
from toolexec import tool

DONE = Path(__file__).with_name("done")

def note(text):
    with DONE.open("a") as file:
        file.write(text + "\\n")

@tool("trip:flight", meta={"toolexec/undo": "trip:cancel", "toolexec/dry_run": "trip:price"})
def flight(to: str) -> dict:
    note(f"flight {to}")
    return {"booking": 7}

@tool("trip:cancel")
def cancel(booking: int) -> None:
    note(f"cancel {booking}")

@tool("trip:price", read_only=True)
def price(to: str) -> str:
    return f"{to} costs 100"

@tool("trip:mail")
def mail() -> None:
    note("mail")

@tool("trip:fail")
def fail() -> None:
    raise ValueError("full")
"""
CHAIN = json.dumps([{"tool": "trip:flight", "args": {"to": "Bern"}}, {"tool": "trip:mail"}, {"tool": "trip:fail"}])
WORKFLOW = 'run("trip:flight", {to: "Bern"})\nrun("trip:mail")\nrun("trip:fail")\n'
TRIED = {"chain": CHAIN.split(", {")[0] + "]", "workflow run": 'return run("trip:flight", {to: "Bern"})'}
FAILS = {"chain": CHAIN, "workflow run": WORKFLOW}


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    """A file with tools that write down what they do."""
    file = tmp_path / "trips.py"
    file.write_text(TOOLS)
    return file


@pytest.mark.parametrize("command", FAILS)
def test_undo(cli: Cli, trips: Path, command: str) -> None:
    """Calls are undone, and those that could not be are reported."""
    words = (*command.split(), "-", "-c", trips, "--on-error", "undo")
    done = cli(*words, stdin=FAILS[command])
    assert done.exit_code == 1
    assert "✗ did not undo 1 trip:mail: trip:mail does not name a tool that undoes it" in done.stderr
    assert "✓ undid 0 trip:flight with trip:cancel" in done.stderr
    noted = trips.with_name("done")
    assert noted.read_text().split("\n") == ["flight Bern", "mail", "cancel 7", ""]
    data = json.loads(cli(*words, "--json", stdin=FAILS[command]).stdout)
    assert [(each["toolId"], each["ok"]) for each in data["undone"]] == [("trip:mail", False), ("trip:flight", True)]


@pytest.mark.parametrize("command", TRIED)
def test_dry_run(cli: Cli, trips: Path, command: str) -> None:
    """Nothing is done, and what cannot be tried is not begun."""
    words = (*command.split(), "-", "-c", trips, "--dry-run")
    done = cli(*words, stdin=TRIED[command])
    assert (done.exit_code, done.stdout.endswith("Bern costs 100\n")) == (0, True)
    refused = cli(*words, stdin=FAILS[command])
    assert refused.exit_code != 0
    assert "trip:mail cannot be tried" in refused.stderr
    assert not trips.with_name("done").exists()


def test_another_word_is_a_mistake(cli: Cli, trips: Path) -> None:
    """The exit code says that nothing has run."""
    assert cli("chain", "-", "-c", trips, "--on-error", "rollback", stdin=CHAIN).exit_code == 2
