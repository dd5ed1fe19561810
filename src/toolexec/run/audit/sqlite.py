"""An audit log in an SQLite database: the same lines, one per row, to be searched with SQL."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Final

from toolexec.errors import AuditError
from toolexec.process.database import OwnDatabase, open_database, transaction, use_wal
from toolexec.run.audit.anchor import Anchor, lost
from toolexec.run.audit.chain import Header, Position, read_line, seal, stamp

logger: logging.Logger = logging.getLogger(__name__)

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS records (seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS records_stay BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER IF NOT EXISTS records_remain BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE VIEW IF NOT EXISTS calls AS SELECT seq, json_extract(line, '$.time') AS time,
    json_extract(line, '$.kind') AS kind, json_extract(line, '$.run_id') AS run_id,
    json_extract(line, '$.parent') AS parent, json_extract(line, '$.caller.id') AS caller,
    json_extract(line, '$.tool') AS tool, json_extract(line, '$.outcome') AS outcome,
    json_extract(line, '$.duration_ms') AS duration_ms FROM records;
"""
_LAST: Final = "SELECT line FROM records ORDER BY seq DESC LIMIT 1"
_FIRST: Final = "SELECT line FROM records ORDER BY seq LIMIT 1"


class SqliteLines:
    """Appends rows to the table `records` of *path*; the view `calls` has their parts as columns.

    Several processes may write at once. With *sync* every record is on the disk before it counts as written. Raises
    AuditError when the database cannot be opened, or does not end with a record that *key* verifies. The head of the
    log is kept in the directory *state*.
    """

    def __init__(self, path: Path, key: bytes | None, state: Path, *, sync: bool = False) -> None:
        self.path = path
        self._key = key
        self._anchor = Anchor(path, state, key, sync=sync)
        self.header = Header.new(key)
        self._sync = sync
        try:
            self._database = OwnDatabase(self._connect)
        except (OSError, sqlite3.Error) as error:
            self._anchor.close()
            raise _cannot(path, error) from error
        except BaseException:
            self._anchor.close()
            raise

    def append(self, body: str, moment: str = "") -> None:
        """Write one record, of the time *moment* or now. Raises AuditError, with nothing written."""
        try:
            with self._database as database:
                if database is None:
                    raise AuditError("the audit log is closed", op="audit")
                self._insert(database, body, moment)
        except sqlite3.Error as error:
            raise _cannot(self.path, error) from error

    def close(self) -> None:
        """Write no more; closing twice is fine."""
        self._database.close(self._anchor.close)

    def _connect(self) -> sqlite3.Connection:
        database = open_database(self.path)
        try:
            use_wal(database, sync=self._sync)
            database.executescript(_SCHEMA)
            self._begin(database)
        except BaseException:
            database.close()
            raise
        return database

    def _begin(self, database: sqlite3.Connection) -> None:
        first = database.execute(_FIRST).fetchone()
        if first is None:
            try:
                self._insert(database, self.header.body(), "", new=True)
                return
            except sqlite3.IntegrityError:  # another process was quicker
                first = database.execute(_FIRST).fetchone()
        header = Header.read(read_line(first[0].encode() + b"\n", self._key, str(self.path)).data)
        if header is None:
            raise AuditError(f"{self.path} is not an audit log: its first record is not one's header", op="audit")
        self.header: Header = header

    def _insert(self, database: sqlite3.Connection, body: str, moment: str, *, new: bool = False) -> None:
        with transaction(database):
            last = None if new else database.execute(_LAST).fetchone()
            at = (
                Position() if last is None else read_line(last[0].encode() + b"\n", self._key, str(self.path)).following
            )
            if missing := lost(self._anchor.read(self.header.log), at):
                logger.error("records of the audit log %s are missing; toolexec audit verify says which", self.path)
                at = self._row(database, at, stamp(), missing)
            at = self._row(database, at, moment or stamp(), body)
        # Another process may have been quicker: its head is the later one then.
        if self._anchor.read(self.header.log).seq < at.seq:
            self._anchor.write(self.header.log, at.seq - 1, at.prev)

    def _row(self, database: sqlite3.Connection, at: Position, moment: str, body: str) -> Position:
        line, mark = seal(at, moment, body, self._key)
        database.execute("INSERT INTO records VALUES (?, ?)", (at.seq, line[:-1].decode()))
        return Position(at.seq + 1, mark)


def _cannot(path: Path, error: Exception) -> AuditError:
    return AuditError(
        f"the audit log {path} cannot be written: {error}; no call is made that cannot be logged", op="audit"
    )
