"""The journal of durable runs in PostgreSQL: for processes on many machines."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from toolexec.durable.queues_sql import QueuedSQLJournal
from toolexec.durable.sql import DAY, Execute
from toolexec.errors import ConfigurationError, JournalError
from toolexec.errors.extras import extra_needed
from toolexec.errors.outcome import Outcome
from toolexec.model.settings import checked

if TYPE_CHECKING:
    import psycopg

_LOCK_OF_MIGRATIONS: Final = 0x7478_4A72
_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_MIGRATIONS: Final = (
    """
CREATE TABLE runs (num BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
    digest TEXT NOT NULL, caller TEXT NOT NULL, state TEXT NOT NULL, created DOUBLE PRECISION NOT NULL UNIQUE,
    updated DOUBLE PRECISION NOT NULL, owner TEXT COLLATE "C" NOT NULL, wake DOUBLE PRECISION, cancel INTEGER NOT NULL,
    waits TEXT NOT NULL, calls BIGINT NOT NULL);
CREATE INDEX runs_by_state ON runs (state, created);
CREATE INDEX runs_by_caller ON runs (caller, state, created);
CREATE INDEX runs_by_wake ON runs (wake) WHERE wake IS NOT NULL;
CREATE INDEX runs_by_owner ON runs (owner) WHERE owner <> '';
CREATE TABLE programs (run BIGINT PRIMARY KEY, source TEXT NOT NULL, settings TEXT NOT NULL, mark BIGINT NOT NULL,
    result TEXT, result_mark BIGINT);
CREATE TABLE calls (id BIGINT PRIMARY KEY, run BIGINT NOT NULL, step TEXT NOT NULL, tool TEXT NOT NULL,
    definition TEXT NOT NULL, args TEXT NOT NULL, state TEXT NOT NULL, sent TEXT NOT NULL, place TEXT NOT NULL,
    began DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION, outcome TEXT, mark BIGINT NOT NULL, outcome_mark BIGINT);
CREATE UNIQUE INDEX calls_by_step ON calls (run, step);
CREATE TABLE deliveries (run BIGINT NOT NULL, number BIGINT NOT NULL, answers TEXT NOT NULL, mark BIGINT NOT NULL,
    PRIMARY KEY (run, number));
CREATE TABLE snapshots (run BIGINT PRIMARY KEY, calls BIGINT NOT NULL, state TEXT NOT NULL, mark BIGINT NOT NULL);
CREATE TABLE signals (seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run BIGINT NOT NULL, id TEXT NOT NULL,
    name TEXT NOT NULL, payload TEXT NOT NULL, sent DOUBLE PRECISION NOT NULL, sender TEXT NOT NULL,
    taken_by TEXT NOT NULL, mark BIGINT NOT NULL, UNIQUE (run, id));
""",
    """
ALTER TABLE runs ADD COLUMN queue TEXT NOT NULL DEFAULT '', ADD COLUMN priority BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN started DOUBLE PRECISION NOT NULL DEFAULT 0;
DROP INDEX runs_by_wake;
CREATE INDEX runs_by_wake ON runs (queue, wake) WHERE wake IS NOT NULL;
CREATE INDEX runs_by_queue ON runs (queue, state, priority, num) WHERE queue <> '';
CREATE TABLE queues (name TEXT PRIMARY KEY);
CREATE TABLE starts (queue TEXT NOT NULL, moment DOUBLE PRECISION NOT NULL);
CREATE INDEX starts_by_queue ON starts (queue, moment);
CREATE TABLE schedules (name TEXT PRIMARY KEY, timing TEXT NOT NULL, program TEXT NOT NULL, mark BIGINT NOT NULL,
    due DOUBLE PRECISION NOT NULL, created DOUBLE PRECISION NOT NULL, paused INTEGER NOT NULL, last DOUBLE PRECISION,
    fired BIGINT NOT NULL, missed BIGINT NOT NULL, late BIGINT NOT NULL);
