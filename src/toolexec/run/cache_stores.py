"""Where answers of tools are kept: in memory, and in a file that outlives the process."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final, Protocol

from toolexec.errors import ConfigurationError
from toolexec.process.database import OwnDatabase, open_database, use_wal

logger: logging.Logger = logging.getLogger(__name__)
_OVERHEAD: Final = 200
"""About how many bytes an entry takes besides its answer."""
_BETWEEN_PRUNINGS: Final = 100
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, expires REAL NOT NULL, answer BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS answers_by_expiry ON answers (expires);
"""


class CacheStore(Protocol):
    """Keeps answers for some time; safe to use from several threads."""

    def get(self, key: bytes, now: float) -> tuple[bytes, float] | None:
        """Return the answer under *key* and when it expires; None where there is none that still counts."""
        ...

    def put(self, key: bytes, answer: bytes, expires: float, now: float) -> None:
        """Keep an answer until *expires*, or until there is no room for it."""
        ...

    def clear(self) -> None:
        """Forget all answers."""
        ...

    def close(self) -> None:
        """Release what it holds open; closing twice is fine."""
        ...


class MemoryCache:
    """Keeps at most *max_bytes* of answers; the one that was not used for the longest time goes first."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes: int = 0
        self._kept: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, now: float) -> tuple[bytes, float] | None:
        """Implement `CacheStore.get`."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            if found[1] <= now:
                self._drop(key)
                return None
            self._kept.move_to_end(key)
            return found

    def put(self, key: bytes, answer: bytes, expires: float, now: float) -> None:
        """Implement `CacheStore.put`."""
        with self._lock:
            if key in self._kept:
                self._drop(key)
            self._kept[key] = (answer, expires)
            self.bytes += len(answer) + _OVERHEAD
            while self.bytes > self.max_bytes:
                self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Implement `CacheStore.clear`."""
        with self._lock:
            self._kept.clear()
            self.bytes = 0

    def close(self) -> None:
        """Implement `CacheStore.close`."""

    def _drop(self, key: bytes) -> None:
        self.bytes -= len(self._kept.pop(key)[0]) + _OVERHEAD


class SQLiteCache:
    """Keeps answers in the SQLite database *path*, which only its owner may read; several processes may share it.

    It holds about *max_bytes*; the answers that expire soonest go first. A file that fails later is not an error of
    the calls: they go on without it, and a warning is logged. Raises ConfigurationError when it cannot be opened.
    """

    def __init__(self, path: str | Path, max_bytes: int) -> None:
        self.path: Path = Path(path)
        self.max_bytes = max_bytes
        self._puts = 0
        try:
            self._database = OwnDatabase(self._connect)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"the cache {self.path} cannot be used: {error}") from error

    def get(self, key: bytes, now: float) -> tuple[bytes, float] | None:
        """Implement `CacheStore.get`."""
        try:
            with self._database as database:
                if database is None:
                    return None
                found = database.execute(
                    "SELECT answer, expires FROM answers WHERE key = ? AND expires > ?", (key, now)
                ).fetchone()
        except (OSError, sqlite3.Error) as error:
            self._warn(error)
            return None
        return None if found is None else (bytes(found[0]), float(found[1]))

    def put(self, key: bytes, answer: bytes, expires: float, now: float) -> None:
        """Implement `CacheStore.put`."""
        try:
            with self._database as database:
                if database is None:
                    return
                database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, expires, answer))
                if self._puts % _BETWEEN_PRUNINGS == 0:
                    self._prune(database, now)
                self._puts += 1
        except (OSError, sqlite3.Error) as error:
            self._warn(error)

    def clear(self) -> None:
        """Implement `CacheStore.clear`."""
        with self._database as database:
            if database is not None:
                database.execute("DELETE FROM answers")

    def close(self) -> None:
        """Implement `CacheStore.close`."""
        self._database.close()

    def _connect(self) -> sqlite3.Connection:
        database = open_database(self.path)
        try:
            use_wal(database, sync=False)
            database.executescript(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database

    def _prune(self, database: sqlite3.Connection, now: float) -> None:
        database.execute("DELETE FROM answers WHERE expires <= ?", (now,))
        sizes = "SELECT key, sum(length(answer) + ?) OVER (ORDER BY expires DESC, key) AS total FROM answers"
        over = f"SELECT key FROM ({sizes}) WHERE total > ?"  # noqa: S608 - no part of it is from outside
        database.execute(f"DELETE FROM answers WHERE key IN ({over})", (_OVERHEAD, self.max_bytes))  # noqa: S608

    def _warn(self, error: Exception) -> None:
        logger.warning("the cache %s cannot be used just now: %s", self.path, error)
