"""Runs that wait in a queue until a worker takes them, and schedules that make runs."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.durable.queue_model import Clock
from tests.waiting import until

import toolexec.durable.clock as host_clock
from toolexec import Exec, Step, tool
from toolexec.code.executor import Executor
from toolexec.code.limits import Limits
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.durable.journal import CallRecord, RunRecord
from toolexec.durable.queues import Queue
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import (
    ConfigurationError,
    JournalError,
    RunBusyError,
    RunError,
    SandboxFailedError,
    ToolExecError,
)
from toolexec.process.owner import this_owner
from toolexec.run.code_shares import CodeShares
from toolexec.run.gate import Gate
from toolexec.runtime.wasm import WasmBackend
from toolexec.testing import ScriptedSandbox

OLD = Path(__file__).with_name("journal_1.sql")
STEPS = [Step("fx:note", {"n": 1})]
ONE = Queue(concurrency=1)


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


def _exec(journal: Any, noted: list[int] | None = None, **queues: Queue) -> Exec:
    def note(n: int) -> int:
        if noted is not None:
            noted.append(n)
        return n

    ex = Exec(journal=journal, queues=queues, linger=0.01)
    ex.add(note, "fx:note")
    return ex


def _run(run_id: str, queue: str = "q", **parts: Any) -> RunRecord:
    return RunRecord(id=run_id, kind="chain", source="[]", digest="d", settings={}, queue=queue, **parts)


# -- the journal ------------------------------------------------------------------------------------------------------


def test_a_journal_of_before_queues_is_opened(tmp_path: Path) -> None:
    """Runs of then stay what they were, those that wait go on, and the journal has queues from then on."""
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(OLD.read_text())
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
    path.chmod(0o600)
    with SQLiteJournal(path, keep=None) as journal:
        states = {run.id: (run.state, run.queue, run.calls) for run in journal.runs()}
        assert states == {"waits": ("waiting", "", 1), "done": ("done", "", 1), "lost": ("running", "", 1)}
        assert journal.get("done").result == {"value": 3}
        assert [call.outcome for call in journal.calls("done")] == [{"value": 3}]
        assert journal.due(2e9) == ["lost", "waits"]
        assert journal.enqueue(_run("new")).state == "queued"
        assert journal.take_next("q", ONE, "w", 30) is not None


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of before is as it was when its tables cannot be made into ours."""
    import toolexec.durable.sqlite as module

    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(OLD.read_text())
    path.chmod(0o600)
    first, second = module._MIGRATIONS
    monkeypatch.setattr(module, "_MIGRATIONS", (first, f"{second};\nCREATE TABLE runs (x)"))
    with pytest.raises(JournalError, match="already exists"):
        SQLiteJournal(path)
    monkeypatch.undo()
    with SQLiteJournal(path) as journal:
        assert len(journal.runs()) == 3


def test_a_dead_worker_gives_its_run_to_the_next(journal: SQLiteJournal, clock: Clock) -> None:
    """A dead worker holds its place until its lease is over, and is seen as lost then; on the same machine at once."""
    for run_id in ("one", "two"):
        journal.enqueue(_run(run_id))
    assert journal.take_next("q", ONE, "elsewhere-1-1/x", 30) is not None
    assert journal.take_next("q", ONE, "w", 30) is None
    clock.now += 31
    [record] = journal.queues()
    assert (record.running, record.lost, record.queued) == (1, 1, 1)
    again = journal.take_next("q", ONE, f"{this_owner()}-gone/x", 30)
    assert (again and again.id, again and again.started) == ("one", 1_000_000.0)
    with pytest.raises(RunError, match="is lost"):
        journal.begin("one", "elsewhere-1-1/x", CallRecord(step="0", tool="t", definition="", args=""))


