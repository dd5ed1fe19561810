"""What was started and how it ended, on disk: a server that is killed and comes back still knows.

A large response is a file of its own, which a thread writes and reads: as a row it would stop the event loop for 15 ms
a megabyte, and all tenants with it. Nothing that must not be repeated depends on the disk, as it may be an old copy:
what its process has started, and which requests it has seen, a server knows by itself (`past`, `signature`), and no
other one answers for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Literal, NamedTuple, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.remote import move_log, open_database, use_wal, walked

RecordState: TypeAlias = Literal["running", "lost", "ended"]
"""Started and not over; started by a server that died; over."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    account TEXT, id TEXT, digest BLOB, state TEXT, changed REAL, body BLOB, incarnation TEXT, statement TEXT,
    PRIMARY KEY (account, id)
) WITHOUT ROWID;
"""
FILE: Final = "started.db"
"""The file of a journal, in its directory."""
_LOCK: Final = "lock"
_BODIES: Final = "responses"
_MANY_CHANGES: Final = 500
_LARGE: Final = 64 << 10
"""From how many bytes on a response is a file."""


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
        self._file = directory / FILE
        self._moved = 0
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _locked(directory / _LOCK)
            self._rows = open_database(self._file)
            use_wal(self._rows, sync=False)
            self._rows.execute("PRAGMA wal_autocheckpoint=0")  # the event loop is not to wait for the disk
            self._rows.executescript(_SCHEMA)
            self._bodies = directory / _BODIES
            self._bodies.mkdir(exist_ok=True, mode=0o700)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"the state directory {directory} cannot be used: {error}; it must be writable, and of this server only"
            ) from error
        self._rows.execute("UPDATE runs SET state = 'lost', changed = ? WHERE state = 'running'", (now,))
        self.prune(now)
        self._sweep()

    def start(self, account: str, run: str, digest: bytes, now: float, incarnation: str) -> None:
        """Write down that a run starts. Raises sqlite3.Error when that cannot be written: it must not start then."""
        self._rows.execute(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, 'running', ?, NULL, ?, '')",
            (account, run, digest, now, incarnation),
        )

    def add_lost(self, rows: Iterable[tuple[str, str, bytes, float, str]]) -> None:
        """Add runs of which only this is known: account, ID, digest, when it changed and its incarnation. What is here
        stays. Raises sqlite3.Error when they cannot be written."""
        self._rows.executemany("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, 'lost', ?, NULL, ?, '')", rows)

    async def write_body(self, account: str, run: str, body: bytes) -> None:
        """Write a response to where `end` expects it, if it is large. Raises OSError when that cannot be done."""
        if len(body) >= _LARGE:
            await walked(lambda: _write(self._body_file(account, run), body))

    def end(self, account: str, run: str, body: bytes, now: float, statement: str) -> None:
        """Write down how a run that was started has ended, with the word of its process; `write_body` came before."""
        self._rows.execute(
            "UPDATE runs SET state = 'ended', changed = ?, body = ?, statement = ? WHERE account = ? AND id = ?",
            (now, body if len(body) < _LARGE else None, statement, account, run),
        )

    def forget(self, account: str, run: str) -> None:
        """Take back the start of a run: nothing of it was run."""
        self._rows.execute("DELETE FROM runs WHERE account = ? AND id = ?", (account, run))

    def has_ended(self, account: str, run: str) -> bool:
        """Return whether the response to a run is here."""
        row = self._rows.execute(
            "SELECT body IS NULL FROM runs WHERE account = ? AND id = ? AND state = 'ended'", (account, run)
        ).fetchone()
        return row is not None and (not row[0] or self._body_file(account, run).exists())

    def find(self, account: str, run: str) -> Record | None:
        """Return what is known of a run. One whose response is gone from the disk is lost."""
        record = self._row(account, run)
        if record is None or record.state != "ended" or record.body:
            return record
        return _with_body(record, self._body_file(account, run))

    async def read_body(self, account: str, run: str) -> bytes:
        """Return the response to a run that is over; empty where there is none."""
        record = self._row(account, run)
        if record is None or record.state != "ended":
            return b""
        return record.body or (await walked(lambda: _with_body(record, self._body_file(account, run)))).body

    def _row(self, account: str, run: str) -> Record | None:
        row = self._rows.execute(
            "SELECT state, digest, body, incarnation, statement FROM runs WHERE account = ? AND id = ?", (account, run)
        ).fetchone()
        return Record(row[0], row[1], row[2] or b"", row[3], row[4]) if row is not None else None

    def _body_file(self, account: str, run: str) -> Path:
        """Return the file of a large response: IDs are the callers', and no names of files."""
        return self._bodies / hashlib.sha256(f"{len(account)}:{account}{run}".encode()).hexdigest()

    def prune(self, now: float) -> None:
        """Forget what is older than it has to be."""
        old = "FROM runs WHERE state != 'running' AND changed < ?"
        large = self._rows.execute(
            f"SELECT account, id {old} AND state = 'ended' AND body IS NULL", (now - self._keeps,)
        ).fetchall()
        self._rows.execute(f"DELETE {old}", (now - self._keeps,))
        for account, run in large:
            with suppress(OSError):
                self._body_file(account, run).unlink()

    def _sweep(self) -> None:
        """Remove the files of responses that no row is about: the server died between the two."""
        rows = self._rows.execute("SELECT account, id FROM runs WHERE state = 'ended' AND body IS NULL")
        wanted = {self._body_file(account, run).name for account, run in rows}
        with suppress(OSError):
            for file in self._bodies.iterdir():
                if file.name not in wanted:
                    file.unlink()

    async def move_log(self) -> None:
        """Move what was written into the database, in a thread, if it is much. To be called again and again. Raises
        OSError and sqlite3.Error."""
        changes = self._rows.total_changes
        if changes - self._moved >= _MANY_CHANGES:
            self._moved = changes
            await asyncio.to_thread(move_log, self._file)

    def close(self) -> None:
        """Close it; twice is fine."""
        self._rows.close()
        self._lock.close()


def _write(file: Path, body: bytes) -> None:
    """Write a file that is whole, or is not there: on a full disk nothing of it stays."""
    unfinished = file.with_suffix(".new")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
            opened.write(body)
        unfinished.replace(file)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _with_body(record: Record, file: Path) -> Record:
    try:
        return record._replace(body=file.read_bytes())
    except OSError:
        return record._replace(state="lost", statement="")


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
