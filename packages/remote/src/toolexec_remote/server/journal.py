"""What was started and how it ended, on disk: a server that is killed and comes back still knows."""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path
from typing import IO, Final, Literal, NamedTuple, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.remote import open_database, use_wal
from toolexec_remote.signature import ReplayCache

__all__ = ["Journal", "JournalReplays", "Record", "RecordState"]

RecordState: TypeAlias = Literal["running", "lost", "ended", "tombstone"]
"""Started and not over; started by a server that died; over; never started, and never to be."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    account TEXT, id TEXT, digest BLOB, state TEXT, changed REAL, body BLOB, PRIMARY KEY (account, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS signatures (signature TEXT PRIMARY KEY, until REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS names (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""
_FILE: Final = "runs.db"
_LOCK: Final = "lock"


class Record(NamedTuple):
    """What is known of a run: `digest` is that of its request, `body` the response to it."""

    state: RecordState
    digest: bytes
    body: bytes


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
        self._rows.execute("INSERT OR IGNORE INTO names VALUES ('journal', ?)", (uuid.uuid4().hex,))
        self.id = str(self._rows.execute("SELECT value FROM names WHERE name = 'journal'").fetchone()[0])
        """Names the directory: the same journal knows the same runs."""
        self.prune(now)

    def start(self, account: str, run: str, digest: bytes, now: float) -> None:
        """Write down that a run starts. Raises sqlite3.Error when that cannot be written: it must not start then."""
        self._rows.execute(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, 'running', ?, NULL)", (account, run, digest, now)
        )

    def end(self, account: str, run: str, body: bytes, now: float) -> None:
        """Write down how a run that was started has ended."""
        self._rows.execute(
            "UPDATE runs SET state = 'ended', changed = ?, body = ? WHERE account = ? AND id = ?",
            (now, body, account, run),
        )

    def forget(self, account: str, run: str) -> None:
        """Take back the start of a run: nothing of it was run."""
        self._rows.execute("DELETE FROM runs WHERE account = ? AND id = ?", (account, run))

    def tombstone(self, account: str, run: str, now: float) -> None:
        """Write down that a run was not started, and must not be from now on; one that is known stays as it is."""
        self._rows.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, x'', 'tombstone', ?, NULL)", (account, run, now))

    def find(self, account: str, run: str) -> Record | None:
        """Return what is known of a run."""
        row = self._rows.execute(
            "SELECT state, digest, body FROM runs WHERE account = ? AND id = ?", (account, run)
        ).fetchone()
        return Record(row[0], row[1], row[2] or b"") if row is not None else None

    def prune(self, now: float) -> None:
        """Forget what is older than it has to be."""
        self._rows.execute("DELETE FROM runs WHERE state != 'running' AND changed < ?", (now - self._keeps,))
        self._rows.execute("DELETE FROM signatures WHERE until < ?", (now,))

    def keep_signature(self, signature: str, until: float) -> None:
        """Write down that a signature was used."""
        self._rows.execute("INSERT OR IGNORE INTO signatures VALUES (?, ?)", (signature, until))

    def signatures(self) -> list[tuple[str, float]]:
        """Return the signatures that were used and still count, the oldest first."""
        return self._rows.execute("SELECT signature, until FROM signatures ORDER BY until").fetchall()

    def close(self) -> None:
        """Close it; twice is fine."""
        self._rows.close()
        self._lock.close()


class JournalReplays(ReplayCache):
    """Remembers signatures over restarts, too."""

    def __init__(self, journal: Journal, now: float) -> None:
        super().__init__()
        self._journal = journal
        for signature, until in journal.signatures():
            super().claim(signature, until, now)

    def claim(self, signature: str, until: float, now: float) -> bool:
        """Implement `ReplayCache.claim`."""
        is_new = super().claim(signature, until, now)
        if is_new:
            self._journal.keep_signature(signature, until)
        return is_new


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
