"""The store of tasks: calls that outlive their request, in a file that outlives the server."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.process.database import open_database, transaction, use_wal
from toolexec.process.owner import is_orphan, this_owner
from toolexec.server.settings import TaskSettings

__all__ = ["INTERRUPTED", "StoredTask", "TaskOutcome", "TaskStatus", "TaskStore", "TooManyTasksError", "new_task_id"]

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
"""`completed`, `failed` and `cancelled` are final. A tool that reported a problem is `completed`, with `isError`."""

_INTERNAL_ERROR: Final = -32603  # of JSON-RPC
_FINAL: Final = ("completed", "failed", "cancelled")
_LEASE: Final = 120.0  # so long may a server be silent, on a machine whose processes cannot be seen from here
INTERRUPTED: Final = "interrupted: the server that ran it ended before it was done; what it did until then is unknown"
"""What is said of a task whose server has died."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tasks (id TEXT PRIMARY KEY, tool TEXT NOT NULL, owner TEXT NOT NULL, session TEXT NOT NULL,
    source TEXT NOT NULL, status TEXT NOT NULL, message TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
    ttl REAL NOT NULL, server TEXT NOT NULL, seen REAL NOT NULL,
    is_open INTEGER NOT NULL DEFAULT 1, stop INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0, run TEXT,
    outcome TEXT);
