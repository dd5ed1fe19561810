"""The file of a stored catalogue: who may write to it, what is in it, and which version it has."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toolexec.discovery.catalogue.rows import COLUMNS
from toolexec.errors import CatalogueError

__all__ = ["FORMAT", "connect", "transaction", "unusable"]

FORMAT: Final = 1
"""The version of the tables; another one cannot be read."""

_APPLICATION: Final = 0x74784361  # txCa
_PAGE_SIZE: Final = 16384
_PATIENCE: Final = 10.0
_MAX_VALUE: Final = 1 << 30
_TABLES: Final = {
    "tools": f"CREATE TABLE tools (num INTEGER PRIMARY KEY, {', '.join(f'{name} TEXT NOT NULL' for name in COLUMNS)}, "
    "changed INTEGER NOT NULL)",
    "tools_by_id": "CREATE UNIQUE INDEX tools_by_id ON tools (id)",
    "tools_by_home": "CREATE INDEX tools_by_home ON tools (home)",
    "rare_tools": "CREATE INDEX rare_tools ON tools (id) WHERE rest != ''",
    "tools_by_change": "CREATE INDEX tools_by_change ON tools (changed)",
    "pages": "CREATE TABLE pages (page INTEGER PRIMARY KEY, digest BLOB NOT NULL)",
    "search": "CREATE TABLE search (part INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    "counters": "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
}


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the catalogue in *path*, which is made, for its owner alone, if it is not there.

    Raises CatalogueError for a file that others may write to, is of another kind or a newer version, or cannot be
    opened.
    """
    with unusable(path):
        _check_owner(path)
        database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            database.execute("PRAGMA trusted_schema=OFF")
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
            _prepare(database, path)
        except BaseException:
            database.close()
            raise
        return database


@contextmanager
def unusable(path: Path) -> Generator[None]:
    """Errors of the database and of the system as CatalogueError."""
    try:
        yield
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        hint = "; delete the file, and it is made anew" if damaged else ""
        raise CatalogueError(f"the catalogue {path} cannot be used: {error}{hint}", op="catalogue") from error


@contextmanager
def transaction(database: sqlite3.Connection, *, write: bool) -> Generator[None]:
    """All or nothing; a reader sees the catalogue as it was at the beginning."""
    database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _check_owner(path: Path) -> None:
    """Make the file if need be, and refuse it if somebody else may have written what is in it, as it is believed."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, flags in ((path, os.O_CREAT), (f"{path}-wal", 0), (f"{path}-journal", 0)):
        try:
            file = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | flags, 0o600)
        except FileNotFoundError:
            continue
        try:
            status = os.fstat(file)
        finally:
            os.close(file)
        if not stat.S_ISREG(status.st_mode):
            raise CatalogueError(f"the catalogue {name} is not a file", op="catalogue")
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise CatalogueError(
                f"others may write to the catalogue {name}, and its tools would be trusted; "
                "make it yours alone (chmod 600), or delete it",
                op="catalogue",
            )


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    if not _objects(database):
        database.execute(f"PRAGMA page_size={_PAGE_SIZE}")
        database.execute("PRAGMA journal_mode=WAL")
        with transaction(database, write=True):
            if not _objects(database):  # no other process was quicker
                for statement in _TABLES.values():
                    database.execute(statement)
                database.execute("INSERT INTO counters VALUES ('changes', 0), ('never', 0), ('searchable', 0)")
                database.execute(f"PRAGMA application_id={_APPLICATION}")
                database.execute(f"PRAGMA user_version={FORMAT}")
    (kind,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if kind != _APPLICATION:
        raise CatalogueError(f"{path} is a database of something else; name another file", op="catalogue")
    if version != FORMAT:
        raise CatalogueError(
            f"the catalogue {path} has version {version}, and this toolexec reads {FORMAT}; "
            "use the toolexec that made it, or another file",
            op="catalogue",
        )
    if _objects(database) != _TABLES:  # triggers and views of somebody's own would be run
        raise CatalogueError(
            f"the catalogue {path} has other tables than it should; delete the file, and it is made anew",
            op="catalogue",
        )
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")


def _objects(database: sqlite3.Connection) -> dict[str, str]:
    rows = database.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {str(name): str(sql) for name, sql in rows}
