"""SQLite databases that belong to their owner alone: how they are made, opened and refused."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from toolexec.model.forks import forks

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
    # Nothing here opens the file: to close it would free all locks that SQLite holds on it in this process (POSIX), and
    # another process would then remove the log that is in use.
    path = path.resolve()  # SQLite keeps its logs beside what a link leads to
    with suppress(FileExistsError):
        _make(path)
    for name in (str(path), f"{path}-wal", f"{path}-journal"):
        with suppress(FileNotFoundError):
            _require_ours(name, Path(name).stat())
    return _connect(path, timeout)


def _make(path: Path) -> None:
    """Make an empty file for its owner alone. Raises FileExistsError, and OSError where it cannot be made."""
    try:
        os.mknod(path, 0o600)
    except FileExistsError:
        raise
    except (AttributeError, OSError):  # of other systems than Linux, of some file systems, or of the directory
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open the SQLite database *path*, to which nothing is written. Raises sqlite3.Error, also if it is not there."""
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)


def _connect(path: Path | str, timeout: float) -> sqlite3.Connection:
    while _LEFT:
        _LEFT.pop().close()
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


class OwnDatabase:
    """An SQLite database that the threads of this process use one at a time, in a `with` block; None once it is closed.

    *connect* opens it: now, and in a child that is forked later, which must not use the connection of its parent.
    Raises what that raises, here and at the start of a block; and there a sqlite3.Error in a child that was forked
    while a thread used it, as SQLite then takes it for locked there.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._is_closed = self._is_lost = False
        self._database: sqlite3.Connection | None = connect()
        forks.renew(self)

    def __enter__(self) -> sqlite3.Connection | None:
        self._lock.acquire()
        if self._database is None and not self._is_closed:
            try:
                if self._is_lost:
                    raise sqlite3.OperationalError(_LOST)
                self._database = self._connect()
            except BaseException:
                self._lock.release()
                raise
        return self._database

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Leave the connection to the parent, in a child that was forked just now."""
        database, self._database = self._database, None
        if self._lock.locked():
            self._lock, self._is_lost = threading.Lock(), True
            _LOST_ONES.append(database)
        elif database is not None:
            _LEFT.append(database)

    def close(self, before: Callable[[], object] | None = None) -> None:
        """Close it, and call *before* first if it is open; closing twice is fine."""
        with self._lock:
            self._is_closed = True
            database, self._database = self._database, None
            if database is not None:
                if before is not None:
                    before()
                database.close()


_LOST: Final = (
    "this process was forked while a thread of its parent used the file; fork before the first use, or start children "
    "by the method spawn"
)
_LEFT: Final[list[sqlite3.Connection]] = []
"""Connections of a parent, which are closed before another one is opened: SQLite would take their locks for its own."""
_LOST_ONES: Final[list[sqlite3.Connection | None]] = []
"""Connections of a parent that had a thread in them: to close one would wait for that thread."""


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
    if not os.access(name, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
