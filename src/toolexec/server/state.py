"""What a server must not forget when it ends: small records that several servers share."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from toolexec.errors import ConfigurationError
from toolexec.process.database import open_database, use_wal

StateKind: TypeAlias = Literal["key", "session", "suspended", "result", "task", "stream"]
"""What a record is about: the key that seals states, a session, a call that waits between two requests, a result that
is read page by page, a task, or a call whose client may come back for its answer."""

_TIDY_EVERY: Final = 60.0
_FOREVER: Final = 100 * 365 * 86400.0
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS state (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS state_by_end ON state (until);
"""


@runtime_checkable
class StateStore(Protocol):
    """Records of text by kind and key, each for *ttl* seconds. Several servers may share them.

    What a method does is done before it returns, and at once for all who share the records: of several that swap one
    record for another, or add it, one succeeds. None of them holds up the event loop for longer than a local disk does.

    Every method raises ConfigurationError when the store cannot be used: then nothing was changed. Where the store is
    a server that cannot be reached, or does not answer, it raises StateError: then a change may have been made.
    """

    async def get(self, kind: StateKind, key: str) -> str | None:
        """Return a record; None when there is none, or its time is over."""
        ...

    async def put(self, kind: StateKind, key: str, value: str, ttl: float) -> None:
        """Keep a record, in the place of one that was there."""
        ...

    async def add(self, kind: StateKind, key: str, value: str, ttl: float) -> bool:
        """Keep a record unless there is one, and return whether there was none."""
        ...

    async def swap(self, kind: StateKind, key: str, old: str, new: str, ttl: float) -> bool:
        """Replace a record that is *old*, and return whether it was."""
        ...

    async def delete(self, kind: StateKind, key: str) -> None:
        """Forget a record, if it is there."""
        ...

    async def aclose(self) -> None:
        """Release what the store holds; closing twice is fine."""
        ...


def key_of(*parts: str) -> str:
    """Return the key of a record about what *parts* name: those, which may give access, cannot be read from it."""
    return hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=24).hexdigest()


async def sealing_key(store: StateStore) -> bytes:
    """Return the key that all who share *store* seal states with; the first makes it. Raises ConfigurationError, and
    StateError."""
    await store.add("key", "requestState", secrets.token_hex(32), _FOREVER)
    found = await store.get("key", "requestState")
    if found is None:
        raise ConfigurationError("the store of a server's state has not kept the key that was put there")
    return bytes.fromhex(found)


class FileState:
    """Records in the SQLite database *path*, which only its owner may read.

    Any number of processes of one machine may share the file. A method takes some ten microseconds, less than a switch
    to a thread and back, and is made where it is called. What is written outlives the death of the process, not
    always that of the machine. *clock* gives seconds since 1970. Raises ConfigurationError when the file cannot be
    used, as every method does.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path: Path = Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._tidied = 0.0
        self._database: sqlite3.Connection | None = None
        try:
            self._database = open_database(self.path)
            use_wal(self._database, sync=False)
            self._database.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            self._close()
            raise self._cannot(error) from error

    async def get(self, kind: StateKind, key: str) -> str | None:
        """Return a record; see `StateStore.get`."""
        with self._using() as database:
            query = "SELECT value FROM state WHERE kind = ? AND key = ? AND until > ?"
            row = database.execute(query, (kind, key, self._clock())).fetchone()
        return row[0] if row is not None else None

    async def put(self, kind: StateKind, key: str, value: str, ttl: float) -> None:
        """Keep a record; see `StateStore.put`."""
        self._change("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", kind, key, value, self._clock() + ttl)

    async def add(self, kind: StateKind, key: str, value: str, ttl: float) -> bool:
        """Keep a record unless there is one; see `StateStore.add`."""
        now = self._clock()
        query = (
            "INSERT INTO state VALUES (?, ?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, "
            "until = excluded.until WHERE until <= ?"
        )
        return self._change(query, kind, key, value, now + ttl, now)

    async def swap(self, kind: StateKind, key: str, old: str, new: str, ttl: float) -> bool:
        """Replace a record that is *old*; see `StateStore.swap`."""
        now = self._clock()
        query = "UPDATE state SET value = ?, until = ? WHERE kind = ? AND key = ? AND value = ? AND until > ?"
        return self._change(query, new, now + ttl, kind, key, old, now)

    async def delete(self, kind: StateKind, key: str) -> None:
        """Forget a record; see `StateStore.delete`."""
        self._change("DELETE FROM state WHERE kind = ? AND key = ?", kind, key)

    async def aclose(self) -> None:
        """Release the file; closing twice is fine."""
        self._close()

    def _close(self) -> None:
        with self._lock:
            database, self._database = self._database, None
            if database is not None:
                database.close()

    def _change(self, query: str, *values: Any) -> bool:
        """Make one change, which SQLite commits by itself, and return whether it changed anything."""
        with self._using() as database:
            now = self._clock()
            if now - self._tidied >= _TIDY_EVERY:
                self._tidied = now
                database.execute("DELETE FROM state WHERE until <= ?", (now,))
            return database.execute(query, values).rowcount > 0

    @contextmanager
    def _using(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            if self._database is None:
                raise self._cannot("it is closed")
            try:
                yield self._database
            except sqlite3.Error as error:
                raise self._cannot(error) from error

    def _cannot(self, why: Exception | str) -> ConfigurationError:
        return ConfigurationError(f"the file of a server's state, {self.path}, cannot be used: {why}")
