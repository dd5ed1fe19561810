"""What was started and how it ended, on disk: a server that is killed and comes back still knows.

Nothing that must not be repeated depends on it, as it may be an old copy: what its process has started, and which
requests it has seen, a server knows by itself (`past`, `signature`), and no other one answers for it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import IO, Final, Literal, NamedTuple, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.remote import open_database, use_wal

__all__ = ["Journal", "Record", "RecordState"]

RecordState: TypeAlias = Literal["running", "lost", "ended"]
"""Started and not over; started by a server that died; over."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    account TEXT, id TEXT, digest BLOB, state TEXT, changed REAL, body BLOB, incarnation TEXT, statement TEXT,
    PRIMARY KEY (account, id)
) WITHOUT ROWID;
"""
_FILE: Final = "started.db"
_LOCK: Final = "lock"


class Record(NamedTuple):
    """What is known of a run: `digest` is that of its request, `body` the response to it, `incarnation` the process
    that ran it, and `statement` the word of that one that it ended so (`ENDED`)."""

    state: RecordState
    digest: bytes
    body: bytes
    incarnation: str = ""
    statement: str = ""


class Journal:
    """The journal in *directory*, which is made if it is missing and belongs to this process until `close`.

    Each write is in the hands of the system before the method returns: what a killed process wrote is there. Records
    are kept for *keeps* seconds. Raises ConfigurationError for a directory that another server uses, or that cannot be
    written.
    """

    def __init__(self, directory: Path, keeps: float, now: float) -> None:
        self._keeps = keeps
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _locked(directory / _LOCK)
            self._rows = open_database(directory / _FILE)
            use_wal(self._rows, sync=False)
            self._rows.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"the state directory {directory} cannot be used: {error}; it must be writable, and of this server only"
            ) from error
        self._rows.execute("UPDATE runs SET state = 'lost', changed = ? WHERE state = 'running'", (now,))
        self.prune(now)

    def start(self, account: str, run: str, digest: bytes, now: float, incarnation: str) -> None:
        """Write down that a run starts. Raises sqlite3.Error when that cannot be written: it must not start then."""
        self._rows.execute(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, 'running', ?, NULL, ?, '')",
            (account, run, digest, now, incarnation),
        )

    def end(self, account: str, run: str, body: bytes, now: float, statement: str) -> None:
        """Write down how a run that was started has ended, with the word of its process."""
        self._rows.execute(
            "UPDATE runs SET state = 'ended', changed = ?, body = ?, statement = ? WHERE account = ? AND id = ?",
            (now, body, statement, account, run),
        )

    def forget(self, account: str, run: str) -> None:
        """Take back the start of a run: nothing of it was run."""
        self._rows.execute("DELETE FROM runs WHERE account = ? AND id = ?", (account, run))

    def find(self, account: str, run: str) -> Record | None:
        """Return what is known of a run."""
        row = self._rows.execute(
            "SELECT state, digest, body, incarnation, statement FROM runs WHERE account = ? AND id = ?", (account, run)
        ).fetchone()
        return Record(row[0], row[1], row[2] or b"", row[3], row[4]) if row is not None else None

    def prune(self, now: float) -> None:
        """Forget what is older than it has to be."""
        self._rows.execute("DELETE FROM runs WHERE state != 'running' AND changed < ?", (now - self._keeps,))

    def close(self) -> None:
        """Close it; twice is fine."""
        self._rows.close()
        self._lock.close()


def _locked(path: Path) -> IO[bytes]:
    """Return the lock file, locked for this process; raises OSError when another one has it."""
    file = path.open("ab")
    try:
        from toolexec.remote import try_lock
    except ModuleNotFoundError:  # on Windows
        return file
    if try_lock(file.fileno()):
        return file
    file.close()
    raise OSError("another server uses it")
