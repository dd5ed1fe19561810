"""The limits of a queue over two worker processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from packages.temporal.tests.server.programs import make_office
from temporalio.service import RPCError
from tests.waiting import until

from toolexec import Exec, Step
from toolexec_temporal import TemporalEngine, TemporalSettings
from toolexec_temporal.settings import queue_of_places
from toolexec_temporal.slots import QueueSlots

_ROOT = Path(__file__).parents[4]


def start_worker(settings: TemporalSettings, log: Path, gate: Path, **limits: int) -> subprocess.Popen[bytes]:
    """Start a worker process, whose queue has these limits."""
    given = [json.dumps(asdict(settings)), str(log), str(gate), json.dumps(limits)]
    command = [sys.executable, "-m", "packages.temporal.tests.server.programs", "queue-worker", *given]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=_ROOT, env={**os.environ}, stdout=nowhere, stderr=nowhere)


@contextmanager
def ended(processes: Sequence[subprocess.Popen[bytes]]) -> Generator[None]:
    """Kill processes at the end."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait(30)


def most_at_once(log: Path) -> int:
    """Return how many runs were under way at the most."""
    now = most = 0
    for line in log.read_text().split() if log.exists() else ():
        now += 1 if line.startswith("+") else -1
        most = max(most, now)
    return most


@pytest.mark.parametrize(
    ("limits", "most"),
    [({"worker_concurrency": 1}, 2), ({"worker_concurrency": 2, "concurrency": 3}, 3), ({"concurrency": 1}, 1)],
    ids=["each", "together", "one"],
)
async def test_two_processes_keep_the_limits(
    limits: dict[str, int], most: int, settings: TemporalSettings, tmp_path: Path
) -> None:
    """As many of six runs as a queue allows on two workers are under way at once, and never more."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    with ended([start_worker(settings, log, gate, **limits) for _ in range(2)]):
        async with make_office(log, gate, settings, limits) as ex:
            for number in range(6):
                await ex.runs.enqueue("q", chain=[Step("office:stay", {"number": number})], run_id=f"r{number}")
            await until(lambda: most_at_once(log) == most, 0.05)
            gate.touch()
            for number in range(6):
                assert (await ex.runs.follow(f"r{number}")).value == number
    assert most_at_once(log) == most
    assert sorted(log.read_text().split()) == sorted(f"{sign}{number}" for sign in "+-" for number in range(6))


async def test_a_run_that_is_gone_without_a_word_leaves_its_slot(settings: TemporalSettings, tmp_path: Path) -> None:
    """Its worker was killed and the run terminated meanwhile, so that its slot is given back by the next one."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    limits = {"concurrency": 1}
    first = start_worker(settings, log, gate, **limits)
    with ended([first]):
        async with make_office(log, gate, settings, limits) as ex:
            await ex.runs.enqueue("q", chain=[Step("office:stay", {"number": 0})], run_id="r0")
            await until(lambda: most_at_once(log) == 1, 0.05)
            first.kill()
            first.wait(30)
            engine = ex.options.journal
            assert isinstance(engine, TemporalEngine)
            await (await engine.client()).get_workflow_handle(f"{settings.prefix}r0").terminate()
            gate.touch()
            with ended([start_worker(settings, log, gate, **limits)]):
                await ex.runs.enqueue("q", chain=[Step("office:stay", {"number": 1})], run_id="r1")
                assert (await ex.runs.follow("r1")).value == 1
    assert log.read_text().split() == ["+0", "+1", "-1"]


async def test_who_waits_for_a_slot_gets_it_by_priority(settings: TemporalSettings, tmp_path: Path) -> None:
    """Runs that wait on two workers for the one slot get it in the order of their priorities; a run that is cancelled
    waits for none."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    limits = {"concurrency": 1}
    with ended([start_worker(settings, log, gate, **limits) for _ in range(3)]):
        async with make_office(log, gate, settings, limits) as ex:
            runs = {0: 0, 1: 5, 2: 0, 3: 1}
            for at_once, (number, priority) in enumerate(runs.items()):
                steps = [Step("office:stay", {"number": number})]
                await ex.runs.enqueue("q", chain=steps, run_id=f"r{number}", priority=priority)
                await until(lambda at_once=at_once: _waiting(ex, min(at_once, 2)), 0.05)
                if number == 2:  # both workers that have no slot wait for one: with r1 and r2
                    await ex.runs.cancel("r2")
                    await until(lambda: _waiting(ex, 1), 0.05)
            await ex.runs.enqueue("q", chain=[Step("office:stay", {"number": 4})], run_id="r4", priority=-1)
            gate.touch()
            for number in (0, 1, 3, 4):
                assert (await ex.runs.follow(f"r{number}")).value == number
    begun = [int(line[1:]) for line in log.read_text().split() if line.startswith("+")]
    assert begun[0] == 0
    assert begun.index(3) < begun.index(1)
    assert sorted(begun) == [0, 1, 3, 4]
    assert most_at_once(log) == 1


async def _waiting(ex: Exec, number: int) -> bool:
    """Return whether so many runs wait for a slot of the queue."""
    engine = ex.options.journal
    assert isinstance(engine, TemporalEngine)
    name = f"{queue_of_places(engine.settings.task_queue, 'q')}-slots"
    try:
        state = await (await engine.client()).get_workflow_handle_for(QueueSlots.run, name).query(QueueSlots.state)
    except RPCError:  # no run has asked for one yet
        return False
    return len(state.waiting) == number
