"""The limits of a queue over two worker processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from packages.temporal.tests.server.programs import make_office
from tests.waiting import until

from toolexec import Step
from toolexec_temporal import TemporalSettings

_ROOT = Path(__file__).parents[4]


@contextmanager
def workers(settings: TemporalSettings, log: Path, gate: Path) -> Generator[list[subprocess.Popen[bytes]]]:
    """Start two worker processes."""
    given = [json.dumps(asdict(settings)), str(log), str(gate)]
    command = [sys.executable, "-m", "packages.temporal.tests.server.programs", "queue-worker", *given]
    started = [
        subprocess.Popen(command, cwd=_ROOT, env={**os.environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait(30)


def most_at_once(log: Path) -> int:
    """Return how many runs were under way at the most."""
    now = most = 0
    for line in log.read_text().split() if log.exists() else ():
        now += 1 if line.startswith("+") else -1
        most = max(most, now)
    return most


async def test_two_processes_have_a_run_each(settings: TemporalSettings, tmp_path: Path) -> None:
    """With one place in each of two workers two runs of six are under way at once, and never more."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    with workers(settings, log, gate):
        async with make_office(log, gate, settings) as ex:
            for number in range(6):
                await ex.runs.enqueue("q", chain=[Step("office:stay", {"number": number})], run_id=f"r{number}")
            await until(lambda: most_at_once(log) == 2, 0.05)
            gate.touch()
            for number in range(6):
                assert (await ex.runs.follow(f"r{number}")).value == number
    assert most_at_once(log) == 2
    assert sorted(log.read_text().split()) == sorted(f"{sign}{number}" for sign in "+-" for number in range(6))
