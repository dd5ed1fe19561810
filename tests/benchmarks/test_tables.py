"""Which programs a partial run takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.harness import PROGRAMS, select
from benchmarks.tables import ALL_GROUPS, MEASURES, groups_of, keys_of, measured_by, with_their_tables

ROOT = Path(__file__).parents[2]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_each_figure_has_a_program() -> None:
    """Every key of every table is measured by a program that the harness knows."""
    assert {program.name for program in PROGRAMS} == {*MEASURES}
    for group in ALL_GROUPS:
        for key in keys_of(group):
            assert measured_by(key) in MEASURES, key


@pytest.mark.parametrize(
    ("key", "program"),
    [
        ("calls.facade_echo", "calls"),
        ("code.process_start", "code-start"),
        ("workflow.parse_and_check", "workflow-runs"),
        ("peers.fastmcp_call", "code-fastmcp"),
        ("sandbox.docker.left", "sandbox-many-docker"),
        ("gate.retry_added", "resilience-cost"),
    ],
)
def test_the_longer_beginning_counts(key: str, program: str) -> None:
    """Of two programs that share a beginning, the rest of the key decides."""
    assert measured_by(key) == program


def test_a_program_comes_with_what_its_tables_compare_it_with() -> None:
    """A table has figures of one run, its peers' included."""
    names = {program.name for program in with_their_tables(select(["calls"]))}
    assert names == {"calls", "worker", "floor", "fastmcp", "pydantic-ai", "langchain"}
    assert [program.name for program in with_their_tables(select(["gate"]))] == ["gate"]
    assert [program.name for program in with_their_tables(select(["sandbox-docker"]))] == ["sandbox-docker"]
    assert with_their_tables(PROGRAMS) == [*PROGRAMS]
    assert len(groups_of(["calls"])) == 3


def test_an_unknown_program_gets_a_suggestion() -> None:
    """A misspelt name ends the command before anything is measured."""
    done = run("-m", "benchmarks", "--only", "mcp_cals")
    assert done.returncode == 2
    assert "no program is called 'mcp-cals'; did you mean mcp-calls?" in done.stderr
    assert done.stdout == ""


def test_the_default_gate_is_measured_beside_none() -> None:
    """One process gives the call with the default gate, without one, and the floor of both."""
    done = run("-m", "benchmarks.programs.default_gate", "--quick")
    assert done.returncode == 0, done.stderr
    samples = json.loads(done.stdout.splitlines()[-1])["samples"]
    (group,) = groups_of(["default-gate"])
    ours = {key for key in keys_of(group) if measured_by(key) == "default-gate"}
    assert set(samples) == ours
    assert len({len(taken) for taken in samples.values()}) == 1
