"""The methods of a journal in SQL, for the stores that are databases."""

# ruff: noqa: S608 - what is put into statements are the names of columns

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias

from toolexec.durable.journal import CallRecord, CallState, RunRecord, RunState, Signal, Snapshot, Wait
from toolexec.durable.rows import (
    CALL_COLUMNS,
    RUN_COLUMNS,
    SIGNAL_COLUMNS,
    Row,
    call_of,
    from_json,
    mark_of,
    program_of,
    result_of,
    row_of_call,
    run_of,
    runs_of,
    signal_of,
    snapshot_of,
    to_text,
    verify,
    wait_names,
    waits_text,
)
from toolexec.errors import JournalError, RunBusyError, RunError
from toolexec.model.json_value import JSONObject
from toolexec.process.owner import is_orphan

DAY: Final = 86_400.0
ENDED: Final = ("done", "failed", "cancelled")
STATES: Final = ("queued", "running", "waiting", *ENDED)
_MADE_ROOM_FOR: Final = 2
_FORGOTTEN: Final = 100
"""How many recorded runs are forgotten at once at most."""

_WIDTH: Final = RUN_COLUMNS.count(",") + 1
_INSERT_RUN: Final = f"INSERT INTO runs ({RUN_COLUMNS}) VALUES ({', '.join('?' * _WIDTH)}) ON CONFLICT DO NOTHING"
_SELECT_RUN: Final = (
    f"SELECT {RUN_COLUMNS}, source, settings, mark, result, result_mark "
    "FROM runs JOIN programs ON programs.run = runs.num WHERE runs.id = ?"
)
_FENCE: Final = "SELECT num, calls, state, owner, cancel FROM runs WHERE id = ?"
_HOLDER: Final = "SELECT num, state, owner, wake, cancel FROM runs WHERE id = ?"
_INSERT_CALL: Final = (
    "INSERT INTO calls (id, run, step, state, began, tool, definition, args, sent, place, mark) "
    "VALUES (?, ?, ?, 'begun', ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, step) DO NOTHING"
)
_BEGIN_AGAIN: Final = (
    "UPDATE calls SET began = ?, tool = ?, definition = ?, args = ?, sent = ?, place = ?, mark = ? "
    "WHERE run = ? AND step = ? AND state = 'begun'"
)
_END_CALL: Final = (
    "UPDATE calls SET state = ?, ended = ?, outcome = ?, outcome_mark = ? "
    "WHERE run = ? AND step = ? AND state = 'begun'"
)