""",
)
"""What makes each version of the tables of the one before; the first of nothing. See `sqlite` for their shape."""


@checked("PostgresJournal")
class PostgresJournal(QueuedSQLJournal):
    """Keeps durable runs in the PostgreSQL database *dsn*, a connection string, in its schema *schema*.

    Processes on many machines may share it. Tables are made at the first use; later that needs no right but to read
    and write them. Runs that have ended go after *keep* seconds, or stay with None. At most *connections* are open at
    once. What survives a power failure is up to `synchronous_commit` of the server. Leases count by its clock. `close`
    it, or use it as a context manager; any thread may use it.

    Raises MissingExtraError without the extra `postgres`, and JournalError when the database cannot be used, or has
    tables of a newer version. A connection that was lost is made again where nothing can have been written yet.
    """

    is_remote = True
    _lock = " FOR UPDATE"
    _bytewise = 'COLLATE "C"'

    def __init__(
        self, dsn: str, *, schema: str = "toolexec", keep: float | None = 30 * DAY, connections: int = 4
    ) -> None:
        if not _SCHEMA_NAME.fullmatch(schema):
            raise ConfigurationError(f"the schema must be a plain name of small letters, not {schema!r}")
        if connections < 1:
            raise ConfigurationError(f"a journal needs at least one connection, not {connections}")
        with extra_needed("postgres", "PostgresJournal"):
            import psycopg
        self.keep = keep
        self._dsn = dsn
        self._schema = schema
        self._psycopg = psycopg
        self._slots = threading.BoundedSemaphore(connections)
        self._mutex = threading.Lock()
        self._idle: list[psycopg.Connection] = []
        self._is_closed = False
        self._ahead = 0.0
        with self._failures("open"):
            connection = self._connect()
            try:
                self._migrate(connection)
                before = time.time()
                (now,) = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone() or (0,)
                connection.commit()
            except BaseException:
                connection.close()
                raise
        self._ahead = float(now) - (before + time.time()) / 2
        self._idle.append(connection)

    def close(self) -> None:
        """Implement `Journal.close`: connections in use are closed when they are not any more."""
        with self._mutex:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _now(self) -> float:
        return time.time() + self._ahead

    def _reading(self, op: str) -> AbstractContextManager[Execute]:
        return self._transaction(op)

    def _writing(self, op: str) -> AbstractContextManager[Execute]:
        return self._transaction(op)

    @contextmanager
    def _transaction(self, op: str) -> Generator[Execute]:
        with self._slots, self._failures(op):
            transaction = _Transaction(self._connect, self._take())
            try:
                yield transaction.execute
                transaction.connection.commit()
            except BaseException:
                with suppress(self._psycopg.Error):
                    transaction.connection.rollback()
                raise
            finally:
                self._give_back(transaction.connection)

    def _take(self) -> psycopg.Connection | None:
        """Return a connection that was used before, if there is one."""
        with self._mutex:
            if self._is_closed:
                raise JournalError("the journal is closed", op="journal")
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: psycopg.Connection) -> None:
        with self._mutex:
            if not self._is_closed and not connection.closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> psycopg.Connection:
        connection = self._psycopg.connect(self._dsn, connect_timeout=10, application_name="toolexec")
        try:
            connection.execute(f"SET search_path TO {self._schema}".encode())
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: psycopg.Connection) -> None:
        """Make the tables, or those of an older version into ours."""
        (there,) = connection.execute("SELECT to_regclass(%s)", (f"{self._schema}.version",)).fetchone() or (None,)
        if there is None:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_OF_MIGRATIONS,))
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}".encode())
            connection.execute("CREATE TABLE IF NOT EXISTS version (version INTEGER NOT NULL)")
        found = connection.execute("SELECT max(version) FROM version").fetchone()
        version = (found[0] if found else None) or 0
        if version > len(_MIGRATIONS):
            raise JournalError(
                f"the journal in the schema {self._schema} has version {version}, and this toolexec knows "
                f"{len(_MIGRATIONS)}; use a newer toolexec",
                op="open",
            )
        if version < len(_MIGRATIONS):
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_OF_MIGRATIONS,))
            found = connection.execute("SELECT max(version) FROM version").fetchone()
            version = (found[0] if found else None) or 0  # another process may have been quicker
            for script in _MIGRATIONS[version:]:
                connection.execute(script.encode())
            connection.execute("DELETE FROM version")
            connection.execute("INSERT INTO version VALUES (%s)", (len(_MIGRATIONS),))
        connection.commit()

    @contextmanager
    def _failures(self, op: str) -> Generator[None]:
        """Errors of the database as JournalError."""
        try:
            yield
        except (self._psycopg.Error, UnicodeError) as error:
            raise JournalError(
                f"the journal in PostgreSQL cannot be used: {str(error).strip()}",
                op=op,
                retryable=isinstance(error, self._psycopg.OperationalError),
                outcome=Outcome.NOT_SENT if op == "begin" else None,
            ) from error


class _Transaction:
    """The statements of one transaction. Its connection may have been lost while it was idle: the first statement has
    another one then, as nothing can have been written."""

    def __init__(self, connect: Any, idle: psycopg.Connection | None) -> None:
        self.connection: psycopg.Connection = connect() if idle is None else idle
        self._connect = connect
        self._is_fresh = idle is not None

    def execute(self, statement: str, values: Sequence[Any]) -> Any:
        import psycopg

        query = _query(statement)
        may_repeat, self._is_fresh = self._is_fresh, False
        try:
            return self.connection.execute(query, values)
        except psycopg.OperationalError:
            if not may_repeat or not self.connection.closed:
                raise
            self.connection = self._connect()
            return self.connection.execute(query, values)


@lru_cache(maxsize=100)
def _query(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()