CREATE INDEX IF NOT EXISTS open_tasks ON tasks (server) WHERE is_open;
CREATE INDEX IF NOT EXISTS tasks_by_source ON tasks (source, created);
CREATE INDEX IF NOT EXISTS tasks_by_end ON tasks (created + ttl);
"""


def new_task_id() -> str:
    """Return an ID that cannot be guessed, and is never taken for an option of a command."""
    return secrets.token_hex(24)


class TooManyTasksError(Exception):
    """There is no room for one more task: as many as may be kept are still at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTask:
    """One call that became a task.

    `tool` is the name that the client called. `owner` is the proven caller that it belongs to, and empty for an
    anonymous one, `session` the conversation that it was made in, `source` whom limits count for. `created` and
    `updated` are seconds since 1970, and `ttl` is how long after `created`, in seconds, it is kept. `run` is there
    where it is the durable run of the same ID, and has what its reply is made with. `outcome` is the reply of a
    completed one, and the JSON-RPC error of a failed one; `tools` are those that it came of, by ID.
    """

    id: str
    tool: str
    owner: str = ""
    session: str = ""
    source: str = ""
    status: TaskStatus = "working"
    message: str = ""
    created: float = 0.0
    updated: float = 0.0
    ttl: float = 0.0
    run: JSONDict | None = None
    outcome: JSONDict | None = None
    tools: Collection[str] = ()

    @property
    def is_over(self) -> bool:
        """Return whether its status is final."""
        return self.status in _FINAL

    @property
    def caller(self) -> str:
        """Return the ID of the caller that it belongs to; empty for an anonymous one."""
        return self.owner.rpartition("\0")[2]


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How a task ended: its final status, what to say of it, its reply or error, and the tools that this came of."""

    status: Literal["completed", "failed", "cancelled"]
    message: str = ""
    data: JSONDict | None = None
    tools: Collection[str] = ()


_NAMES: Final = tuple(field.name for field in fields(StoredTask))[:-1]  # what it came of is kept with its outcome
_COLUMNS: Final = ", ".join(_NAMES)


class TaskStore:
    """Keeps tasks in the SQLite database of *settings*, which only its owner may read, or in memory where it names
    none.

    Several servers may share the file: each writes to its own tasks only, and all may read. A task whose server has
    died is marked as failed by the next one that opens the file or looks for it. What is written outlives the death of
    the process, not always that of the machine. *clock* gives seconds since 1970. Every method raises
    ConfigurationError when the file cannot be used.
    """

    def __init__(self, settings: TaskSettings | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.settings: TaskSettings = settings if settings is not None else TaskSettings()
        self._clock = clock
        self._server = f"{this_owner()}/{secrets.token_hex(4)}"
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        try:
            self._database = self._connect()
            self._database.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise self._cannot(error) from error
        self.mark_interrupted()

    def _connect(self) -> sqlite3.Connection:
        database = open_database(Path(self.settings.path) if self.settings.path else None)
        use_wal(database, sync=False)
        return database

    # -- what the server that runs them writes ------------------------------------------------------------------

    def create(
        self,
        tool: str,
        *,
        owner: str,
        session: str,
        source: str,
        ttl: float | None = None,
        run_id: str = "",
        run: JSONDict | None = None,
    ) -> StoredTask:
        """Keep a new task, which works, and return it; *ttl* may shorten its life. It has the ID *run_id*, and *run*,
        where it is a durable run.

        The oldest that are over make room for it. Raises TooManyTasksError when none is.
        """
        now = self._clock()
        life = self.settings.ttl if ttl is None else min(max(ttl, 0.0), self.settings.ttl)
        task = StoredTask(
            id=run_id or new_task_id(), tool=tool, owner=owner, session=session, source=source,
            created=now, updated=now, ttl=life, run=run,
        )  # fmt: skip
        with self._transaction() as database:
            self._expire(database, now)
            self._make_room(database, source, 0, new=1)
            database.execute(
                "INSERT INTO tasks (id, tool, owner, session, source, status, message, created, updated, ttl, server, "
                "seen, run) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (task.id, tool, owner, session, source, task.status, "", now, now, life, self._server, now,
                 None if run is None else json.dumps(run)),
            )  # fmt: skip
        return task

    def claim_lost(self) -> list[StoredTask]:
        """Take over open tasks that are durable runs from servers that were stopped or have died; return them."""
        now, mine = self._clock(), "is_open AND run IS NOT NULL"
        rows = self._rows(f"SELECT server, max(seen) FROM tasks WHERE {mine} GROUP BY server", ())  # noqa: S608
        lost = [name for name, seen in rows if name != self._server and (not name or _is_dead(name, now - seen))]
        claimed: list[StoredTask] = []
        for name in lost:
            with self._transaction() as database:
                found = database.execute(f"SELECT {_COLUMNS} FROM tasks WHERE server = ? AND {mine}", (name,))  # noqa: S608
                claimed += map(_task, found.fetchall())
                taken = f"UPDATE tasks SET server = ?, seen = ? WHERE server = ? AND {mine}"  # noqa: S608
                database.execute(taken, (self._server, now, name))
        return claimed

    def release(self, task_id: str) -> None:
        """Leave a task of this server that is a durable run to the next server."""
        with self._transaction() as database:
            database.execute("UPDATE tasks SET server = '' WHERE id = ? AND server = ?", (task_id, self._server))

    def note(self, task_id: str, status: TaskStatus, message: str) -> None:
        """Keep how far a task of this server has come."""
        with self._transaction() as database:
            database.execute(
                "UPDATE tasks SET status = ?, message = ?, updated = ? WHERE id = ? AND server = ? AND is_open",
                (status, message, self._clock(), task_id, self._server),
            )

    def finish(self, task_id: str, outcome: TaskOutcome) -> StoredTask | None:
        """Keep how a task of this server ended, and return it; one that is over stays as it is.

        An outcome that is larger than one caller's tasks may be is not kept; the task has failed then.
        """
        text = json.dumps([outcome.data, [*outcome.tools]] if outcome.tools else outcome.data)
        if len(text) > self.settings.max_bytes_per_caller:
            why = f"it ran, but its result is too large to be kept: {len(text):,} bytes of JSON"
            outcome = TaskOutcome("failed", why, {"code": _INTERNAL_ERROR, "message": why})
            text = json.dumps(outcome.data)
        with self._transaction() as database:
            row = database.execute("SELECT source FROM tasks WHERE id = ?", (task_id,)).fetchone()
            if row is not None:
                self._make_room(database, row[0], len(text))
            database.execute(
                "UPDATE tasks SET status = ?, message = ?, updated = ?, outcome = ?, size = ?, is_open = 0 "
                "WHERE id = ? AND server = ? AND is_open",
                (outcome.status, outcome.message, self._clock(), text, len(text), task_id, self._server),
            )
        return self._find(task_id)

    def stops(self) -> list[str]:
        """Return the IDs of this server's open tasks that are to stop, and record that the server lives."""
        with self._transaction() as database:
            database.execute("UPDATE tasks SET seen = ? WHERE server = ? AND is_open", (self._clock(), self._server))
            rows = database.execute("SELECT id FROM tasks WHERE server = ? AND is_open AND stop", (self._server,))
            return [task_id for (task_id,) in rows]

    # -- what any process may do ---------------------------------------------------------------------------------

    def get_task(self, task_id: str, *, owner: str | None = None) -> StoredTask | None:
        """Return the task with this ID: None when there is none, or its time is over, or it is not *owner*'s."""
        found = self._find(task_id)
        if found is None or (owner is not None and found.owner != owner) or self._clock() >= found.created + found.ttl:
            return None
        if not found.is_over and self.mark_interrupted():
            return self._find(task_id)
        return found

    def list_tasks(
        self, *, owner: str | None = None, session: str | None = None, limit: int = 100, offset: int = 0
    ) -> list[StoredTask]:
        """Return at most *limit* tasks from *offset* on, the newest first, without their outcomes: those of one
        *owner* and of one *session*, or all."""
        self.mark_interrupted()
        where: list[str] = ["created + ttl > ?"]
        values: list[Any] = [self._clock()]
        for column, value in (("owner", owner), ("session", session)):
            if value is not None:
                where.append(f"{column} = ?")
                values.append(value)
        columns = ", ".join([*_NAMES[:-1], "NULL"])
        query = f"SELECT {columns} FROM tasks WHERE {' AND '.join(where)} ORDER BY rowid DESC LIMIT ? OFFSET ?"  # noqa: S608
        return [_task(row) for row in self._rows(query, (*values, limit, offset))]

    def cancel_task(self, task_id: str, *, owner: str | None = None) -> bool:
        """Ask the server that runs a task to stop it, and return whether there is such a task and it is not over.

        The server notices within a second. One that is dead has left a task that failed.
        """
        found = self.get_task(task_id, owner=owner)
        if found is None or found.is_over:
            return False
        with self._transaction() as database:
            database.execute("UPDATE tasks SET stop = 1 WHERE id = ? AND is_open", (task_id,))
        return True

    def mark_interrupted(self) -> int:
        """Mark open tasks of servers that have died as failed, but for durable runs, which go on, and return how many
        those were."""
        now = self._clock()
        rows = self._rows("SELECT server, max(seen) FROM tasks WHERE is_open AND run IS NULL GROUP BY server", ())
        dead = [name for name, seen in rows if name != self._server and _is_dead(name, now - seen)]
        if not dead:
            return 0
        outcome = json.dumps({"code": _INTERNAL_ERROR, "message": INTERRUPTED})
        marked = 0
        with self._transaction() as database:
            for name in dead:
                marked += database.execute(
                    "UPDATE tasks SET status = 'failed', message = ?, updated = ?, outcome = ?, size = ?, is_open = 0 "
                    "WHERE server = ? AND is_open AND run IS NULL",
                    (INTERRUPTED, now, outcome, len(outcome), name),
                ).rowcount
        return marked

    def close(self) -> None:
        """Release the file; closing twice is fine."""
        with self._lock:
            database, self._database = self._database, None
            if database is not None:
                database.close()

    # -- the rest -----------------------------------------------------------------------------------------------

    def _find(self, task_id: str) -> StoredTask | None:
        rows = self._rows(f"SELECT {_COLUMNS} FROM tasks WHERE id = ?", (task_id,))  # noqa: S608
        return _task(rows[0]) if rows else None

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._open().execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._cannot(error) from error

    def _expire(self, database: sqlite3.Connection, now: float) -> None:
        # An open durable run is left to its server, or the next one, which cancels it.
        over = "created + ttl <= ? AND NOT (is_open AND run IS NOT NULL)"
        database.execute(f"DELETE FROM tasks WHERE {over}", (now,))  # noqa: S608

    def _make_room(self, database: sqlite3.Connection, source: str, size: int, new: int = 0) -> None:
        """Delete tasks that are over until *new* tasks of *source* and *size* bytes fit in: its own oldest ones where
        it has too many, else the oldest of the source that has most."""
        limits = self.settings
        while True:
            count, used = _use(database, source)
            victims = [source]
            if count + new <= limits.max_per_caller and used + size <= limits.max_bytes_per_caller:
                count_of_all, used_by_all = _use(database)
                if count_of_all + new <= limits.max_tasks and used_by_all + size <= limits.max_bytes:
                    return
                by_use = "SELECT source FROM tasks GROUP BY source ORDER BY total(size) DESC, count(*) DESC"
                victims = [name for (name,) in database.execute(by_use)]
            if not any(_delete_oldest(database, victim) for victim in victims):
                raise TooManyTasksError(f"{count} of your tasks are at work already, and there is no room for more")

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            database = self._open()
            try:
                with transaction(database):
                    yield database
            except sqlite3.Error as error:
                raise self._cannot(error) from error

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            raise self._cannot("it is closed")
        return self._database

    def _cannot(self, why: Exception | str) -> ConfigurationError:
        return ConfigurationError(f"the file of tasks, {self.settings.path or 'in memory'}, cannot be used: {why}")


