"""The journal of durable runs in an SQLite file: for one machine, with nothing to install."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Literal

from toolexec.durable.flush import Flusher
from toolexec.durable.queues_sql import QueuedSQLJournal
from toolexec.durable.sql import DAY, Execute
from toolexec.errors import JournalError
from toolexec.errors.outcome import Outcome
from toolexec.model.settings import checked
from toolexec.process.database import OwnDatabase, open_database, transaction, use_wal

__all__ = ["SQLiteJournal"]

_APPLICATION: Final = 0x7478_4A72  # txJr
_PATIENCE: Final = 10.0
_MAX_LOG: Final = 64 << 20
_MIGRATIONS: Final = (
    """
CREATE TABLE runs (num INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, digest TEXT NOT NULL,
    caller TEXT NOT NULL, state TEXT NOT NULL, created REAL NOT NULL UNIQUE, updated REAL NOT NULL,
    owner TEXT NOT NULL, wake REAL, cancel INTEGER NOT NULL, waits TEXT NOT NULL, calls INTEGER NOT NULL);
CREATE INDEX runs_by_state ON runs (state, created);
CREATE INDEX runs_by_caller ON runs (caller, state, created);
CREATE INDEX runs_by_wake ON runs (wake) WHERE wake IS NOT NULL;
CREATE INDEX runs_by_owner ON runs (owner) WHERE owner <> '';
CREATE TABLE programs (run INTEGER PRIMARY KEY, source TEXT NOT NULL, settings TEXT NOT NULL, mark INTEGER NOT NULL,
    result TEXT, result_mark INTEGER);
CREATE TABLE calls (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, step TEXT NOT NULL, tool TEXT NOT NULL,
    definition TEXT NOT NULL, args TEXT NOT NULL, state TEXT NOT NULL, sent TEXT NOT NULL, place TEXT NOT NULL,
    began REAL NOT NULL, ended REAL, outcome TEXT, mark INTEGER NOT NULL, outcome_mark INTEGER);
CREATE UNIQUE INDEX calls_by_step ON calls (run, step);
CREATE TABLE deliveries (run INTEGER NOT NULL, number INTEGER NOT NULL, answers TEXT NOT NULL, mark INTEGER NOT NULL,
    PRIMARY KEY (run, number)) WITHOUT ROWID;
CREATE TABLE snapshots (run INTEGER PRIMARY KEY, calls INTEGER NOT NULL, state TEXT NOT NULL, mark INTEGER NOT NULL);
CREATE TABLE signals (seq INTEGER PRIMARY KEY, run INTEGER NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL,
    payload TEXT NOT NULL, sent REAL NOT NULL, sender TEXT NOT NULL, taken_by TEXT NOT NULL, mark INTEGER NOT NULL,
    UNIQUE (run, id));
""",
    """
