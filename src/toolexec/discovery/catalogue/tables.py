"""The file of a stored catalogue: who may write to it, which version it has, and what is read from and written to its
tables, always inside of a transaction of the caller.

Rows are numbered, and each page of 1,024 numbers has a checksum. So all rows can be believed after one pass over them,
and a change costs no more than the pages that it touches.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from toolexec.discovery.catalogue.rows import COLUMNS, Row, digest_of
from toolexec.errors import CatalogueError
from toolexec.process.database import open_database, transaction, use_wal

_PAGE_BITS: Final = 10
_PART: Final = 1 << 24
_SELECT: Final = "SELECT id, title, description, input, output, traits, home, target, rest FROM tools"
_INSERT: Final = (
    "INSERT INTO tools (num, id, title, description, input, output, traits, home, target, rest, changed) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPSERT: Final = _INSERT + (
    " ON CONFLICT (id) DO UPDATE SET title = excluded.title, description = excluded.description, "
    "input = excluded.input, output = excluded.output, traits = excluded.traits, home = excluded.home, "
    "target = excluded.target, rest = excluded.rest, changed = excluded.changed"
)
_SEARCHABLE: Final = "UPDATE counters SET value = (SELECT value FROM counters WHERE name = ?) WHERE name = 'searchable'"


def read_pages(database: sqlite3.Connection) -> Iterator[list[Row]]:
    """Yield all rows, page by page, in the order of their numbers. Raises CatalogueError where they are not what was
    written."""
    found = 0
    for page, digest in database.execute("SELECT page, digest FROM pages ORDER BY page").fetchall():
        rows = _page(database, page)
        if not rows or not _is(rows, digest):
            raise _damaged(f"the tools of page {page} are not those that were written")
        found += len(rows)
        yield rows
    (count,) = database.execute("SELECT count(*) FROM tools").fetchone()
    if count != found:
        raise _damaged(f"it has {count} tools, and {found} were written")


def rows_at(database: sqlite3.Connection, homes: Sequence[str]) -> list[Row]:
    """Return the rows whose first binding is at one of these homes, and all that may have others."""
    marks = ", ".join("?" * len(homes))
    query = f"{_SELECT} WHERE home IN ({marks}) UNION {_SELECT} WHERE rest != '' ORDER BY id"
    return database.execute(query, homes).fetchall()


def rows_of(database: sqlite3.Connection, tool_ids: Iterable[str]) -> list[Row]:
    """Return the rows with these IDs; IDs without a row are left out."""
    found = (database.execute(_SELECT + " WHERE id = ?", (tool_id,)).fetchone() for tool_id in tool_ids)
    return [row for row in found if row is not None]


def replace_rows(database: sqlite3.Connection, rows: Iterable[Row]) -> int:
    """Write these rows in place of all others; returns how many."""
    changed = _next_change(database)
    database.execute("DELETE FROM tools")
    database.execute("DELETE FROM pages")
    source, page = iter(rows), 0
    written = 0
    while block := list(islice(source, 1 << _PAGE_BITS)):
        first = page << _PAGE_BITS
        numbered = ((first + place, *row, changed) for place, row in enumerate(block))
        database.executemany(_INSERT, numbered)
        database.execute("INSERT INTO pages VALUES (?, ?)", (page, digest_of(block)))
        page += 1
        written += len(block)
    return written


def put_rows(database: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Write new rows, and those that take the place of others with their IDs. Raises CatalogueError, with nothing
    written by a caller that rolls back, when a page that is changed is damaged."""
    if not rows:
        return
    changed = _next_change(database)
    ids = [row[0] for row in rows]
    _check(database, {*_pages_of(database, ids), _last_page(database)})
    database.executemany(_UPSERT, ((None, *row, changed) for row in rows))
    _seal(database, _pages_of(database, ids))


def delete_rows(database: sqlite3.Connection, tool_ids: Collection[str]) -> None:
    """Take rows out; unknown IDs are ignored. Raises as `put_rows` does."""
    pages = _pages_of(database, tool_ids)
    _check(database, pages)
    database.executemany("DELETE FROM tools WHERE id = ?", ((tool_id,) for tool_id in tool_ids))
    _seal(database, pages)