def test_a_clock_that_is_put_back_holds_a_rate_up_for_a_period(journal: SQLiteJournal, clock: Clock) -> None:
    """Runs that began in a time that is to come again count from now on."""
    limits = Queue(rate=(1, 10.0))
    for number in range(3):
        journal.enqueue(_run(f"{number}"))
    assert journal.take_next("q", limits, "w/0", 30)
    clock.now -= 86_400
    assert journal.take_next("q", limits, "w/1", 30) is None
    clock.now += 10
    assert journal.take_next("q", limits, "w/1", 30)


def test_a_cancelled_run_never_begins(journal: SQLiteJournal) -> None:
    """One that waits in a queue ends at once; it is not taken, and can be forgotten."""
    journal.enqueue(_run("one"))
    with pytest.raises(RunBusyError):
        journal.delete("one")
    assert journal.cancel("one")
    assert journal.take_next("q", ONE, "w", 30) is None
    assert journal.delete("one")


def test_what_is_queued_is_not_due_and_cannot_be_claimed(journal: SQLiteJournal) -> None:
    """Only its queue gives it away."""
    journal.enqueue(_run("one"))
    assert journal.due(2e9) == []
    with pytest.raises(RunBusyError, match="in its turn"):
        journal.claim("one", "w", 30)


@pytest.mark.parametrize(
    "limits",
    [
        {"concurrency": -1},
        {"worker_concurrency": 0},
        {"rate": (0, 1.0)},
        {"rate": (1, 0.0)},
        {"rate": (-1, 1.0)},
        {"rate": (1.5, 1.0)},
        {"rate": (1, float("inf"))},
        {"rate": (1,)},
        {"rate": "10/s"},
    ],
)
def test_limits_that_make_no_sense(limits: dict[str, Any]) -> None:
    """Each is refused where it is given, by its name."""
    with pytest.raises(ConfigurationError, match=next(iter(limits))):
        Queue(**limits)


# -- an Exec ----------------------------------------------------------------------------------------------------------


async def test_runs_wait_and_are_taken_in_order(journal: SQLiteJournal, clock: Clock) -> None:
    """The lowest priority first, then the oldest; one that is delayed after its time."""
    noted: list[int] = []
    async with _exec(journal, noted, q=ONE) as ex:
        for number, priority, delay in ((1, 0, 0.0), (2, 5, 0.0), (3, -1, 0.0), (4, -9, 60.0)):
            steps = [Step("fx:note", {"n": number})]
            run = await ex.runs.enqueue("q", chain=steps, run_id=f"r{number}", priority=priority, delay=delay)
            assert (run.state, run.owner) == ("queued", "")
        [(limits, record)] = (await ex.runs.queues()).values()
        assert (limits, record.queued, record.delayed) == (ONE, 4, 1)
        results = await ex.runs.resume_due()
        assert (noted, list(results)) == ([3, 1, 2], ["r3", "r1", "r2"])
        clock.now += 60
        await ex.runs.resume_due()
        assert noted[-1] == 4


async def test_an_id_is_one_run_in_all_queues(journal: SQLiteJournal) -> None:
    """The same again is the same run; another program, or another queue, is refused."""
    async with _exec(journal, p=Queue(), q=Queue()) as ex:
        first = await ex.runs.enqueue("q", chain=STEPS, run_id="r")
        assert await ex.runs.enqueue("q", chain=STEPS, run_id="r", priority=7) == first
        with pytest.raises(RunError, match="already, in the queue q") as caught:
            await ex.runs.enqueue("p", chain=STEPS, run_id="r")
        assert caught.value.code == "run_changed"
        with pytest.raises(RunError, match="begun with another source"):
            await ex.runs.enqueue("q", chain=[Step("fx:note", {"n": 2})], run_id="r")
        with pytest.raises(RunBusyError):
            await ex.run_chain(STEPS, durable="r")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queue": "mial"}, "no queue 'mial'; did you mean mail"),
        ({"delay": -1.0}, "delay must be 0 or more"),
        ({"priority": 2**31}, "at most 32 bits"),
        ({"run_id": "a\nb"}, "printable"),
        ({"code": "return 1"}, "one of code, workflow and chain, not code and chain"),
        ({"chain": None}, "chain must be a list"),
        ({"inputs": {}}, "only a workflow has inputs"),
        ({"timeout": 5.0}, "a chain has no setting timeout"),
    ],
)
async def test_what_cannot_be_queued(given: dict[str, Any], message: str, journal: SQLiteJournal) -> None:
    """The error says what to write, and nothing is written down."""
    async with _exec(journal, mail=Queue()) as ex:
        with pytest.raises(ConfigurationError, match=message):
            await ex.runs.enqueue(**{"queue": "mail", "chain": STEPS, **given})
        with pytest.raises(ConfigurationError, match="chain, not none"):
            await ex.runs.enqueue("mail")
        assert await ex.runs.list() == []