ALTER TABLE runs ADD COLUMN queue TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN started REAL NOT NULL DEFAULT 0;
DROP INDEX runs_by_wake;
CREATE INDEX runs_by_wake ON runs (queue, wake) WHERE wake IS NOT NULL;
CREATE INDEX runs_by_queue ON runs (queue, state, priority, num) WHERE queue <> '';
CREATE TABLE queues (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE starts (queue TEXT NOT NULL, moment REAL NOT NULL);
CREATE INDEX starts_by_queue ON starts (queue, moment);
CREATE TABLE schedules (name TEXT PRIMARY KEY, timing TEXT NOT NULL, program TEXT NOT NULL, mark INTEGER NOT NULL,
    due REAL NOT NULL, created REAL NOT NULL, paused INTEGER NOT NULL, last REAL, fired INTEGER NOT NULL,
    missed INTEGER NOT NULL, late INTEGER NOT NULL) WITHOUT ROWID;
""",
)
"""What makes each version of the tables of the one before; the first of nothing. `programs` are apart from `runs`, as
they may be long, and `runs` change with each call. `calls.id` is the number of the run, then that of the call, in 32
bits each, so that those of a run lie together. `wake` of a run that is queued is when it may begin, or NULL once it
may; `starts` are when runs of a queue began, as its rate counts them; a row of `queues` is what processes lock that
take from one."""


@checked("SQLiteJournal")
class SQLiteJournal(QueuedSQLJournal):
    """Keeps durable runs in the SQLite database *path*, which only its owner may read; several processes may share it.

    Whatever a method has written survives the end of the process at any point. What a power failure may take depends
    on *sync*:

    - `"batch"`: what was written in the last 50 ms, or as long as the disk took to sync; never something from the
      middle. The run is then as it was a moment earlier: a call of that moment may be made again.
    - `"each"`: nothing. A method returns when its record is on the disk, which takes as long as the disk does; so do
      not call it on an event loop.

    Runs that have ended go after *keep* seconds, or stay with None. *clock* gives seconds since 1970. `close` it, or
    use it as a context manager; any thread may use it.

    Raises JournalError for a file that is damaged, of another kind or a newer version, that others may write to, or
    that cannot be opened; the file is as it was then.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory, SQLiteJournal(f"{directory}/runs.db") as journal:
    ...     journal.runs()
    []
    """

    def __init__(
        self,
        path: str | Path,
        *,
        sync: Literal["batch", "each"] = "batch",
        keep: float | None = 30 * DAY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path: Path = Path(path)
        self.is_remote = sync == "each"
        self.keep = keep
        self._now_by = clock
        self._sync: Literal["batch", "each"] = sync
        try:
            self._database = OwnDatabase(self._connect)
        except (OSError, sqlite3.Error) as error:
            raise self._cannot(error, "open") from error

    def close(self) -> None:
        """Implement `Journal.close`: what is written is on the disk then."""
        self._database.close(self._flusher.close)

    def _connect(self) -> sqlite3.Connection:
        path = self.path.resolve()  # beside what a link leads to is the log
        self._flusher = Flusher(path, sync=self._sync == "batch")
        database = open_database(path, timeout=_PATIENCE)
        try:
            self._prepare(database, each=self._sync == "each")
        except BaseException:
            database.close()
            raise
        return database

    def _now(self) -> float:
        return self._now_by()

    def _reading(self, op: str) -> AbstractContextManager[Execute]:
        return self._transaction(op, write=False)

    def _writing(self, op: str) -> AbstractContextManager[Execute]:
        return self._transaction(op, write=True)

    @contextmanager
    def _transaction(self, op: str, *, write: bool) -> Generator[Execute]:
        try:
            with self._database as database:
                if database is None:
                    raise self._cannot("it is closed", op)
                if write and self._flusher.error is not None:
                    raise self._flusher.error
                with transaction(database, write=write):
                    yield database.execute
                if write:
                    self._flusher.note()
        except (OSError, sqlite3.Error, UnicodeError) as error:
            raise self._cannot(error, op) from error

    def _prepare(self, database: sqlite3.Connection, *, each: bool) -> None:
        """Make the tables, or those of an older version into ours; look before anything is written."""
        (kind,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        tables = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if kind != _APPLICATION and (tables or kind or version):
            raise self._cannot("it is a database of something else; name another file", "open")
        if version > len(_MIGRATIONS):
            raise self._cannot(
                f"it has version {version}, and this toolexec knows {len(_MIGRATIONS)}; use a newer toolexec", "open"
            )
        use_wal(database, sync=each)
        database.execute("PRAGMA wal_autocheckpoint=0")  # the flusher does it: a commit is not to wait for that
        database.execute(f"PRAGMA journal_size_limit={_MAX_LOG}")
        database.execute("PRAGMA trusted_schema=OFF")
        if version < len(_MIGRATIONS):
            _migrate(database)

    def _cannot(self, why: Exception | str, op: str) -> JournalError:
        if isinstance(why, OSError) and why.filename and why.strerror:
            why = f"{why.filename}: {why.strerror}; name a file in a directory that can be written to"
        error = JournalError(f"the journal {self.path} cannot be used: {why}", op=op, details={"path": str(self.path)})
        if op == "begin":
            error.outcome = Outcome.NOT_SENT
        return error


def _migrate(database: sqlite3.Connection) -> None:
    with transaction(database):
        (version,) = database.execute("PRAGMA user_version").fetchone()  # another process may have been quicker
        for script in _MIGRATIONS[version:]:
            for statement in script.split(";\n"):
                database.execute(statement)
        database.execute(f"PRAGMA application_id={_APPLICATION}")
        database.execute(f"PRAGMA user_version={max(version, len(_MIGRATIONS))}")
