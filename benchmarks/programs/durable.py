"""Durable and recorded runs: what the journal adds to a call, going on with a run of 1,000 calls, a stop in the
middle of it, a list of 10,000 runs."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from time import perf_counter, process_time, time

from benchmarks.meter import Meter, run_program
from toolexec import Exec
from toolexec.durable.journal import CallRecord, Journal, RunRecord, RunState, Wait
from toolexec.durable.sqlite import SQLiteJournal

CALLS = 1000
RUNS = 10_000
OPEN: tuple[RunState, ...] = ("running", "waiting")
OUTCOME = {"value": {"sum": 5, "text": "twelve words of an answer, as most tools give one"}}


def run(run_id: str) -> RunRecord:
    """A run that its creator owns."""
    return RunRecord(id=run_id, kind="code", source="x = 1", digest="d", settings={}, owner="me", lease=time() + 3600)


def call(step: str) -> CallRecord:
    """A call as the engine records it."""
    return CallRecord(step=step, tool="math:add", definition="0" * 32, args="1" * 32, sent=f"r/{step}", began=time())


def calls(meter: Meter, directory: Path) -> None:
    """One call, begun and ended, and how long its slowest ones take."""
    for sync in ("batch", "each"):
        with SQLiteJournal(directory / f"{sync}.db", sync=sync) as journal:
            journal.create(run("r"))
            for number in range(200 if meter.quick or sync == "each" else 3000):
                started = perf_counter()
                journal.begin("r", "me", call(str(number)))
                journal.end("r", "me", str(number), "done", OUTCOME)
                meter.record(f"durable.call_{sync}", perf_counter() - started)


def floor(meter: Meter, directory: Path) -> None:
    """The least that SQLite takes for that: a row written, and then its outcome, each committed."""
    with closing(sqlite3.connect(directory / "floor.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        database.execute("CREATE TABLE calls (id INTEGER PRIMARY KEY, step TEXT, tool TEXT, args TEXT, outcome TEXT)")
        for number in range(200 if meter.quick else 3000):
            started = perf_counter()
            database.execute("INSERT INTO calls VALUES (?, ?, 'math:add', ?, NULL)", (number, str(number), "1" * 32))
            database.execute("UPDATE calls SET outcome = ? WHERE id = ?", (str(OUTCOME), number))
            meter.record("durable.floor", perf_counter() - started)


def reading(meter: Meter, directory: Path) -> None:
    """What going on with a run reads of its journal."""
    with SQLiteJournal(directory / "read.db") as journal:
        journal.create(run("r"))
        for number in range(CALLS):
            journal.begin("r", "me", call(str(number)), [[str(number - 1)]])
            journal.end("r", "me", str(number), "done", OUTCOME)
        for _ in range(5 if meter.quick else 20):
            started = perf_counter()
            journal.claim("r", "me", 60)
            assert len(journal.calls("r")) == len(journal.deliveries("r")) == CALLS
            meter.record("durable.read", perf_counter() - started)


def fill(journal: Journal) -> None:
    """Many runs that are open, half of which wait."""
    for number in range(RUNS):
        journal.create(run(f"run-{number}"))
        if number % 2:
            wait = Wait(step="3", kind="approval", name="approve:3", details={"tool": "shop:pay"})
            journal.suspend(f"run-{number}", "me", [wait])


def listing(meter: Meter, journal: Journal, name: str) -> None:
    """All of them, the first page, and one from the middle on."""
    middle = journal.runs(states=OPEN, limit=RUNS)[RUNS // 2].created
    for _ in range(5 if meter.quick else 20):
        started, worked = perf_counter(), process_time()
        assert len(journal.runs(states=OPEN, limit=RUNS)) == RUNS
        meter.record(f"{name}.list", perf_counter() - started)
        meter.record(f"{name}.list@cpu", process_time() - worked)
        started = perf_counter()
        assert len(journal.runs(states=OPEN)) == 100
        meter.record(f"{name}.list_page", perf_counter() - started)
        started = perf_counter()
        assert len(journal.runs(states=OPEN, before=middle)) == 100
        meter.record(f"{name}.list_middle", perf_counter() - started)


async def add(a: int, b: int = 0) -> int:
    """Add, on the event loop."""
    return a + b


async def workflows(meter: Meter, directory: Path) -> None:
    """A workflow of 1,000 calls beside the same without a journal, and again from its journal alone."""
    source = f'for i in range({CALLS}) {{ run("math:add", {{a: i, b: 2}}) }}'
    async with Exec(journal=directory / "workflow.db", max_tool_calls=CALLS) as ex:
        ex.add(add, "math:add")
        await ex.run_workflow(source)
        for turn in range(2 if meter.quick else 8):
            started = perf_counter()
            (await ex.run_workflow(source)).raise_for_error()
            middle = perf_counter()
            (await ex.run_workflow(source, durable=f"w{turn}")).raise_for_error()
            added = (perf_counter() - middle) - (middle - started)
            meter.record("durable.call_added", added / CALLS)
            started = perf_counter()
            report = await ex.runs.replay(f"w{turn}")
            meter.record("durable.replay", perf_counter() - started)
            assert report.same, report
            assert report.calls == CALLS


async def recording(meter: Meter, directory: Path) -> None:
    """The same workflow recorded, beside itself without, and a stop in the middle of the record."""
    source = f'for i in range({CALLS}) {{ run("math:add", {{a: i, b: 2}}) }}'
    path = directory / "recorded.db"
    async with (
        Exec(max_tool_calls=CALLS) as plain,
        Exec(journal=path, record=1, max_tool_calls=CALLS) as recorded,
    ):
        for ex in (plain, recorded):
            ex.add(add, "math:add")
            (await ex.run_workflow(source)).raise_for_error()
        for _ in range(2 if meter.quick else 8):
            started = perf_counter()
            (await plain.run_workflow(source)).raise_for_error()
            middle = perf_counter()
            (await recorded.run_workflow(source)).raise_for_error()
            added = (perf_counter() - middle) - (middle - started)
            meter.record("durable.recorded_added", added / CALLS)
            latest = (await recorded.runs.list())[0].id
            started = perf_counter()
            async with recorded.runs.debug(latest) as session:
                stop = await session.to_call(CALLS // 2)
            meter.record("durable.stop", perf_counter() - started)
            assert stop.reason == "call", stop


async def main(meter: Meter) -> None:
    """All of it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        calls(meter, directory)
        floor(meter, directory)
        reading(meter, directory)
        with SQLiteJournal(directory / "list.db") as journal:
            fill(journal)
            listing(meter, journal, "durable")
        await workflows(meter, directory)
        await recording(meter, directory)


if __name__ == "__main__":
    run_program(main)
