"""A journal under faults, seed by seed: two owners use it at random beside a model of what it promises, and then its log
is cut and garbled, and its disk is full."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toolexec.durable.journal import CallRecord, RunRecord, Signal, Snapshot, Wait
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import JournalError, RunError

SEEDS = [seed if seed < 20 else pytest.param(seed, marks=pytest.mark.full) for seed in range(200)]
_ENDED = ("done", "failed", "cancelled")
_NAMES = ("go", "halt")


@dataclass
class Run:
    """What is promised of one run."""

    state: str = "running"
    holder: str = ""
    lease: float = 0.0
    cancel: bool = False
    names: tuple[str, ...] = ()
    calls: dict[str, tuple[str, Any]] = field(default_factory=dict)
    deliveries: list[list[str]] = field(default_factory=list)
    signals: dict[str, tuple[str, str]] = field(default_factory=dict)
    snapshot: int | None = None
    result: Any = None

    def fence(self, owner: str, *, cancelled_too: bool = False) -> str:
        """Return the code of the error that a write of *owner* gets; empty for none."""
        if self.holder != owner:
            return "run_cancelled" if self.state == "cancelled" else "run_lost"
        return "run_cancelled" if self.cancel and not cancelled_too else ""

    def view(self) -> Any:
        calls = [(step, *call) for step, call in self.calls.items()]
        signals = [(name, taken) for name, taken in self.signals.values()]
        return (self.state, self.holder, calls, list(self.deliveries), signals, self.snapshot, self.result)


def _read(journal: SQLiteJournal) -> dict[str, Any]:
    """Read from the journal what the model has."""
    found: dict[str, Any] = {}
    for listed in journal.runs():
        run = journal.get(listed.id)
        calls = journal.calls(run.id)
        assert [call.number for call in calls] == list(range(1, run.calls + 1))
        snapshot = journal.snapshot(run.id)
        found[run.id] = (
            run.state,
            run.owner,
            [(call.step, call.state, call.outcome) for call in calls],
            journal.deliveries(run.id),
            [(signal.name, signal.taken_by) for signal in journal.signals(run.id)],
            None if snapshot is None else snapshot.calls,
            run.result,
        )
    return found


class Simulation:
    """Two owners, each with the journal opened for itself, and the model."""

    def __init__(self, seed: int, path: Path) -> None:
        self.random = random.Random(seed)
        self.path = path
        self.runs: dict[str, Run] = {}
        self.now = 1000.0
        self.count = 0
        sync = "each" if seed % 4 == 0 else "batch"
        self.journals = {
            owner: SQLiteJournal(path, sync=sync, clock=lambda: self.now)  # type: ignore[arg-type]
            for owner in ("a", "b")
        }

    def close(self) -> None:
        for journal in self.journals.values():
            journal.close()

    def view(self) -> dict[str, Any]:
        return {run_id: run.view() for run_id, run in self.runs.items()}

    def step(self) -> None:
        """Let one owner do something, and expect of it what the model says."""
        self.now += self.random.choice((0.0, 0.1, 5.0))
        self.count += 1
        owner = self.random.choice("ab")
        if len(self.runs) < 3 and self.random.random() < 0.2:
            run_id = f"r{len(self.runs)}"
            self.journals[owner].create(RunRecord(id=run_id, kind="code", source="1", digest="d", settings={}))
            self.runs[run_id] = Run()
            return
        if not self.runs:
            return
        run_id = self.random.choice(list(self.runs))
        usual = (self.begin, self.end) * 4
        others = (self.claim, self.claim, self.renew, self.signal, self.take, self.suspend, self.save)
        rare = (self.finish, self.cancel) if self.random.random() < 0.2 else ()
        self.random.choice((*usual, *others, *rare))(self.journals[owner], owner, run_id, self.runs[run_id])

    def expect(self, code: str, use: Callable[[], Any]) -> bool:
        """Require that *use* fails with this code, or succeeds where there is none; return whether it did."""
        got = ""
        try:
            use()
        except RunError as error:
            got = error.code
        assert got == code
        return not got

    def claim(self, journal: SQLiteJournal, owner: str, run_id: str, run: Run) -> None:
        is_free = run.holder in ("", owner) or run.lease <= self.now or run.state in _ENDED
        if self.expect("" if is_free else "run_busy", lambda: journal.claim(run_id, owner, 10)):
            if run.state not in _ENDED:
                run.state, run.holder, run.lease = (
                    ("cancelled", "", 0) if run.cancel else ("running", owner, self.now + 10)
                )

    def renew(self, journal: SQLiteJournal, owner: str, run_id: str, run: Run) -> None:
        lease = self.random.choice((0, 20))
        if self.expect(run.fence(owner), lambda: journal.renew(run_id, owner, lease)):
            run.lease = self.now + lease

    def begin(self, journal: SQLiteJournal, owner: str, run_id: str, run: Run) -> None:
        open_calls = [step for step, (state, _) in run.calls.items() if state == "begun"]
        again = open_calls and self.random.random() < 0.1
        step = self.random.choice(open_calls) if again else str(self.count)
        delivered = [[str(self.count)]] if self.random.random() < 0.3 else []
        call = CallRecord(step=step, tool="t", definition="v", args="x" * self.random.choice((10, 2000)))
        if self.expect(run.fence(owner), lambda: journal.begin(run_id, owner, call, delivered)):
            run.calls[step] = ("begun", None)
            run.deliveries += delivered

    def end(self, journal: SQLiteJournal, owner: str, run_id: str, run: Run) -> None:
        open_calls = [step for step, (state, _) in run.calls.items() if state == "begun"]
        if open_calls:
            step = self.random.choice(open_calls)
            outcome = {"value": "y" * self.random.choice((1, 100, 9000)), "at": self.count}
            code = run.fence(owner, cancelled_too=True)
            if self.expect(code, lambda: journal.end(run_id, owner, step, "done", outcome)):
                run.calls[step] = ("done", outcome)

    def save(self, journal: SQLiteJournal, owner: str, run_id: str, run: Run) -> None:
        snapshot = Snapshot(calls=self.count, state={"x": "z" * 500})
        if self.expect(run.fence(owner), lambda: journal.save(run_id, owner, snapshot)):
            run.snapshot = self.count

    def signal(self, journal: SQLiteJournal, owner: str, run_id: str, run: Run) -> None:
        name = self.random.choice(_NAMES)
        code = "run_ended" if run.state in _ENDED else ""
        woken: list[bool] = []
        sent = Signal(id=str(self.count), name=name)
        if self.expect(code, lambda: woken.append(journal.signal(run_id, sent))):
            run.signals[sent.id] = (name, "")
            assert woken == [run.state == "waiting" and name in run.names]

    def take(self, journal: SQLiteJournal, owner: str, run_id: str, run: Run) -> None:
        name = self.random.choice(_NAMES)
        kept = [key for key, (sent, taken) in run.signals.items() if sent == name and not taken]
        took: list[Signal | None] = []
        if self.expect(run.fence(owner), lambda: took.append(journal.take(run_id, owner, str(self.count), name))):
            assert [signal and signal.id for signal in took] == [kept[0] if kept else None]
            if kept:
                run.signals[kept[0]] = (name, str(self.count))

    def suspend(self, journal: SQLiteJournal, owner: str, run_id: str, run: Run) -> None:
        wait = Wait(step="1", kind="signal", name=self.random.choice(_NAMES))
        there = any(name == wait.name and not taken for name, taken in run.signals.values())
        given_up: list[bool] = []
        if self.expect(run.fence(owner), lambda: given_up.append(journal.suspend(run_id, owner, [wait]))):
            assert given_up == [not there]
            if not there:
                run.state, run.holder, run.names = "waiting", "", (wait.name,)

    def finish(self, journal: SQLiteJournal, owner: str, run_id: str, run: Run) -> None:
        result = {"value": self.count}
        code = run.fence(owner, cancelled_too=True)
        if self.expect(code, lambda: journal.finish(run_id, owner, "done", result)):
            run.state, run.holder, run.result = "done", "", result

    def cancel(self, journal: SQLiteJournal, owner: str, run_id: str, run: Run) -> None:
        at_once = journal.cancel(run_id)
        if run.state not in _ENDED:
            assert at_once == (not run.holder or run.lease <= self.now)
            run.cancel = True
            if at_once:
                run.state, run.holder = "cancelled", ""


@contextmanager
def _simulated(seed: int, path: Path) -> Generator[Simulation]:
    simulation = Simulation(seed, path)
    try:
        yield simulation
    finally:
        simulation.close()


def _faults(rng: random.Random, log: bytes, marks: list[int]) -> Generator[tuple[int, bytes]]:
    """Yield logs that a crash or a power failure may leave, each with the place where it is another one."""
    for _ in range(8):
        number = rng.randrange(len(marks))
        place = rng.randint(marks[number - 1] if number else 0, marks[number])
        torn = bytearray(log)
        kind = rng.randrange(4)
        if kind == 0:
            del torn[place:]  # killed in the middle of a write
        elif kind == 1:
            torn[place:] = bytes(len(torn) - place)  # blocks that never reached the disk
        elif kind == 2 and place < len(torn):
            torn[place] ^= 1 << rng.randrange(8)
        else:
            torn[place : place + 512] = rng.randbytes(len(torn[place : place + 512]))
        if bytes(torn) != log:
            yield place, bytes(torn)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_torn_log_loses_nothing_from_before(seed: int, tmp_path: Path) -> None:
    """Whatever is cut or garbled, all that was written before that place is there, nothing of what comes after, and the
    journal goes on."""
    path = tmp_path / "runs.db"
    with _simulated(seed, path) as simulation:
        marks, views = [0], [{}]
        for _ in range(60):
            simulation.step()
            marks.append(Path(f"{path}-wal").stat().st_size)
            views.append(simulation.view())
        assert _read(simulation.journals["a"]) == views[-1]
        data, log = path.read_bytes(), Path(f"{path}-wal").read_bytes()
        assert marks == sorted(marks)
    for number, (place, torn) in enumerate(_faults(simulation.random, log, marks)):
        copy = tmp_path / f"{number}.db"
        for name, content in ((copy, data), (Path(f"{copy}-wal"), torn)):
            name.write_bytes(content)
            name.chmod(0o600)
        expected = views[max(index for index, mark in enumerate(marks) if mark <= place)]
        with SQLiteJournal(copy, keep=None) as journal:
            assert _read(journal) == expected
            journal.create(
                RunRecord(id="next", kind="code", source="1", digest="d", settings={}, owner="c", lease=1e12)
            )
            journal.begin("next", "c", CallRecord(step="1", tool="t", definition="", args=""))
            assert {key: value for key, value in _read(journal).items() if key != "next"} == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_disk_leaves_the_journal_as_it_was(seed: int, tmp_path: Path) -> None:
    """A write that finds no space, at any of its bytes, has not happened; with space the journal goes on."""
    path = tmp_path / "runs.db"
    with _simulated(seed, path) as simulation:
        rng = random.Random(seed)
        for _ in range(40):
            before, state, refusal = simulation.view(), simulation.random.getstate(), ""
            try:
                with ExitStack() as stack:
                    if rng.random() < 0.5:
                        _fill_up(stack, rng, simulation)
                    simulation.step()
            except JournalError as error:
                refusal = str(error)
            if refusal:
                assert "full" in refusal or "disk I/O error" in refusal
                assert _read(simulation.journals["b"]) == before
                simulation.random.setstate(state)
                simulation.step()
            assert _read(simulation.journals["a"]) == simulation.view()
        with ExitStack() as stack:
            _limit(stack, simulation, rng.randrange(9000))
            with pytest.raises(JournalError):
                simulation.journals["a"].create(RunRecord(id="last", kind="code", source="1", digest="d", settings={}))
    with SQLiteJournal(path) as journal:
        assert _read(journal) == simulation.view()


def _fill_up(stack: ExitStack, rng: random.Random, simulation: Simulation) -> None:
    """Leave space for a few bytes, or for no new page."""
    if rng.random() < 0.5:
        _limit(stack, simulation, rng.randrange(9000))
        return
    for journal in simulation.journals.values():
        with journal._database as database:
            assert database is not None
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            database.execute(f"PRAGMA max_page_count={pages}")
        stack.callback(database.execute, "PRAGMA max_page_count=1000000")


def _limit(stack: ExitStack, simulation: Simulation, count: int) -> None:
    """Let the log grow by so many bytes; the write that goes beyond them ends in the middle."""
    log = Path(f"{simulation.path}-wal").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log + count, limits[1]))


_WRITER = """
import sys
from toolexec.durable.journal import CallRecord, RunRecord
from toolexec.durable.sqlite import SQLiteJournal
journal = SQLiteJournal(sys.argv[1])
journal.create(RunRecord(id="r", kind="code", source="1", digest="d", settings={}, owner="me", lease=1e12))
for number in range(1_000_000):
    journal.begin("r", "me", CallRecord(step=str(number), tool="t", definition="", args=""))
    print("b", number, flush=True)
    journal.end("r", "me", str(number), "done", {"value": number})
    print("e", number, flush=True)
"""


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_a_killed_process_has_lost_nothing(seed: int, tmp_path: Path) -> None:
    """All that was reported to be written is there after `kill -9`, at most one record more."""
    path = tmp_path / "runs.db"
    rng = random.Random(seed)
    with subprocess.Popen([sys.executable, "-c", _WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(rng.randrange(1, 400)):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        # What is in the pipe was written before the kill; the last line may be cut.
        lines = [line for line in writer.stdout.read().splitlines() if line]
    with SQLiteJournal(path) as journal:
        calls = journal.calls("r")
        last = lines[-2] if len(lines) > 1 else "b 0"
        kind, _, number = last.partition(" ")
        assert len(calls) > int(number)
        assert all(call.state == "done" and call.outcome == {"value": int(call.step)} for call in calls[:-1])
        assert kind == "b" or calls[int(number)].state == "done"
