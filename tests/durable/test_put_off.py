"""Runs in no queue that a worker cannot go on with."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.durable.queue_model import Clock

import toolexec.durable.clock as host_clock
from toolexec import Exec
from toolexec.code.executor import Executor
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import SandboxFailedError
from toolexec.run.code_shares import CodeShares
from toolexec.run.gate import Gate

WAITS = "tools.run('run:signal', {'name': 'go'})\nreturn 1"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of the journal and of this process."""
    made = Clock()
    monkeypatch.setattr(host_clock, "now", made)
    return made


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Any:
    """Return a journal with that clock."""
    with SQLiteJournal(tmp_path / "runs.db", clock=clock) as made:
        yield made


async def due(journal: SQLiteJournal, *run_ids: str) -> None:
    """Have runs of code be due that are in no queue."""
    async with Exec(journal=journal, linger=0.01) as ex:
        for run_id in run_ids:
            await ex.execute_code(WAITS, durable=run_id)
            assert await ex.runs.signal(run_id, "go")


async def test_a_run_that_no_sandbox_here_can_take_waits_for_a_decision(
    journal: SQLiteJournal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker without a sandbox tries the run once; the signal that decides has one with a sandbox go on with it."""
    await due(journal, "r")
    async with Exec(journal=journal, enable_code_execution=False) as ex:
        assert await ex.runs.resume_due() == {}
        assert "switched off" in caplog.text
        run = await ex.runs.get("r")
        assert (run.state, run.waits[0].name) == ("waiting", "retry")
        clock.now += 3600
        caplog.clear()
        assert (await ex.runs.resume_due(), caplog.text) == ({}, "")
        await ex.runs.signal("r", "retry")
    async with Exec(journal=journal) as ex:
        assert (await ex.runs.resume_due())["r"].value == 1


async def test_a_run_whose_sandbox_fails_is_not_tried_for_ever(
    journal: SQLiteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that says nothing about the run is none: the run waits for a decision."""
    tries: list[str] = []

    async def fail(executor: Executor, request: ExecuteRequest) -> CodeResult:
        tries.append(request.code)
        return CodeResult(error=SandboxFailedError("it is gone"), language="python")

    await due(journal, "r")
    monkeypatch.setattr(Executor, "execute", fail)
    async with Exec(journal=journal) as ex:
        assert [await ex.runs.resume_due(), await ex.runs.resume_due()] == [{}, {}]
        assert tries == [WAITS]
        assert (await ex.runs.get("r")).waits[0].name == "retry"


async def test_a_run_above_its_callers_share_is_tried_again_after_a_while(journal: SQLiteJournal, clock: Clock) -> None:
    """The worker tries it again by itself once there may be room: no decision is needed."""
    await due(journal, "a", "b")
    async with Exec(journal=journal, gate=Gate(code_shares=CodeShares(1))) as ex:
        (left,) = {"a", "b"} - (await ex.runs.resume_due()).keys()
        (wait,) = (await ex.runs.get(left)).waits
        assert (wait.kind, wait.due) == ("time", clock.now + 1)
        assert await ex.runs.resume_due() == {}
        clock.now += 2
        assert (await ex.runs.resume_due())[left].value == 1


async def test_a_damaged_run_keeps_no_others(
    journal: SQLiteJournal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker goes on with what can be read, and says which run cannot."""
    await due(journal, "bad", "good")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("UPDATE programs SET settings = '{' WHERE run = (SELECT num FROM runs WHERE id = 'bad')")
    async with Exec(journal=journal) as ex:
        assert {run_id: result.value for run_id, result in (await ex.runs.resume_due(1)).items()} == {"good": 1}
        assert "the run bad cannot be read" in caplog.text
