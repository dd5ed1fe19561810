"""Queues and schedules of durable runs in SQL: what a worker takes next, and what a schedule has made."""

# ruff: noqa: S608 - what is put into statements are the names of columns

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from toolexec.durable.journal import RunRecord, decision
from toolexec.durable.queues import Queue, QueueRecord
from toolexec.durable.rows import Row, from_json, mark_of, to_text, verify, waits_text
from toolexec.durable.schedules import Schedule, Timing
from toolexec.durable.sql import Execute, SQLJournal, cancel_run, get_run, is_free
from toolexec.errors import JournalError

logger: logging.Logger = logging.getLogger(__name__)
_READY: Final = (
    "SELECT 1 FROM runs WHERE queue = ? AND queue <> '' AND (state = 'queued' AND wake IS NULL OR wake <= ?) LIMIT 1"
)
_RUNNING: Final = (
    "SELECT id, num, priority, owner, wake FROM runs WHERE queue = ? AND queue <> '' AND state = 'running'"
)
_WOKEN: Final = (
    "SELECT id, num, priority FROM runs WHERE queue = ? AND queue <> '' AND state = 'waiting' AND wake <= ? "
    "ORDER BY priority, num LIMIT 1"
)
_NEXT: Final = (
    "SELECT id, num FROM runs WHERE queue = ? AND queue <> '' AND state = 'queued' AND wake IS NULL "
    "ORDER BY priority, num LIMIT 1"
)
_TAKE: Final = (
    "UPDATE runs SET state = 'running', owner = ?, wake = ?, waits = '', updated = ?, "
    "started = CASE WHEN started = 0 THEN ? ELSE started END WHERE num = ?"
)
_PUT_OFF: Final = "UPDATE runs SET state = 'waiting', owner = '', wake = NULL, waits = ?, updated = ? WHERE num = ?"
_COUNTS: Final = (
    "SELECT queue, state, count(*), sum(CASE WHEN wake IS NULL OR wake <= ? THEN 0 ELSE 1 END), min(created) FROM runs "
    "WHERE queue <> '' AND state IN ('queued', 'waiting') GROUP BY queue, state"
)
_SCHEDULE: Final = "name, timing, program, mark, due, created, paused, last, fired, missed, late"