REFUSED: dict[str, Callable[[Exec], Awaitable[Any]]] = {
    "no sandbox": lambda ex: ex.execute_code("1", durable="order", profile="hardened"),
    "a limit": lambda ex: ex.execute_code("1", durable="order", limits=Limits(cpus=1.5)),
    "an unknown language": lambda ex: ex.execute_code("1", durable="order", language="cobol"),
    "a language that is not run again": lambda ex: ex.execute_code("1", durable="order", language="wasm"),
    "a path": lambda ex: ex.execute_code("1", durable="order", files={"a\\b": b""}),
    "a trial": lambda ex: ex.run_chain([Step("fx:note", {"n": 1})], durable="order", dry_run=True),
}


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ({"code": ""}, "code is required"),
        ({"code": "1", "timeout": -1.0}, "timeout must be above 0"),
        ({"workflow": "return 1", "timeout": 0.0}, "timeout must be above 0"),
        ({"code": "'\ud800'"}, "lone surrogate"),
        ({"code": "1", "profile": "loose"}, "unknown security profile 'loose'"),
        ({"code": "1", "files": {"../x": b""}}, "'../x' is not relative and plain"),
        ({"code": "1", "on_error": "undo"}, "on_error and dry_run are for workflows"),
        ({"workflow": "return 1", "on_error": "go on"}, "on_error"),
        ({"chain": STEPS, "on_error": "go on"}, "on_error .*must be one of"),
        ({"chain": STEPS, "dry_run": 1}, "dry_run"),
        ({"chain": [Step("fx:note", {"n": {"$ref": "later.n"}})]}, "'later.n' refers to no step"),
        ({"chain": [Step("fx:note", name="a"), Step("fx:note", name="a")]}, "the name 'a' is taken"),
        ({"chain": [Step("fx:note", {"n": 1}, retries=2)]}, "never retried"),
    ],
)
@pytest.mark.parametrize("way", ["queue", "schedule", "at once"])
async def test_a_program_that_no_worker_could_run_is_not_written_down(
    way: str, program: dict[str, Any], message: str, journal: SQLiteJournal
) -> None:
    """A program without meaning is refused where it is given, on every way: in a queue it would wait for ever, and a
    schedule would only make such runs."""
    async with _exec(journal, mail=Queue()) as ex:
        with pytest.raises(ToolExecError, match=message):
            if way == "queue":
                await ex.runs.enqueue("mail", **program)
            elif way == "schedule":
                await ex.schedules.add("tidy", every=60.0, **program)
            else:
                run: dict[str, Callable[..., Awaitable[Any]]] = {
                    "code": ex.execute_code,
                    "workflow": ex.run_workflow,
                    "chain": ex.run_chain,
                }
                (kind,) = run.keys() & program.keys()
                given = {name: value for name, value in program.items() if name != kind}
                await run[kind](program[kind], durable="order", **given)
        assert await ex.runs.list() == []
        assert await ex.schedules.list() == []


