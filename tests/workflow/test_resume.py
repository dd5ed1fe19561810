"""A run can be stopped after any step and go on in another process, to the same result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.workflow.running import NOON, finish, program_of
from tests.workflow.test_machine import BLOCKS, VALUES

from toolexec.errors import CodeError, ConfigurationError
from toolexec.workflow.machine import Finished, Machine, restore

ROOT = Path(__file__).parents[2]
CALLS = (
    "xs := collect n in range(3) { run('echo', {n}) }\nprint(xs)\nxs",
    "parallel { a := run('echo', {n: 1})\n b := do { run('flaky') } }\n[a, b]",
    "r := parallel for i, x in ['a', 'b', 'c'] where x != 'b' limit 2 { print(i)\n run('read', {i, x}) }\nr",
    "retry 5 delay 2s { run('flaky', {a: 1}) }",
    "retry 3 { parallel for x in [1, 2] { retry 4 { run('flaky', {x}) } } }",
    "try { parallel { run('echo')\n run('bad') } } catch err { err }",
    "run('bad')",
    "x := {a: [1]}\nfor i in range(2) { x.a[0] = x.a[0] + i\n try { fail 'no' } catch e { x[e.message] = i } }\nx",
    "n := 0\nwhile n < 4 limit 9 { n = n + 1\n if n == 2 { continue }\n print(n) }\n__out = n",
    "input n: integer = 4\nx := n / 0",
)
SOURCES = [*CALLS, *(source for source, _ in (*VALUES, *BLOCKS))]


def saved_after_every_step(source: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the state after each step of a run, and what comes of the run."""
    machine = Machine(program_of(source), now=NOON)
    saved: list[dict[str, Any]] = []

    def keep(counts: dict[str, int]) -> None:
        saved.append({"state": json.loads(json.dumps(machine.state())), "counts": {**counts}})

    keep({})
    return saved, finish(machine, {}, steps=1, each=keep).summary()


def test_every_step_of_every_example_can_be_the_last_of_a_process() -> None:
    """The state after each step goes to another process as JSON, which comes to the same value, error and calls."""
    expected: list[dict[str, Any]] = []
    lines: list[str] = []
    for source in SOURCES:
        saved, result = saved_after_every_step(source)
        expected.append(result)
        lines.append(json.dumps({"source": source, "saved": saved}))
    done = subprocess.run(
        [sys.executable, "-m", "tests.workflow.resuming"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=ROOT,
    )
    for source, result, line in zip(SOURCES, expected, done.stdout.splitlines(), strict=True):
        for found in json.loads(line):
            assert (source, found["value"], found["error"]) == (source, result["value"], result["error"])
            assert result["printed"].endswith(found["printed"])
            assert set(found["calls"]) <= set(result["calls"])


def test_a_new_driver_gets_the_open_requests() -> None:
    """A restored machine says which calls and pauses it still waits for, under the same keys."""
    program = program_of("parallel { run('a')\n retry 2 delay 5s { fail 'x' }\n run('b', {n: 1}) timeout 3s }")
    machine = Machine(program, now=NOON)
    first = machine.advance()
    again = restore(program, json.loads(json.dumps(machine.state()))).requests()
    assert (again.calls, again.sleeps) == (first.calls, first.sleeps)
    assert [call.key for call in again.calls] == ["0.1/0.1", "0.1/2.1"]


def test_errors_come_back_as_errors_of_code() -> None:
    """After a restart an uncaught failure has the same code and message; the original exception is gone."""
    program = program_of("x := 1\nrun('bad')")
    machine = Machine(program, now=NOON)
    first = finish(machine, {}).error
    last = restore(program, json.loads(json.dumps(machine.state()))).advance()
    assert isinstance(last, Finished)
    assert isinstance(last.error, CodeError)
    assert first is not None
    assert last.error.to_dict() == first.to_dict()
    assert last.error.__cause__ is None


def test_a_state_belongs_to_its_program() -> None:
    """The state of one workflow is refused by another."""
    state = Machine(program_of("1"), now=NOON).state()
    with pytest.raises(ConfigurationError, match="another workflow"):
        restore(program_of("2"), state)
