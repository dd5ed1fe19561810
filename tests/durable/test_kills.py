"""Runs survive the sudden end of their process: the exact result, and every effect once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.durable.host import opened

KINDS = ["chain", "workflow", "code"]
EXPECTED: dict[str, Any] = {
    "chain": 99,
    "workflow": [number + 100 for number in range(40)],
    "code": [[*range(10), *(number + 100 for number in range(10, 30))], 20],
}
EFFECTS = {
    "chain": [*range(100)],
    "workflow": [*range(40), *(number + 100 for number in range(40))],
    "code": [*range(30), *(number + 100 for number in range(10, 30))],
}
LONGEST = {"chain": 0.5, "workflow": 0.15, "code": 0.25}
"""About as many seconds as a run takes that is not killed."""


def host(directory: Path, kind: str, seconds: float | None) -> str:
    """Run a host and kill it after so many seconds, if it is not done by then; return what it has printed."""
    command = [sys.executable, "-m", "tests.durable.host", str(directory), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        begun = process.stdout.readline()
        assert begun == "begun\n"
        if seconds is not None:
            time.sleep(seconds)
            process.kill()
        return process.communicate(timeout=120)[0]


def survive(directory: Path, kind: str, kills: int, seed: int = 9) -> None:
    """Kill hosts of one run, until one ends, and begin new runs until *kills* were in time."""
    chance = random.Random(f"{kind} {seed}")
    done = 0
    for number in range(200):
        place = directory / str(number)
        place.mkdir()
        output = ""
        while not output and done < kills:
            output = host(place, kind, chance.uniform(0, LONGEST[kind]))
            done += not output
        output = output or host(place, kind, None)
        assert json.loads(output) == {"value": EXPECTED[kind], "error": None}
        effects = Counter(map(int, (place / "effects").read_text().split()))
        assert effects == Counter(EFFECTS[kind])
        if done >= kills:
            return
    raise AssertionError("the hosts were too quick to be killed")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_survives_two_kills(tmp_path: Path, kind: str) -> None:
    """A process is killed at a random moment, another one goes on, and what came of it can be replayed."""
    survive(tmp_path, kind, 2)
    before = (tmp_path / "0" / "effects").read_text()
    async with opened(tmp_path / "0") as ex:
        report = await ex.runs.replay("run")
    assert report.same, report.error
    assert (tmp_path / "0" / "effects").read_text() == before


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_twenty_kills(tmp_path: Path, kind: str, seed: int) -> None:
    """Twenty processes are killed at random moments; each run has its exact result, and no effect is doubled."""
    survive(tmp_path, kind, 4, seed)