def changed_since_search(database: sqlite3.Connection) -> list[str]:
    """Return the IDs of the rows that the snapshot of the search index does not know as they are."""
    return [
        str(tool_id)
        for (tool_id,) in database.execute(
            "SELECT id FROM tools WHERE changed > (SELECT value FROM counters WHERE name = 'searchable')"
        )
    ]


def read_search(database: sqlite3.Connection) -> bytes:
    """Return the snapshot of the search index; empty when there is none."""
    parts = database.execute("SELECT data FROM search ORDER BY part").fetchall()
    return b"".join([bytes(part) for (part,) in parts])


def put_search(database: sqlite3.Connection, data: bytes) -> None:
    """Keep the snapshot of the search index over all rows as they are now; an empty one for none."""
    database.execute("DELETE FROM search")
    parts = ((i, data[start : start + _PART]) for i, start in enumerate(range(0, len(data), _PART)))
    database.executemany("INSERT INTO search VALUES (?, ?)", parts)
    database.execute(_SEARCHABLE, ("changes" if data else "never",))


def _next_change(database: sqlite3.Connection) -> int:
    database.execute("UPDATE counters SET value = value + 1 WHERE name = 'changes'")
    found = database.execute("SELECT value FROM counters WHERE name = 'changes'").fetchone()
    if found is None:
        raise _damaged("it does not count its changes")
    return int(found[0])


def _page(database: sqlite3.Connection, page: int) -> list[Row]:
    of_page = _SELECT + " WHERE num >= ? AND num < ? ORDER BY num"
    return database.execute(of_page, (page << _PAGE_BITS, (page + 1) << _PAGE_BITS)).fetchall()


def _last_page(database: sqlite3.Connection) -> int:
    """Return the page of the next new row."""
    (last,) = database.execute("SELECT max(num) FROM tools").fetchone()
    return 0 if last is None else (last + 1) >> _PAGE_BITS


def _check(database: sqlite3.Connection, pages: Iterable[int]) -> None:
    """So that a checksum of rows that are changed does not make others good that were damaged before."""
    for page in pages:
        rows = _page(database, page)
        found = database.execute("SELECT digest FROM pages WHERE page = ?", (page,)).fetchone()
        if not (rows and found and _is(rows, found[0])) and (rows or found):
            raise _damaged(f"the tools of page {page} are not those that were written")


def _is(rows: Sequence[Row], digest: object) -> bool:
    try:
        return digest_of(rows) == digest
    except TypeError:  # a value that is not text
        return False


def _pages_of(database: sqlite3.Connection, tool_ids: Iterable[str]) -> set[int]:
    pages: set[int] = set()
    for tool_id in tool_ids:
        found = database.execute("SELECT num FROM tools WHERE id = ?", (tool_id,)).fetchone()
        if found is not None:
            pages.add(found[0] >> _PAGE_BITS)
    return pages


def _seal(database: sqlite3.Connection, pages: Iterable[int]) -> None:
    for page in pages:
        rows = _page(database, page)
        if rows:
            database.execute("INSERT OR REPLACE INTO pages VALUES (?, ?)", (page, digest_of(rows)))
        else:
            database.execute("DELETE FROM pages WHERE page = ?", (page,))


def _damaged(what: str) -> CatalogueError:
    return CatalogueError(
        f"the catalogue is damaged: {what}; delete the file, and it is made again",
        op="catalogue",
        details={"damaged": True},
    )


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
    """Return a connection to the catalogue in *path*, which is made, for its owner alone, if it is not there.

    Raises CatalogueError for a file that others may write to, is of another kind or a newer version, or cannot be
    opened.
    """
    with unusable(path):
        database = open_database(path, timeout=_PATIENCE)  # its content is trusted: no one else may write to it
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
        hint = "; delete the file, and it is made again" if damaged else ""
        raise CatalogueError(f"the catalogue {path} cannot be used: {error}{hint}", op="catalogue") from error


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    if not _objects(database):
        database.execute(f"PRAGMA page_size={_PAGE_SIZE}")
        database.execute("PRAGMA journal_mode=WAL")
        with transaction(database):
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
    if _objects(database) != _TABLES:  # triggers and views that others added would be run
        raise CatalogueError(
            f"the catalogue {path} has other tables than it should; delete the file, and it is made again",
            op="catalogue",
        )
    use_wal(database, sync=False)


def _objects(database: sqlite3.Connection) -> dict[str, str]:
    rows = database.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {str(name): str(sql) for name, sql in rows}