def _use(database: sqlite3.Connection, source: str | None = None) -> tuple[int, int]:
    """Return the number of tasks and of bytes that are kept, of one source or in all."""
    where, values = ("", ()) if source is None else ("WHERE source = ?", (source,))
    count, size = database.execute(f"SELECT count(*), total(size) FROM tasks {where}", values).fetchone()  # noqa: S608
    return count, int(size)


def _delete_oldest(database: sqlite3.Connection, source: str) -> bool:
    """Delete the oldest task of *source* that is over, and return whether there was one."""
    over = "SELECT id FROM tasks WHERE source = ? AND NOT is_open"
    query = f"DELETE FROM tasks WHERE id = ({over} ORDER BY rowid LIMIT 1)"  # noqa: S608
    return database.execute(query, (source,)).rowcount > 0


def _is_dead(server: str, silent: float) -> bool:
    return silent > _LEASE or is_orphan(server.partition("/")[0])


def _task(row: tuple[Any, ...]) -> StoredTask:
    facts = dict(zip(_NAMES, row, strict=True))
    for name in ("run", "outcome"):
        facts[name] = json.loads(facts[name]) if facts[name] is not None else None
    if isinstance(facts["outcome"], list):
        facts["outcome"], facts["tools"] = facts["outcome"]
    return StoredTask(**facts)
