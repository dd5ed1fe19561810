"""The database that remembers which definitions of remote tools were accepted."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.process.database import OwnDatabase, open_database, transaction

PinKey: TypeAlias = tuple[str, str]
"""The backend's name and the tool's ID."""

_FORMAT: Final = 1
_LONGEST: Final = 32 * 1024
_TABLES: Final = (
    """CREATE TABLE pins (
        backend TEXT NOT NULL, tool TEXT NOT NULL, accepted TEXT NOT NULL, pending TEXT NOT NULL, since TEXT NOT NULL,
        changed INTEGER NOT NULL, accepted_text TEXT NOT NULL, pending_text TEXT NOT NULL, UNIQUE (backend, tool))""",
    "CREATE INDEX pins_by_change ON pins (changed)",
    f"PRAGMA user_version = {_FORMAT}",
)
_SELECT: Final = "SELECT backend, tool, accepted, pending, since FROM pins"
_PUT: Final = (
    "INSERT INTO pins VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (backend, tool) DO UPDATE SET "
    "accepted = excluded.accepted, pending = excluded.pending, changed = excluded.changed, "
    "accepted_text = excluded.accepted_text, pending_text = excluded.pending_text"
)
_FORGET: Final = (
    "DELETE FROM pins WHERE rowid IN (SELECT rowid FROM pins WHERE backend = ? AND accepted = '' "
    "ORDER BY changed, rowid LIMIT ?) RETURNING tool"
)


class Pin(NamedTuple):
    """What is known of one tool: the digest of the definition that is `accepted`, and of one that waits for that
    (`pending`); empty for none."""

    accepted: str
    pending: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A definition as it was seen: its `digest`, and its `text` (cut where it is very long).

    `accept` accepts it if nothing was accepted before. It also takes the place of the accepted one with the digest
    `respells`, which says the same in other words.
    """

    digest: str
    text: str
    since: str
    accept: bool = False
    respells: str = ""


def merged(pin: Pin | None, seen: Sighting) -> Pin:
    """Return what is known of a tool once it was seen like this."""
    if pin is None or not pin.accepted:
        since = seen.since if pin is None else pin.since
        return Pin(seen.digest, "", since) if seen.accept else Pin("", seen.digest, since)
    if seen.digest == pin.accepted or seen.respells == pin.accepted:
        return Pin(seen.digest, "", pin.since)
    return Pin(pin.accepted, seen.digest, pin.since)


