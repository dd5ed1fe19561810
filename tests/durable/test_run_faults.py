"""Durable runs whose journal fails, or is taken away: a clear error, and nothing done twice."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec, Step
from toolexec.durable.journal import CallRecord, CallState
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import JournalError, RunError, RunWaitingError, SecretError
from toolexec.model.json_value import JSONObject


class FullDisk(SQLiteJournal):
    """Has room for so many writes of calls, and then none."""

    room = 1000

    def begin(self, run_id: str, owner: str, call: CallRecord, delivered: Sequence[Sequence[str]] = ()) -> None:
        """Write, if there is room."""
        self._use()
        super().begin(run_id, owner, call, delivered)

    def end(self, run_id: str, owner: str, step: str, state: CallState, outcome: JSONObject) -> None:
        """Write, if there is room."""
        self._use()
        super().end(run_id, owner, step, state, outcome)

    def _use(self) -> None:
        if not self.room:
            raise JournalError("the journal cannot be used: database or disk is full")
        self.room -= 1


PROGRAMS = {
    "chain": None,
    "workflow": 'for n in range(0, 4) { run("t:add", {n: n}) }\nreturn 3',
    "code": "for n in range(4):\n    try:\n        tools.t.add(n=n)\n    except ToolError:\n        pass\nreturn 3",
}


async def begin(ex: Exec, kind: str) -> Any:
    """Make four calls in a row, as the run `four`."""
    source = PROGRAMS[kind]
    if source is None:
        return await ex.run_chain([Step("t:add", {"n": n}) for n in range(4)], durable="four")
    if kind == "workflow":
        return await ex.run_workflow(source, durable="four")
    return await ex.execute_code(source, durable="four")


@pytest.mark.parametrize("room", [0, 1, 4, 5])
@pytest.mark.parametrize("kind", list(PROGRAMS))
async def test_a_full_disk_stops_a_run(tmp_path: Path, kind: str, room: int) -> None:
    """A call that cannot be recorded is not made, even for a program that handles every failure; with room it goes on."""
    done: list[int] = []

    def add(n: int) -> int:
        done.append(n)
        return n

    with FullDisk(tmp_path / "runs.db") as journal:
        async with Exec(journal=journal, linger=0.05) as ex:
            ex.add(add, "t:add")
            journal.room = room
            result = await begin(ex, kind)
            assert isinstance(result.error, JournalError)
            assert done == list(range((room + 1) // 2))
            journal.room = 1000
            result = await ex.runs.resume("four")
            if room % 2:  # the last call was made, and its end is not recorded
                assert isinstance(result.error, RunWaitingError)
                await ex.runs.signal("four", str(result.error.waits[0]["name"]), {"done": True, "value": done[-1]})
                result = await ex.runs.resume("four")
            assert (result.error, result.value, done) == (None, 3, [0, 1, 2, 3])


async def test_a_run_that_another_process_took_stops_at_once(tmp_path: Path) -> None:
    """The lease of a process that slept too long is over; what it does then is not written, and it ends."""
    path = tmp_path / "runs.db"
    hangs, done = asyncio.Event(), list[int]()

    async def add(n: int) -> int:
        done.append(n)
        if n == 0:
            await hangs.wait()
        return n

    async with Exec(journal=path) as ex:
        ex.add(add, "t:add")
        task = asyncio.ensure_future(ex.run_chain([Step("t:add", {"n": n}) for n in range(3)], durable="run"))
        await until(lambda: done)
        with SQLiteJournal(path) as journal:
            journal.renew("run", journal.get("run").owner, 0.0)
            journal.claim("run", "another", 30)
            hangs.set()
            result = await task
            assert isinstance(result.error, RunError)
            assert (result.error.code, done) == ("run_lost", [0])
            assert journal.get("run").owner == "another"


async def test_a_tool_that_ignores_its_cancellation_holds_up_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is cancelled ends, whatever its tool does then; the call has no outcome."""
    monkeypatch.setattr("toolexec.durable.run._PATIENCE", 0.05)
    hangs, began = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        began.set()
        while not hangs.is_set():
            try:
                await hangs.wait()
            except asyncio.CancelledError:
                continue

    async with Exec(journal=tmp_path / "runs.db", default_timeout=None) as ex:
        ex.add(stubborn, "t:stubborn")
        task = asyncio.ensure_future(ex.run_chain([Step("t:stubborn")], durable="run"))
        await until(began.is_set)
        await ex.runs.cancel("run")
        result = await task
        assert result.error is not None
        assert (result.error.code, (await ex.runs.get("run")).state) == ("run_cancelled", "cancelled")
        assert [call.state for call in await ex.runs.calls("run")] == ["begun"]
        hangs.set()


async def test_a_journal_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    """The error says so, and the file is as it was."""
    path = tmp_path / "runs.db"
    SQLiteJournal(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version=1000")
    before = path.read_bytes()
    async with Exec(journal=path) as ex:
        ex.add(lambda n: n, "t:add")
        with pytest.raises(JournalError, match="newer toolexec"):
            await ex.run_chain([Step("t:add", {"n": 1})], durable="run")
    assert path.read_bytes() == before


async def test_a_tool_that_is_gone_stops_a_run_before_it_goes_on(tmp_path: Path) -> None:
    """A run that has called a tool cannot be replayed without noticing that it went."""
    path = tmp_path / "runs.db"
    steps = [Step("t:add", {"n": 1}), Step("run:signal", {"name": "go"})]
    async with Exec(journal=path, linger=0.05) as ex:
        ex.add(lambda n: n, "t:add")
        await ex.run_chain(steps, durable="run")
    async with Exec(journal=path) as ex:
        result = await ex.runs.resume("run")
        assert isinstance(result.error, RunError)
        assert (result.error.code, "t:add" in str(result.error)) == ("run_changed", True)


async def test_the_address_of_a_database_may_be_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is resolved at the first durable run, and an error names what is missing."""
    monkeypatch.delenv("NO_SUCH_JOURNAL", raising=False)
    async with Exec(journal="secretref:env:NO_SUCH_JOURNAL") as ex:
        with pytest.raises(SecretError, match="NO_SUCH_JOURNAL"):
            await ex.runs.list()