class QueuedSQLJournal(SQLJournal):
    """A journal in a database that keeps queues and schedules, too. Implements `QueueStore`."""

    # -- queues -------------------------------------------------------------------------------------------------

    def enqueue(self, run: RunRecord, *, ready: float = 0.0) -> RunRecord:
        """Implement `QueueStore.enqueue`."""
        now = self._now()
        with self._writing("enqueue") as execute:
            self._make_room(execute, now)
            return self._insert(execute, run, "queued", ready if ready > now else None, now)

    def take_next(self, name: str, limits: Queue, owner: str, lease: float) -> RunRecord | None:
        """Implement `QueueStore.take_next`."""
        now = self._now()
        with self._reading("take_next") as execute:  # most looks find nothing, and write nothing
            if not execute(_READY, (name, now)).fetchone() and not _lost(execute, name, now):
                return None
        with self._writing("take_next") as execute:
            self._lock_queue(execute, name)
            execute(
                "UPDATE runs SET wake = NULL WHERE queue = ? AND queue <> '' AND state = 'queued' AND wake <= ?",
                (name, now),
            )
            while (run_id := self._next(execute, name, limits, owner, now)) is not None:
                num, state, holder, wake, cancel = self._held(execute, run_id)
                if cancel:
                    cancel_run(execute, num, now)
                elif state == "queued" or (state in ("running", "waiting") and _can_go_on(state, holder, wake, now)):
                    execute(_TAKE, (owner, now + lease, now, now, num))
                    if (run := _read(execute, run_id, num, now)) is None:
                        continue
                    if state == "queued" and limits.rate is not None:
                        execute("INSERT INTO starts (queue, moment) VALUES (?, ?)", (name, now))
                    return run
        return None

    def _lock_queue(self, execute: Execute, name: str) -> None:
        """Have no other process take from the queue until the transaction ends."""
        if self._lock:  # else a transaction has the whole database
            execute("INSERT INTO queues (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
            execute(f"SELECT name FROM queues WHERE name = ?{self._lock}", (name,)).fetchone()

    def _next(self, execute: Execute, name: str, limits: Queue, owner: str, now: float) -> str | None:
        """Return the ID of the run that may begin or go on now."""
        lost: list[Row] = []
        live, here, process = 0, 0, owner.partition("/")[0]
        for row in execute(_RUNNING, (name,)).fetchall():
            if is_free(row[3], row[4], now):
                lost.append(row)
            else:
                live += 1
                here += row[3].partition("/")[0] == process
        if here >= limits.worker_concurrency or 0 < limits.concurrency <= live:
            return None
        woken = execute(_WOKEN, (name, now)).fetchone()
        begun = [*lost, *([] if woken is None else [woken])]
        if begun:
            return min(begun, key=lambda row: (row[2], row[1]))[0]
        found = execute(_NEXT, (name,)).fetchone()
        return None if found is None or not _rate_allows(execute, name, limits, now) else found[0]

    def queues(self) -> list[QueueRecord]:
        """Implement `QueueStore.queues`."""
        now = self._now()
        found: dict[str, dict[str, Any]] = {}
        with self._reading("queues") as execute:
            counts = execute(_COUNTS, (now,)).fetchall()
            running = execute(
                "SELECT queue, owner, wake, started FROM runs WHERE queue <> '' AND state = 'running'", ()
            ).fetchall()
        for name, state, count, delayed, since in counts:
            facts = found.setdefault(name, {})
            facts[state] = count
            if state == "queued":
                facts |= {"delayed": int(delayed), "queued_since": since}
        for name, owner, wake, started in running:
            facts = found.setdefault(name, {})
            facts["running"] = facts.get("running", 0) + 1
            facts["lost"] = facts.get("lost", 0) + is_free(owner, wake, now)
            facts["running_since"] = min(facts.get("running_since", started), started)
        return [QueueRecord(name=name, **found[name]) for name in sorted(found)]

    # -- schedules ----------------------------------------------------------------------------------------------

    def add_schedule(self, schedule: Schedule, *, replace: bool) -> Schedule:
        """Implement `QueueStore.add_schedule`."""
        timing, program = to_text(schedule.timing.to_dict()), to_text(schedule.program)
        created = schedule.created or self._now()
        row = (schedule.name, timing, program, mark_of(schedule.name, timing, program), schedule.due, created)
        with self._writing("add_schedule") as execute:
            if replace:
                execute("DELETE FROM schedules WHERE name = ?", (schedule.name,))
            execute(
                f"INSERT INTO schedules ({_SCHEDULE}) VALUES (?, ?, ?, ?, ?, ?, ?, NULL, 0, 0, 0) "
                "ON CONFLICT (name) DO NOTHING",
                (*row, int(schedule.paused)),
            )
            found = execute(f"SELECT {_SCHEDULE} FROM schedules WHERE name = ?", (schedule.name,)).fetchone()
        return _schedule_of(found)

    def schedules(self) -> list[Schedule]:
        """Implement `QueueStore.schedules`."""
        with self._reading("schedules") as execute:
            rows = execute(f"SELECT {_SCHEDULE} FROM schedules ORDER BY name", ()).fetchall()
        return [_schedule_of(row) for row in rows]

    def remove_schedule(self, name: str) -> bool:
        """Implement `QueueStore.remove_schedule`."""
        with self._writing("remove_schedule") as execute:
            return execute("DELETE FROM schedules WHERE name = ?", (name,)).rowcount > 0

    def pause_schedule(self, name: str, paused: bool, due: float) -> bool:
        """Implement `QueueStore.pause_schedule`."""
        with self._writing("pause_schedule") as execute:
            changed = execute(
                "UPDATE schedules SET paused = ?, late = 0, due = CASE WHEN paused = 0 THEN due ELSE ? END "
                "WHERE name = ?",
                (int(paused), due, name),
            )
            return changed.rowcount > 0

    def fire(
        self, name: str, due: float, runs: Sequence[RunRecord], *, then: float, missed: int, last: float | None
    ) -> bool:
        """Implement `QueueStore.fire`."""
        now = self._now()
        with self._writing("fire") as execute:
            query = f"SELECT due, paused, late FROM schedules WHERE name = ?{self._lock}"
            found = execute(query, (name,)).fetchone()
            if found is None or found[1] or found[0] != due:
                return False
            self._make_room(execute, now)
            for run in runs:
                self._insert(execute, run, "queued" if run.queue else "running", None if run.queue else 0.0, now)
            late = found[2] + 1 if missed or len(runs) > 1 else 0
            execute(
                "UPDATE schedules SET due = ?, fired = fired + ?, missed = missed + ?, late = ?, "
                "last = COALESCE(?, last) WHERE name = ?",
                (then, len(runs), missed, late, last, name),
            )
            return True


def _read(execute: Execute, run_id: str, num: int, now: float) -> RunRecord | None:
    """Return the run; None for one that is damaged, which waits for a decision from now on: it would be the next one of
    its queue for ever."""
    try:
        return get_run(execute, run_id)
    except JournalError as error:
        if not error.details.get("damaged"):
            raise
        logger.warning("the run %s cannot be read, and waits for a decision: %s", run_id, error)
        execute(_PUT_OFF, (waits_text([decision(error, now)]), now, num))
        return None


def _lost(execute: Execute, name: str, now: float) -> bool:
    """Return whether the process of a run has died."""
    return any(is_free(row[3], row[4], now) for row in execute(_RUNNING, (name,)).fetchall())


def _can_go_on(state: str, holder: str, wake: float | None, now: float) -> bool:
    """Return whether a run that has begun can go on: one that waits has something to go on with."""
    return is_free(holder, wake, now) if state == "running" else wake is not None and wake <= now


def _rate_allows(execute: Execute, name: str, limits: Queue, now: float) -> bool:
    """Return whether one more run may begin now."""
    if limits.rate is None:
        return True
    number, seconds = limits.rate
    # A clock that was put back leaves beginnings in what is to come: they count from now on, not until it is there.
    execute("UPDATE starts SET moment = ? WHERE queue = ? AND moment > ?", (now, name, now))
    execute("DELETE FROM starts WHERE queue = ? AND moment <= ?", (name, now - seconds))
    (begun,) = execute("SELECT count(*) FROM starts WHERE queue = ?", (name,)).fetchone()
    return begun < number


def _schedule_of(row: Row) -> Schedule:
    name, timing, program, mark, due, created, paused, last, fired, missed, late = row
    what = f"the schedule {name}"
    verify(mark, what, name, timing, program)
    return Schedule(
        name=name,
        timing=Timing.from_dict(from_json(timing, what)),
        program=from_json(program, what),
        due=due,
        created=created,
        paused=bool(paused),
        last=last,
        fired=fired,
        missed=missed,
        late=late,
    )