class PinsFile:
    """Pins in the database *path*, or only in memory when that is None. Their digests are kept in memory, the
    definitions are read when they are asked for.

    Processes that share the file see each other's changes: each row has the number of the change that it comes from.
    A file that is not there is made at the first change.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.pins: dict[PinKey, Pin] = {}
        self._database: AbstractContextManager[sqlite3.Connection | None] | None = None
        self._file: tuple[int, int] | None = None
        self._data_version = 0
        self._read = 0  # the number of the last change that was read

    def read_changes(self) -> Collection[PinKey]:
        """Read what others have changed, and return which pins that were; all of them when the file is another one.

        Raises ConfigurationError when it cannot be read or does not hold pins.
        """
        if self.path is None:
            return ()
        try:
            file = self._identity()
            if file != self._file or (file is not None and self._database is None):
                return self._open(file)
            if self._database is None:
                return ()
            with self._database as database:
                assert database is not None
                if (version := _data_version(database)) == self._data_version:
                    return ()
                found = self._read_rows(database)
        except (OSError, sqlite3.Error, ValueError) as error:
            raise ConfigurationError(
                f"the file of accepted tools {self.path} cannot be read: {error or type(error).__name__}; repair it, "
                "or remove it to begin again (then every tool counts as new)"
            ) from error
        self._data_version = version
        return found

    def definitions(self, key: PinKey) -> tuple[str, str]:
        """Return the accepted definition and the pending one; empty for none. Raises OSError."""
        if self._database is None:
            return "", ""
        with _as_os_error(), self._database as database:
            assert database is not None
            return _definitions(database, key)

    def write(self, seen: Mapping[PinKey, Sighting], accepted: Mapping[PinKey, str] | None = None) -> set[PinKey]:
        """Write what was *seen*, on top of what others have written meanwhile; then accept what is pending where that
        still has the digest in *accepted*. Returns which pins others have changed.

        Raises ConfigurationError as `read_changes` does, OSError when it cannot be written: then nothing was.
        """
        foreign = set(self.read_changes())
        with _as_os_error():
            opened = self._database or self._create()
            with opened as database:
                assert database is not None
                with transaction(database):
                    foreign |= self._read_rows(database)
                    changed = self._write_rows(database, seen, accepted or {})
        self._read += 1
        self.pins.update(changed)
        return foreign

    def forget_waiting(self, backend: str, count: int) -> None:
        """Forget the *count* oldest of a backend's tools that were never accepted. Raises OSError."""
        if self._database is None:
            return
        with _as_os_error(), self._database as database:
            assert database is not None
            gone = database.execute(_FORGET, (backend, count)).fetchall()
        for (tool,) in gone:
            self.pins.pop((backend, tool), None)

    def _write_rows(
        self, database: sqlite3.Connection, seen: Mapping[PinKey, Sighting], accepted: Mapping[PinKey, str]
    ) -> dict[PinKey, Pin]:
        changed: dict[PinKey, Pin] = {}
        for key, sighting in seen.items():
            before = self.pins.get(key)
            after = changed[key] = merged(before, sighting)
            written = _definitions(database, key) if before is not None else ("", "")
            first = sighting.text if after.accepted == sighting.digest else written[0]
            second = sighting.text if after.pending == sighting.digest else ""
            database.execute(_PUT, (*key, *after, self._read + 1, first, second))
        for key, digest in accepted.items():
            pin = changed.get(key) or self.pins.get(key)
            if pin is not None and digest and pin.pending == digest:
                changed[key] = Pin(digest, "", pin.since)
                database.execute(
                    "UPDATE pins SET accepted = pending, accepted_text = pending_text, pending = '', "
                    "pending_text = '', changed = ? WHERE backend = ? AND tool = ?",
                    (self._read + 1, *key),
                )
        return changed

    def _read_rows(self, database: sqlite3.Connection) -> set[PinKey]:
        """Read the rows that were changed since the last time; returns those that differ."""
        names: dict[str, str] = {}
        found: set[PinKey] = set()
        for backend, tool, *parts in database.execute(f"{_SELECT} WHERE changed > ?", (self._read,)):
            key = names.setdefault(backend, backend), tool
            pin = Pin(*parts)
            if self.pins.get(key) != pin:
                self.pins[key] = pin
                found.add(key)
        (last,) = database.execute("SELECT max(changed) FROM pins").fetchone()
        self._read = max(last or 0, self._read)
        return found

    def _identity(self) -> tuple[int, int] | None:
        """Return which file is there now."""
        assert self.path is not None
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def _open(self, file: tuple[int, int] | None) -> set[PinKey]:
        """Read another file than before, or none."""
        before = set(self.pins)
        opened = OwnDatabase(self._connect) if file is not None else None
        if isinstance(self._database, OwnDatabase):
            self._database.close()
        self._database, self._file, self._read, self.pins = opened, file, 0, {}
        if opened is not None:
            with opened as database:
                assert database is not None
                self._data_version = _data_version(database)
                self._read_rows(database)
        return before | set(self.pins)

    def _create(self) -> AbstractContextManager[sqlite3.Connection | None]:
        if self.path is None:
            database = open_database(None)
            _make_tables(database)
            self._database = nullcontext(database)  # no file that a child could share
            return self._database
        opened = self._database = OwnDatabase(self._connect)
        self._file = self._identity()
        return opened

    def _connect(self) -> sqlite3.Connection:
        database = _connected(self.path)
        self._data_version = -1  # of this connection nothing was read yet
        return database


def _connected(path: Path | None) -> sqlite3.Connection:
    assert path is not None
    database = open_database(path)
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0 and not database.execute("SELECT 1 FROM sqlite_master").fetchone():
            _make_tables(database)
        elif version != _FORMAT:
            raise ValueError(f"it is not of format {_FORMAT}")
    except BaseException:
        database.close()
        raise
    return database


def _make_tables(database: sqlite3.Connection) -> None:
    with transaction(database):
        if not database.execute("SELECT 1 FROM sqlite_master").fetchone():  # else another process was quicker
            for statement in _TABLES:
                database.execute(statement)


def _definitions(database: sqlite3.Connection, key: PinKey) -> tuple[str, str]:
    query = "SELECT accepted_text, pending_text FROM pins WHERE backend = ? AND tool = ?"
    found = database.execute(query, key).fetchone()
    return (found[0], found[1]) if found is not None else ("", "")


def _data_version(database: sqlite3.Connection) -> int:
    (version,) = database.execute("PRAGMA data_version").fetchone()
    return version


def shortened(text: str) -> str:
    """Return a definition as it is kept: cut at 32 KiB."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n… cut"


@contextmanager
def _as_os_error() -> Generator[None]:
    try:
        yield
    except (sqlite3.Error, ValueError) as error:
        raise OSError(f"{error}") from error