@pytest.mark.parametrize("begin", REFUSED.values(), ids=REFUSED)
async def test_a_run_that_is_refused_where_it_begins_is_not_written_down(
    begin: Callable[[Exec], Awaitable[Any]], journal: SQLiteJournal
) -> None:
    """A run whose beginning raises has called nothing and never goes on: no list has it, and no worker takes it."""
    noted: list[int] = []

    def note(n: int) -> None:
        noted.append(n)

    backends = {"standard": [WasmBackend()], "hardened": []}
    async with Exec(journal=journal, linger=0.01, runtime_backends=backends) as ex:
        ex.add(tool("fx:note", destructive=True)(note))
        with pytest.raises(ToolExecError):
            await begin(ex)
        assert (await ex.runs.list(), await ex.runs.resume_due(), noted) == ([], {}, [])
        assert (await ex.run_chain([Step("run:sleep", {"seconds": 0})], durable="order")).ok  # its ID is free


async def test_a_program_is_queued_for_the_sandboxes_of_workers(journal: SQLiteJournal) -> None:
    """A process that enqueues or schedules a program needs no sandbox that takes it, also where a gate decides."""
    lacking: dict[str, dict[str, Any]] = {
        "another": {"runtime_backends": [ScriptedSandbox()]},
        "none": {"enable_code_execution": False},
    }
    for name, settings in lacking.items():
        async with Exec(journal=journal, queues={"q": ONE}, gate=Gate(), **settings) as producer:
            await producer.runs.enqueue("q", code="return 1", language="javascript", run_id=name)
            await producer.schedules.add(name, every=60.0, queue="q", code="return 1", language="javascript")
    async with _exec(journal, q=ONE) as worker:
        results = await worker.runs.resume_due()
        assert (results["another"].value, results["none"].value) == (1, 1)


async def test_a_run_that_waits_holds_no_place(journal: SQLiteJournal) -> None:
    """Others go on meanwhile; it is the next one once it can."""
    noted: list[int] = []
    waits = [Step("run:signal", {"name": "go"}), Step("fx:note", {"n": 1})]
    async with _exec(journal, noted, q=ONE) as ex:
        await ex.runs.enqueue("q", chain=waits, run_id="waits")
        await ex.runs.enqueue("q", chain=[Step("fx:note", {"n": 2})], run_id="other")
        await ex.runs.resume_due()
        assert (noted, (await ex.runs.get("waits")).state) == ([2], "waiting")
        await ex.runs.signal("waits", "go")
        await ex.runs.enqueue("q", chain=[Step("fx:note", {"n": 3})], run_id="late", priority=-5)
        await ex.runs.resume_due()
        assert noted == [2, 1, 3]


async def test_workers_keep_the_limits_together(journal: SQLiteJournal) -> None:
    """Two workers never do more at once than the queue allows, and each run once."""
    at_once: Counter[str] = Counter()
    most, made = 0, []

    async def busy(n: int) -> int:
        nonlocal most
        at_once["now"] += 1
        most = max(most, at_once["now"])
        await asyncio.sleep(0.002)
        at_once["now"] -= 1
        made.append(n)
        return n

    limits = Queue(concurrency=3, worker_concurrency=2)
    execs = [Exec(journal=journal, queues={"q": limits}, linger=0.01) for _ in range(2)]
    for ex in execs:
        ex.add(busy, "fx:busy")
    for number in range(12):
        await execs[0].runs.enqueue("q", chain=[Step("fx:busy", {"n": number})])
    works = [asyncio.ensure_future(ex.runs.work(idle=0.005)) for ex in execs]
    await until(lambda: len(made) == 12)
    for work in works:
        work.cancel()
    await asyncio.gather(*works, return_exceptions=True)
    for ex in execs:
        await ex.aclose()
    assert sorted(made) == list(range(12))
    assert most <= 2  # both are one process


