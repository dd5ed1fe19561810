"""SQLite databases that belong to their owner alone: how they are made, opened and refused."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

__all__ = ["move_log", "open_database", "open_for_reading", "transaction", "use_wal"]

_LONG_LOG: Final = 16_000
"""In pages. A checkpoint that does not wait may never reach the end of a log that grows meanwhile."""


def open_database(path: Path | None, *, timeout: float = 2.0) -> sqlite3.Connection:
    """Open the SQLite database *path*, which is made, for its owner alone, if it is not there; None is one in memory.

    Nothing is read or written yet. Transactions are begun and ended by hand; any thread may use it, one at a time.
    *timeout* is how many seconds a statement waits for other processes. Raises OSError and sqlite3.Error; a
    PermissionError for a file that other users may write to.
    """
    if path is None:
        return _connect(":memory:", timeout)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, flags in ((path, os.O_CREAT), (f"{path}-wal", 0), (f"{path}-journal", 0)):
        try:
            file = os.open(name, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | flags, 0o600)
        except FileNotFoundError:
            continue
        try:
            _require_ours(str(name), os.fstat(file))
        finally:
            os.close(file)
    return _connect(path, timeout)


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open the SQLite database *path*, to which nothing is written. Raises sqlite3.Error, also if it is not there."""
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)


def _connect(path: Path | str, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)


def use_wal(database: sqlite3.Connection, *, sync: bool) -> None:
    """Keep changes in a log beside the file, so that readers and the writer do not wait for each other.

    What is committed survives the end of the process at any point. With *sync* it is on the disk before the commit
    returns, so that it survives a power failure, too. Raises sqlite3.Error.
    """
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")


def move_log(path: Path) -> None:
    """Move the log of a database into it, for owners that do not have a commit do it (`wal_autocheckpoint=0`): it waits
    for the disk, by a connection of its own, and so in a thread. Raises OSError and sqlite3.Error."""
    with closing(open_database(path)) as database:
        database.execute("PRAGMA synchronous=NORMAL")  # it syncs the log first, then the database
        _, pages, _ = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages > _LONG_LOG:
            database.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()


@contextmanager
def transaction(database: sqlite3.Connection, *, write: bool = True) -> Generator[None]:
    """Write all that is written in the block, or nothing if it raises; a reader sees the file as it was at the start.
    Raises sqlite3.Error."""
    database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _require_ours(name: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a file", name)
    ours = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    if not ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "other users may write to it; make it yours alone (chmod 600), or name another file"
        raise PermissionError(errno.EPERM, why, name)
