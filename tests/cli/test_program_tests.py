"""Programs against their cassettes: `toolexec test`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
APP = """
from toolexec import tool

@tool("shop:orders", read_only=True)
def orders(days: int) -> list[int]:
    '''Lists orders.'''
    return [n for n in (3, 40, 65) if n > days]
"""
SKILL = '+++\nname = "late"\ndescription = "Lists late orders."\n+++\ninput days: integer\nreturn run("shop:orders", {days: days})\n'


@pytest.fixture
def place(cli: Cli, tmp_path: Path) -> Path:
    """A directory with a workflow and a skill that were recorded."""
    (tmp_path / "app.py").write_text(APP)
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "flow.workflow").write_text('return len(run("shop:orders", {days: 30}))\n')
    (tests / "late.workflow").write_text(SKILL)
    (tests / "late.expected.json").write_text('{"inputs": {"days": 50}}')
    (tests / "flow.expected.json").write_text("{}")
    done = cli("test", tests, "--mode", "record", "-c", tmp_path / "app.py")
    assert done.exit_code == 0, done.output
    return tests


def test_what_was_recorded_passes(cli: Cli, place: Path) -> None:
    """With a dot for each, and what is expected in a file."""
    done = cli("test", place)
    assert (done.exit_code, done.stdout) == (0, "..\n\n2 passed\n")
    assert json.loads((place / "late.expected.json").read_text()) == {"inputs": {"days": 50}, "value": [65]}


def test_a_difference_fails_with_a_diff(cli: Cli, place: Path) -> None:
    """The exit code is 1; an unknown call shows the nearest one."""
    (place / "flow.expected.json").write_text('{"value": 3}')
    (place / "late.workflow").write_text(SKILL.replace("days: days", "days: days + 1"))
    done = cli("test", place)
    assert done.exit_code == 1
    assert done.stdout.startswith("FF\n")
    assert "\n-3\n+2\n" in done.stdout
    assert "days is 51, and was 50" in done.stdout
    assert done.stdout.endswith("\n2 failed, 0 passed\n")


def test_json_and_unused_calls(cli: Cli, place: Path) -> None:
    """The document has every test; `--strict` makes calls that are not made failures."""
    (place / "flow.workflow").write_text("return 2\n")
    done = cli("test", place, "--json")
    document = json.loads(done.stdout)
    assert (document["passed"], document["failed"], done.exit_code) == (2, 0, 0)
    assert document["tests"][0]["unused"] == ["shop:orders {'days': 30}"]
    assert cli("test", place, "--strict").exit_code == 1


def test_a_directory_without_tests_is_a_mistake(cli: Cli, tmp_path: Path) -> None:
    """The message says how to record one."""
    (tmp_path / "x.workflow").write_text("return 1")
    done = cli("test", tmp_path)
    assert done.exit_code == 2
    assert "--mode record" in done.stderr