class Rows(Protocol):
    """What a statement found."""

    @property
    def rowcount(self) -> int:
        """How many rows it has changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> Any:
        """Return all rows that are left."""
        ...


Execute: TypeAlias = Callable[[str, Sequence[Any]], Rows]
"""Runs one statement of a transaction; its parameters are written as `?`."""


class SQLJournal(ABC):
    """A `Journal` in a database: the statements are here, transactions and the tables in its subclasses.

    The row of a run is what all its writers lock. A column `wake` says when it could go on: at the end of the lease
    while it runs, and when a wait is over while it waits.
    """

    is_remote: bool = False
    keep: float | None
    """How many seconds a run that has ended is kept."""
    _lock: ClassVar[str] = ""
    """What makes a SELECT hold its row until the transaction ends."""
    _bytewise: ClassVar[str] = ""
    """What has strings compared byte by byte."""

    @abstractmethod
    def _reading(self, op: str) -> AbstractContextManager[Execute]:
        """Begin a transaction that reads, of the method *op*; raises JournalError for all that fails in it."""

    @abstractmethod
    def _writing(self, op: str) -> AbstractContextManager[Execute]:
        """Begin a transaction that writes, and waits for others that do; nothing is written when it is left with an
        error."""

    @abstractmethod
    def _now(self) -> float:
        """Return the seconds since 1970 by the clock that all processes have in common."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- runs ---------------------------------------------------------------------------------------------------

    def create(self, run: RunRecord) -> RunRecord:
        """Implement `Journal.create`."""
        now = self._now()
        with self._writing("create") as execute:
            self._make_room(execute, now)
            return self._insert(execute, run, "running", run.lease if run.owner else 0.0, now)

    def _insert(self, execute: Execute, run: RunRecord, state: RunState, wake: float | None, now: float) -> RunRecord:
        """Write down a new run; return it, or the one that has its ID."""
        created = run.created or now
        settings = to_text(run.settings)
        while not execute(
            _INSERT_RUN,
            (
                *(run.id, run.kind, run.digest, run.caller, state, created, now, run.owner, wake),
                *(0, "", 0, run.queue, run.priority, 0.0),
            ),
        ).rowcount:
            if found := _find(execute, run.id):
                return found
            created += 1e-6  # no two runs have the same, as lists go on after one
        (num,) = execute("SELECT num FROM runs WHERE id = ?", (run.id,)).fetchone()
        execute(
            "INSERT INTO programs (run, source, settings, mark) VALUES (?, ?, ?, ?)",
            (num, run.source, settings, mark_of(run.source, settings)),
        )
        return get_run(execute, run.id)

    def get(self, run_id: str) -> RunRecord:
        """Implement `Journal.get`."""
        with self._reading("get") as execute:
            return get_run(execute, run_id)

    def runs(
        self,
        *,
        states: Sequence[RunState] = (),
        caller: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[RunRecord]:
        """Implement `Journal.runs`."""
        where = "state = ?" if caller is None else "state = ? AND caller = ?"
        values: list[Any] = [] if caller is None else [caller]
        if before is not None:
            where += " AND created < ?"
            values.append(before)
        query = f"SELECT {RUN_COLUMNS} FROM runs WHERE {where} ORDER BY created DESC LIMIT ?"
        found: list[Row] = []
        with _collector_paused():
            with self._reading("runs") as execute:
                for state in dict.fromkeys(states or STATES):  # one by one, as each is in order in the index
                    found += execute(query, (state, *values, max(0, limit))).fetchall()
            found.sort(key=_created, reverse=True)
            return runs_of(found[: max(0, limit)])

    def claim(self, run_id: str, owner: str, lease: float) -> RunRecord:
        """Implement `Journal.claim`."""
        now = self._now()
        with self._writing("claim") as execute:
            num, state, holder, wake, cancel = self._held(execute, run_id)
            if state in ENDED:
                return get_run(execute, run_id)
            if state == "queued":
                raise RunBusyError(
                    f"the run {run_id} has not begun: a worker takes it from its queue in its turn; toolexec runs work "
                    "is one",
                    op="claim",
                    details={"run_id": run_id, "state": state},
                )
            if holder != owner and not is_free(holder, wake, now):
                raise RunBusyError(
                    f"another process runs {run_id}", op="claim", details={"run_id": run_id, "owner": holder}
                )
            if cancel:
                cancel_run(execute, num, now)
            else:
                execute(
                    "UPDATE runs SET state = 'running', owner = ?, wake = ?, waits = '', updated = ? WHERE num = ?",
                    (owner, now + lease, now, num),
                )
            return get_run(execute, run_id)

    def renew(self, run_id: str, owner: str, lease: float) -> None:
        """Implement `Journal.renew`."""
        with self._writing("renew") as execute:
            num, _ = self._owned(execute, run_id, owner)
            execute("UPDATE runs SET wake = ? WHERE num = ?", (self._now() + lease, num))

    # -- calls --------------------------------------------------------------------------------------------------

    def calls(self, run_id: str, after: int = 0) -> list[CallRecord]:
        """Implement `Journal.calls`."""
        with self._reading("calls") as execute:
            num = _number(execute, run_id)
            rows = execute(
                f"SELECT {CALL_COLUMNS} FROM calls WHERE id > ? AND id < ? ORDER BY id",
                ((num << 32) + after, (num + 1) << 32),
            ).fetchall()
        return [call_of(row) for row in rows]

    def deliveries(self, run_id: str) -> list[list[str]]:
        """Implement `Journal.deliveries`."""
        with self._reading("deliveries") as execute:
            num = _number(execute, run_id)
            rows = execute("SELECT answers, mark FROM deliveries WHERE run = ? ORDER BY number", (num,)).fetchall()
        groups: list[list[str]] = []
        for answers, mark in rows:
            what = f"a delivery of the run {run_id}"
            verify(mark, what, answers)
            groups += from_json(answers, what)
        return groups

    def begin(self, run_id: str, owner: str, call: CallRecord, delivered: Sequence[Sequence[str]] = ()) -> None:
        """Implement `Journal.begin`."""
        now = call.began or self._now()
        row = row_of_call(call)
        with self._writing("begin") as execute:
            num, calls = self._owned(execute, run_id, owner)
            if execute(_INSERT_CALL, ((num << 32) + calls + 1, num, call.step, now, *row)).rowcount:
                execute("UPDATE runs SET calls = ?, updated = ? WHERE num = ?", (calls + 1, now, num))
            elif not execute(_BEGIN_AGAIN, (now, *row, num, call.step)).rowcount:
                raise _misused(run_id, f"the call {call.step} has an outcome already, and cannot begin again")
            if delivered:
                _deliver(execute, num, delivered)

    def end(self, run_id: str, owner: str, step: str, state: CallState, outcome: JSONObject) -> None:
        """Implement `Journal.end`."""
        if state == "begun":
            raise _misused(run_id, f"the call {step} cannot end as begun")
        text = to_text(outcome)
        with self._writing("end") as execute:
            num, _ = self._owned(execute, run_id, owner, cancelled_too=True)
            values = (state, self._now(), text, mark_of(state, text), num, step)
            if execute(_END_CALL, values).rowcount:
                return
            found = execute("SELECT state, outcome FROM calls WHERE run = ? AND step = ?", (num, step)).fetchone()
            if found is None:
                raise _misused(run_id, f"no call {step} was begun")
            if tuple(found) != (state, text):
                raise _misused(run_id, f"the call {step} has another outcome already")

    # -- states and waits ---------------------------------------------------------------------------------------

    def save(self, run_id: str, owner: str, snapshot: Snapshot) -> None:
        """Implement `Journal.save`."""
        text = to_text(snapshot.state)
        with self._writing("save") as execute:
            num, _ = self._owned(execute, run_id, owner)
            execute(
                "INSERT INTO snapshots (run, calls, state, mark) VALUES (?, ?, ?, ?) ON CONFLICT (run) DO UPDATE "
                "SET calls = excluded.calls, state = excluded.state, mark = excluded.mark",
                (num, snapshot.calls, text, mark_of(str(snapshot.calls), text)),
            )

    def snapshot(self, run_id: str) -> Snapshot | None:
        """Implement `Journal.snapshot`."""
        with self._reading("snapshot") as execute:
            num = _number(execute, run_id)
            row = execute("SELECT calls, state, mark FROM snapshots WHERE run = ?", (num,)).fetchone()
        return None if row is None else snapshot_of(row, run_id)

    def suspend(self, run_id: str, owner: str, waits: Sequence[Wait], delivered: Sequence[Sequence[str]] = ()) -> bool:
        """Implement `Journal.suspend`."""
        text = waits_text(waits)
        names, steps = {wait.name for wait in waits if wait.name}, {wait.step for wait in waits}
        wake = min((wait.due for wait in waits if wait.due is not None), default=None)
        with self._writing("suspend") as execute:
            num, _ = self._owned(execute, run_id, owner)
            kept = execute("SELECT DISTINCT name, taken_by FROM signals WHERE run = ?", (num,)).fetchall()
            if any(taken_by in steps if taken_by else name in names for name, taken_by in kept):
                return False  # one that a step has just taken is on its way to the program
            execute(
                "UPDATE runs SET state = 'waiting', owner = '', wake = ?, waits = ?, updated = ? WHERE num = ?",
                (wake, text, self._now(), num),
            )
            if delivered:
                _deliver(execute, num, delivered)
            return True

    def signal(self, run_id: str, signal: Signal) -> bool:
        """Implement `Journal.signal`."""
        payload = to_text(signal.payload)
        with self._writing("signal") as execute:
            row = execute(f"SELECT num, state, waits FROM runs WHERE id = ?{self._lock}", (run_id,)).fetchone()
            if row is None:
                raise _not_found(run_id)
            num, state, waits = row
            if state in ENDED:
                raise RunError(
                    f"the run {run_id} has ended ({state}); nothing waits for a signal",
                    code="run_ended",
                    op="signal",
                    details={"run_id": run_id, "state": state},
                )
            execute(
                f"INSERT INTO signals (run, {SIGNAL_COLUMNS}) VALUES ({', '.join('?' * 8)}) "
                "ON CONFLICT (run, id) DO NOTHING",
                (
                    *(num, signal.id, signal.name, payload, signal.sent or self._now(), signal.sender, ""),
                    mark_of(signal.id, signal.name, payload),
                ),
            )
            kept = execute("SELECT name, taken_by FROM signals WHERE run = ? AND id = ?", (num, signal.id)).fetchone()
            if state != "waiting" or kept[1] or kept[0] not in wait_names(waits):
                return False
            execute("UPDATE runs SET wake = 0 WHERE num = ?", (num,))
            return True

    def signals(self, run_id: str) -> list[Signal]:
        """Implement `Journal.signals`."""
        with self._reading("signals") as execute:
            num = _number(execute, run_id)
            rows = execute(f"SELECT {SIGNAL_COLUMNS} FROM signals WHERE run = ? ORDER BY seq", (num,)).fetchall()
        return [signal_of(row) for row in rows]

    def take(self, run_id: str, owner: str, step: str, name: str) -> Signal | None:
        """Implement `Journal.take`."""
        query = f"SELECT seq, {SIGNAL_COLUMNS} FROM signals WHERE run = ? AND "
        with self._writing("take") as execute:
            num, _ = self._owned(execute, run_id, owner)
            row = execute(query + "taken_by = ?", (num, step)).fetchone()
            if row is None:
                row = execute(query + "taken_by = '' AND name = ? ORDER BY seq LIMIT 1", (num, name)).fetchone()
                if row is None:
                    return None
                execute("UPDATE signals SET taken_by = ? WHERE seq = ?", (step, row[0]))
        signal_id, name, payload, sent, sender, _, mark = row[1:]
        return signal_of((signal_id, name, payload, sent, sender, step, mark))

    def due(self, now: float, limit: int = 100) -> list[str]:
        """Implement `Journal.due`."""
        with self._reading("due") as execute:
            query = "SELECT id FROM runs WHERE queue = '' AND wake <= ? ORDER BY wake LIMIT ?"
            rows = execute(query, (now, max(0, limit))).fetchall()
            found = dict.fromkeys([run_id for (run_id,) in rows])
            for process in _processes(execute):
                if len(found) >= limit:
                    break
                if is_orphan(process):
                    rows = execute(
                        "SELECT id FROM runs WHERE owner <> '' AND owner >= ? AND owner < ? AND queue = '' LIMIT ?",
                        (process, _after(process), limit),
                    ).fetchall()
                    found |= dict.fromkeys([run_id for (run_id,) in rows])
        return list(found)[: max(0, limit)]

    # -- the end ------------------------------------------------------------------------------------------------

    def finish(
        self,
        run_id: str,
        owner: str,
        state: RunState,
        result: JSONObject,
        delivered: Sequence[Sequence[str]] = (),
    ) -> None:
        """Implement `Journal.finish`."""
        if state not in ENDED:
            raise _misused(run_id, f"a run cannot end as {state}")
        text = to_text(result)
        with self._writing("finish") as execute:
            num, _ = self._owned(execute, run_id, owner, cancelled_too=True)
            execute(
                "UPDATE runs SET state = ?, owner = '', wake = NULL, waits = '', updated = ? WHERE num = ?",
                (state, self._now(), num),
            )
            execute("UPDATE programs SET result = ?, result_mark = ? WHERE run = ?", (text, mark_of(text), num))
            if delivered:
                _deliver(execute, num, delivered)

    def cancel(self, run_id: str) -> bool:
        """Implement `Journal.cancel`."""
        now = self._now()
        with self._writing("cancel") as execute:
            num, state, holder, wake, _ = self._held(execute, run_id)
            if state in ENDED:
                return state == "cancelled"
            if is_free(holder, wake, now):
                cancel_run(execute, num, now)
                return True
            execute("UPDATE runs SET cancel = 1 WHERE num = ?", (num,))
            return False

    def delete(self, run_id: str) -> bool:
        """Implement `Journal.delete`."""
        with self._writing("delete") as execute:
            row = execute(f"{_HOLDER}{self._lock}", (run_id,)).fetchone()
            if row is None:
                return False
            if row[1] not in ENDED:
                raise RunBusyError(
                    f"the run {run_id} has not ended; cancel it first", op="delete", details={"run_id": run_id}
                )
            _delete(execute, row[0])
            return True

    # -- recorded runs ------------------------------------------------------------------------------------------

    def record(self, run: RunRecord, calls: Sequence[CallRecord], delivered: Sequence[Sequence[str]]) -> None:
        """Implement `RecordingStore.record`."""
        now, result = self._now(), to_text(run.result or {})
        with self._writing("record") as execute:
            self._make_room(execute, now)
            self._insert(execute, run, run.state, None, now)
            num = _number(execute, run.id)
            execute("UPDATE runs SET calls = ? WHERE num = ?", (len(calls), num))
            execute("UPDATE programs SET result = ?, result_mark = ? WHERE run = ?", (result, mark_of(result), num))
            for number, call in enumerate(calls, 1):
                execute(_INSERT_CALL, ((num << 32) + number, num, call.step, call.began, *row_of_call(call)))
                if call.outcome is not None:
                    text = to_text(call.outcome)
                    execute(_END_CALL, (call.state, call.ended, text, mark_of(call.state, text), num, call.step))
            if delivered:
                _deliver(execute, num, delivered)

    def forget_recorded(self, keep: int, before: float) -> int:
        """Implement `RecordingStore.forget_recorded`."""
        recorded = f"id {self._bytewise} >= 'recorded:' AND id {self._bytewise} < 'recorded;'"
        with self._writing("forget_recorded") as execute:
            row = execute(
                f"SELECT created FROM runs WHERE {recorded} ORDER BY created DESC LIMIT 1 OFFSET ?", (keep,)
            ).fetchone()
            last = before if row is None else max(before, row[0] + 5e-7)  # no two were created within a millionth
            rows = execute(
                f"SELECT num FROM runs WHERE {recorded} AND created < ? ORDER BY created LIMIT ?", (last, _FORGOTTEN)
            ).fetchall()
            for (num,) in rows:
                _delete(execute, num)
        return len(rows)

    @abstractmethod
    def close(self) -> None:
        """Implement `Journal.close`."""

    # -- what several of them do --------------------------------------------------------------------------------

    def _owned(self, execute: Execute, run_id: str, owner: str, *, cancelled_too: bool = False) -> tuple[int, int]:
        """Return the number of the owner's run and of its calls, and keep others from writing to it."""
        row = execute(f"{_FENCE}{self._lock}", (run_id,)).fetchone()
        if row is None:
            raise _not_found(run_id)
        num, calls, state, holder, cancel = row
        if holder != owner or not owner or (cancel and not cancelled_too):
            ours = bool(owner) and holder == owner
            raise _refused(run_id, cancelled=ours or state == "cancelled", holder=holder)
        return num, calls

    def _held(self, execute: Execute, run_id: str) -> Row:
        row = execute(f"{_HOLDER}{self._lock}", (run_id,)).fetchone()
        if row is None:
            raise _not_found(run_id)
        return row

    def _make_room(self, execute: Execute, now: float) -> None:
        """Forget a few runs that ended long ago: each new one does that, so that no call waits for many."""
        if self.keep is None:
            return
        for state in ENDED:
            rows = execute(
                "SELECT num FROM runs WHERE state = ? AND created < ? AND updated < ? ORDER BY created LIMIT ?",
                (state, now - self.keep, now - self.keep, _MADE_ROOM_FOR),
            ).fetchall()
            for (num,) in rows:
                _delete(execute, num)


@contextmanager
def _collector_paused() -> Generator[None]:
    """Do not look for garbage while thousands of objects are made at once: none of them is any."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _created(row: Row) -> float:
    return row[5]


def _find(execute: Execute, run_id: str) -> RunRecord | None:
    row = execute(_SELECT_RUN, (run_id,)).fetchone()
    if row is None:
        return None
    source, settings = program_of(row[_WIDTH : _WIDTH + 3], run_id)
    return run_of(row[:_WIDTH], source, settings, result_of(row[_WIDTH + 3 :], run_id))


def get_run(execute: Execute, run_id: str) -> RunRecord:
    """Return a run; raises RunError for one that is not there."""
    found = _find(execute, run_id)
    if found is None:
        raise _not_found(run_id)
    return found


def _number(execute: Execute, run_id: str) -> int:
    row = execute("SELECT num FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise _not_found(run_id)
    return row[0]


def _deliver(execute: Execute, num: int, delivered: Sequence[Sequence[str]]) -> None:
    text = to_text([list(group) for group in delivered])
    (last,) = execute("SELECT max(number) FROM deliveries WHERE run = ?", (num,)).fetchone()
    execute(
        "INSERT INTO deliveries (run, number, answers, mark) VALUES (?, ?, ?, ?)",
        (num, (last or 0) + 1, text, mark_of(text)),
    )


def cancel_run(execute: Execute, num: int, now: float) -> None:
    """Have a run end as cancelled."""
    execute(
        "UPDATE runs SET state = 'cancelled', owner = '', wake = NULL, waits = '', cancel = 1, updated = ? "
        "WHERE num = ?",
        (now, num),
    )


def _delete(execute: Execute, num: int) -> None:
    execute("DELETE FROM calls WHERE id > ? AND id < ?", (num << 32, (num + 1) << 32))
    for table in ("deliveries", "snapshots", "signals", "programs"):
        execute(f"DELETE FROM {table} WHERE run = ?", (num,))
    execute("DELETE FROM runs WHERE num = ?", (num,))


def is_free(holder: str, wake: float | None, now: float) -> bool:
    """Return whether anyone may claim a run: it has no owner, its lease is over, or its process has died."""
    return not holder or wake is None or wake <= now or is_orphan(_process(holder))


def _process(owner: str) -> str:
    """Return the process of an owner, which may go on with a `/` and what distinguishes several in one process."""
    return owner.partition("/")[0]


def _after(process: str) -> str:
    """Return what comes behind all owners that *process* is, as strings are ordered."""
    return process + "0"  # which comes behind `/`


def _processes(execute: Execute) -> Sequence[str]:
    """Return the processes that own runs; a look into the index for each."""
    found: list[str] = []
    last = ""
    while True:
        (owner,) = execute("SELECT min(owner) FROM runs WHERE owner <> '' AND owner > ?", (last,)).fetchone()
        if owner is None:
            return found
        found.append(_process(owner))
        last = _after(found[-1])


def _not_found(run_id: str) -> RunError:
    return RunError(f"there is no run {run_id}", code="run_not_found", details={"run_id": run_id})


def _refused(run_id: str, *, cancelled: bool, holder: str) -> RunError:
    if cancelled:
        return RunError(f"the run {run_id} was cancelled", code="run_cancelled", details={"run_id": run_id})
    whose = "another process has it now" if holder else "it has been given up, or has ended"
    return RunError(
        f"the run {run_id} is lost: {whose}; nothing was written", code="run_lost", details={"run_id": run_id}
    )


def _misused(run_id: str, what: str) -> JournalError:
    return JournalError(f"the run {run_id}: {what}", op="record", details={"run_id": run_id})