async def test_a_run_that_cannot_be_run_keeps_no_others(
    journal: SQLiteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """That one waits for a decision, with the error; the next one of its queue goes on."""
    async with _exec(journal, q=ONE) as ex:
        await ex.runs.enqueue("q", code="return 1", run_id="code")
        await ex.runs.enqueue("q", chain=STEPS, run_id="next")
    async with Exec(journal=journal, queues={"q": ONE}, enable_code_execution=False) as ex:
        ex.add(lambda n: n, "fx:note")
        results = await ex.runs.resume_due()
        assert results["next"].value == 1
        run = await ex.runs.get("code")
        assert (run.state, run.waits[0].name) == ("waiting", "retry")
        assert "switched off" in caplog.text


async def test_a_damaged_run_keeps_no_others(
    journal: SQLiteJournal, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged run takes no start of its queue's rate, waits for a decision, and goes on once it is as it was."""

    def write(settings: str) -> str:
        with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
            which = "WHERE run = (SELECT num FROM runs WHERE id = 'bad')"
            (was,) = database.execute(f"SELECT settings FROM programs {which}").fetchone()
            database.execute(f"UPDATE programs SET settings = ? {which}", (settings,))
        return was

    async with _exec(journal, q=Queue(concurrency=1, rate=(1, 60.0))) as ex:
        await ex.runs.enqueue("q", chain=STEPS, run_id="bad")
        await ex.runs.enqueue("q", chain=STEPS, run_id="next")
        was = write("{")
        assert {run_id: result.value for run_id, result in (await ex.runs.resume_due()).items()} == {"next": 1}
        assert "the run bad cannot be read" in caplog.text
        caplog.clear()
        clock.now += 3600
        assert (await ex.runs.resume_due(), caplog.text) == ({}, "")
        found = {run.id: (run.state, [wait.name for wait in run.waits]) for run in await ex.runs.list()}
        assert found == {"bad": ("waiting", ["retry"]), "next": ("done", [])}
        write(was)
        assert await ex.runs.signal("bad", "retry")
        assert (await ex.runs.resume_due())["bad"].value == 1


async def test_a_run_above_its_callers_share_is_tried_again(journal: SQLiteJournal, clock: Clock) -> None:
    """Waits until there may be room, not for a decision."""
    gate = Gate(code_shares=CodeShares(1))
    async with Exec(journal=journal, queues={"q": Queue()}, gate=gate) as ex:
        for run_id in ("a", "b"):
            await ex.runs.enqueue("q", code="return 1", run_id=run_id)
        first = await ex.runs.resume_due()
        (left,) = {"a", "b"} - first.keys()
        (wait,) = (await ex.runs.get(left)).waits
        assert (wait.kind, wait.due) == ("time", clock.now + 1)
        clock.now += 2
        assert (await ex.runs.resume_due())[left].value == 1


async def test_a_run_whose_sandbox_fails_is_not_tried_for_ever(
    journal: SQLiteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that says nothing about the run is none: the run waits for a decision."""
    tries: list[str] = []

    async def fail(executor: Executor, request: ExecuteRequest) -> CodeResult:
        tries.append(request.code)
        assert len(tries) < 3, "it is taken again at once"
        return CodeResult(error=SandboxFailedError("it is gone"), language="python")

    monkeypatch.setattr(Executor, "execute", fail)
    async with _exec(journal, q=ONE) as ex:
        await ex.runs.enqueue("q", code="return 1", run_id="r")
        await ex.runs.enqueue("q", chain=STEPS, run_id="next")
        assert (await ex.runs.resume_due()).keys() == {"next"}
        assert tries == ["return 1"]
        run = await ex.runs.get("r")
        assert (run.state, run.waits[0].name) == ("waiting", "retry")


async def test_follow_leaves_a_run_to_the_workers(journal: SQLiteJournal) -> None:
    """Following takes no part in the work, and has the result once that is there."""
    async with _exec(journal, q=ONE) as ex:
        await ex.runs.enqueue("q", chain=STEPS, run_id="r")
        following = asyncio.ensure_future(ex.runs.follow("r"))
        await asyncio.sleep(0)
        assert (await ex.runs.get("r")).state == "queued"
        await ex.runs.resume_due()
        assert (await following).value == 1


async def test_a_program_has_the_clock_of_its_beginning(journal: SQLiteJournal, clock: Clock) -> None:
    """Not of when it was put there."""
    async with _exec(journal, q=ONE) as ex:
        await ex.runs.enqueue("q", workflow="return now()", run_id="r")
        clock.now += 3600
        (result,) = (await ex.runs.resume_due()).values()
        assert "1970-01-12T14:46" in str(result.value), result
        assert (await ex.runs.replay("r")).same


@pytest.mark.parametrize(
    "program",
    [
        {"workflow": 'a := run("fx:at", {t: now()})\nb := run("fx:at", {t: "2"})\nreturn [a, b]'},
        {"code": 'import time\na = tools.fx.at(t=str(time.time()))\nreturn [a, tools.fx.at(t="2")]'},
    ],
    ids=["workflow", "code"],
)
async def test_a_fork_of_a_queued_run_has_its_clock(
    journal: SQLiteJournal, clock: Clock, program: dict[str, Any]
) -> None:
    """Makes the same calls up to where it leaves the run, and is in no queue."""
    async with _exec(journal, q=ONE) as ex:
        ex.add(lambda t: t, "fx:at")
        await ex.runs.enqueue("q", run_id="r", **program)
        clock.now += 3600
        (result,) = (await ex.runs.resume_due()).values()
        fork = await ex.runs.fork("r", at=2, answer="other")
        assert fork.result.error is None, fork.result.error
        assert fork.result.value == [result.value[0], "other"]
        assert (await ex.runs.get(fork.run_id)).queue == ""
        assert (await ex.runs.replay(fork.run_id)).same


async def test_without_a_journal_that_keeps_queues(tmp_path: Path) -> None:
    """A journal of one's own without those methods goes on as before."""

    class Plain:
        def __init__(self, inner: SQLiteJournal) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            if name in ("enqueue", "take_next", "queues", "fire", "schedules"):
                raise AttributeError(name)
            return getattr(self._inner, name)

    with SQLiteJournal(tmp_path / "runs.db") as inner:
        async with _exec(Plain(inner), q=ONE) as ex:
            with pytest.raises(ConfigurationError, match="keeps no queues"):
                await ex.runs.enqueue("q", chain=STEPS)


# -- schedules --------------------------------------------------------------------------------------------------------


async def test_each_time_makes_one_run(journal: SQLiteJournal, clock: Clock) -> None:
    """However many look, and however often; the name and the time are its ID."""
    noted: list[int] = []
    async with _exec(journal, noted) as ex, _exec(journal, noted) as other:
        added = await ex.schedules.add("tidy", every=60.0, chain=STEPS)
        assert added == await other.schedules.add("tidy", every=60.0, chain=STEPS)
        assert await ex.runs.resume_due() == {}
        clock.now += 60
        results = await ex.runs.resume_due() | await other.runs.resume_due()
        assert (list(results), noted) == (["tidy@1970-01-12T13:47:40Z"], [1])
        clock.now -= 120  # nothing is made again
        assert await ex.runs.resume_due() == {}
        [found] = await ex.schedules.list()
        assert (found.fired, found.missed, found.last) == (1, 0, 1_000_060.0)


async def test_two_that_look_at_once_make_one(journal: SQLiteJournal, clock: Clock) -> None:
    """The second finds that the first was there."""
    async with _exec(journal) as ex:
        schedule = await ex.schedules.add("tidy", every=60.0, chain=STEPS)
    clock.now += 60
    run = _run("tidy@1", queue="")
    assert journal.fire("tidy", schedule.due, [run], then=schedule.due + 60, missed=0, last=schedule.due)
    assert not journal.fire("tidy", schedule.due, [run], then=schedule.due + 60, missed=0, last=schedule.due)


async def test_a_schedule_that_is_always_late_is_reported(
    journal: SQLiteJournal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in the log, and for as long as it lasts in the list."""
    async with _exec(journal) as ex:
        await ex.schedules.add("tidy", every=1.0, chain=STEPS)
        for _ in range(4):
            clock.now += 5
            await ex.runs.resume_due()
        [found] = await ex.schedules.list()
        assert (found.fired, found.missed, found.late) == (4, 16, 4)
    reports = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert ["always late" in each.getMessage() for each in reports] == [True]


async def test_a_paused_schedule_makes_nothing_up(journal: SQLiteJournal, clock: Clock) -> None:
    """A paused one goes on with the next time after that; removed, it is gone, and its runs are not."""
    async with _exec(journal, q=Queue()) as ex:
        await ex.schedules.add("tidy", every=60.0, chain=STEPS, queue="q", missed="all")
        assert await ex.schedules.pause("tidy")
        clock.now += 600
        assert await ex.runs.resume_due() == {}
        assert await ex.schedules.pause("tidy", False)
        assert await ex.runs.resume_due() == {}
        clock.now += 60
        [run_id] = await ex.runs.resume_due()
        assert (await ex.runs.get(run_id)).queue == "q"
        assert await ex.schedules.remove("tidy")
        assert [await ex.schedules.remove("tidy"), await ex.schedules.pause("tidy")] == [False, False]
        assert len(await ex.runs.list()) == 1


async def test_another_schedule_of_the_name_is_refused(journal: SQLiteJournal) -> None:
    """Unless it is to be replaced."""
    async with _exec(journal) as ex:
        await ex.schedules.add("tidy", every=60.0, chain=STEPS)
        with pytest.raises(RunError, match="replace=True"):
            await ex.schedules.add("tidy", every=61.0, chain=STEPS)
        assert (await ex.schedules.add("tidy", every=61.0, chain=STEPS, replace=True)).timing.every == 61.0
        with pytest.raises(ConfigurationError, match="there is no queue 'x'"):
            await ex.schedules.add("other", every=60.0, chain=STEPS, queue="x")
        with pytest.raises(ConfigurationError, match="the name of a schedule"):
            await ex.schedules.add("", every=60.0, chain=STEPS)
        for seconds in ("0 0 7 * * 1", "0 7 * * 1 0"):
            with pytest.raises(ConfigurationError, match="has 6 fields, and a line of cron has 5"):
                await ex.schedules.add("other", cron=seconds, chain=STEPS)


def test_the_blocking_twins(journal: SQLiteJournal, clock: Clock) -> None:
    """`ex.sync` has all of it."""
    with _exec(journal, q=ONE).sync as ex:
        assert ex.runs.enqueue("q", chain=STEPS, run_id="r").state == "queued"
        assert ex.runs.queues()["q"][1].queued == 1
        assert ex.schedules.add("tidy", every=60.0, chain=STEPS).name == "tidy"
        assert ex.schedules.pause("tidy")
        assert [each.paused for each in ex.schedules.list()] == [True]
        assert ex.runs.resume_due()["r"].value == 1
        assert ex.schedules.remove("tidy")


# -- other processes --------------------------------------------------------------------------------------------------

_TAKER = """
import sys
from toolexec.durable.queues import Queue
from toolexec.durable.run import new_owner
from toolexec.durable.sqlite import SQLiteJournal

limits = Queue(concurrency=2)
with SQLiteJournal(sys.argv[1]) as journal:
    while any(record.queued or record.running for record in journal.queues()):
        owner = new_owner()
        run = journal.take_next("q", limits, owner, 30)
        if run is not None:
            if sys.argv[2] == "dies":
                break
            journal.finish(run.id, owner, "done", {})
            print(run.id)
"""


@pytest.mark.full
def test_processes_share_a_queue(tmp_path: Path) -> None:
    """Each run is taken by one of them; what one had when it died is taken by another at once."""
    path = tmp_path / "runs.db"
    with SQLiteJournal(path) as journal:
        for number in range(60):
            journal.enqueue(_run(f"{number}"))
    subprocess.run([sys.executable, "-c", _TAKER, path, "dies"], check=True, timeout=60)
    takers = [
        subprocess.Popen([sys.executable, "-c", _TAKER, path, "works"], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    taken = [word for taker in takers for word in taker.communicate(timeout=60)[0].split()]
    assert sorted(taken, key=int) == [str(number) for number in range(60)]
