"""A catalogue of tools in an SQLite file: there at once after a restart, and kept in step with an index."""

from __future__ import annotations

import gc
import logging
import sqlite3
import threading
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from toolexec.discovery.bm25 import BM25Config, BM25Searcher
from toolexec.discovery.catalogue import tables
from toolexec.discovery.catalogue.keeping import Keeper
from toolexec.discovery.catalogue.rows import (
    Entries,
    Row,
    Stored,
    ToolsOf,
    changes_of,
    fingerprint,
    home_of,
    is_storable,
    read_row,
    row_of,
)
from toolexec.discovery.catalogue.tables import connect, unusable
from toolexec.discovery.index import Index, Registered
from toolexec.discovery.memory import InMemoryIndex
from toolexec.discovery.search import Searcher
from toolexec.discovery.stored import StoredIndex
from toolexec.errors import CatalogueError, ConfigurationError, ToolExecError
from toolexec.model.binding import Binding, BindingSelector, binding_from_dict, prefer_local
from toolexec.model.forks import forks
from toolexec.model.settings import checked
from toolexec.model.tool import Tool
from toolexec.process.database import OwnDatabase, transaction

logger: logging.Logger = logging.getLogger(__name__)

_FEW_CHANGES: Final = 200
_LARGE_PART: Final = 20


@checked("SQLiteCatalogue")
class SQLiteCatalogue:
    """The tools of an index, with their bindings and a snapshot of the search index, in the file *path*.

    The file is for its owner alone: what is in it was checked when it was written, and is not checked again. Several
    processes may read and write at once. *delay* is how many seconds changes of an attached index are gathered before
    they are written. `close` it, or use it as a context manager; it can be used by several threads.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory, SQLiteCatalogue(f"{directory}/tools.db") as catalogue:
    ...     index = catalogue.open()
    ...     catalogue.attach(index)
    ...     len(catalogue)
    0
    """

    def __init__(self, path: str | Path, *, delay: float = 0.5) -> None:
        """Nothing is opened yet. Raises ConfigurationError for a delay below 0."""
        if not 0 <= delay < float("inf"):
            raise ConfigurationError(f"the delay of a catalogue must be 0 seconds or more, not {delay!r}")
        self.path: Path = Path(path)
        self._delay = delay
        self._lock = threading.Lock()
        self._database: OwnDatabase | None = None
        self._keeper: Keeper | None = None
        self._opened: tuple[StoredIndex, int] | None = None
        self._left_out: set[str] = set()
        forks.renew(self)

    def renew(self) -> None:
        """Implement `Renewed.renew`."""
        self._lock = threading.Lock()

    # -- reading ------------------------------------------------------------------------------------------------

    def open(
        self,
        *,
        backends: Collection[str] | None = None,
        local: bool = True,
        config: BM25Config | None = None,
        searcher: Searcher | None = None,
        selector: BindingSelector = prefer_local,
    ) -> StoredIndex:
        """Return the index as it was stored, ready to be searched; empty for a new file.

        *backends* are the only ones outside of this process whose tools are wanted, *local* says whether those of this
        process are. *config* is that of the BM25 searcher, *searcher* another one in its place, which receives every
        tool, and *selector* as that of `InMemoryIndex`.

        Raises CatalogueError for a file that is damaged, of another kind or version, that others may write to, or that
        cannot be read.
        """
        with _collector_paused(), self._reading() as database:
            entries = Entries(backends, local, selector)
            for rows in tables.read_pages(database):
                entries.take(rows)
            if searcher is None:
                searcher = _searcher(database, entries.by_id, config)
            else:
                _tell(searcher, entries.by_id.values())
            index = StoredIndex(entries.by_id, searcher, by_backend=entries.by_backend, selector=selector)
        self._opened, self._left_out = (index, index.version), entries.left_out
        return index

    def tools_of(self, backend: str) -> list[Stored]:
        """Return the stored tools, with all their bindings, that have one at the backend of this name (`local`: in this
        process), by ID. Raises CatalogueError."""
        with self._reading() as database:
            return _at(database, backend)

    def fingerprint_of(self, backend: str) -> str:
        """Return the `fingerprint` of `tools_of` a backend: the same as long as its tools and their bindings are."""
        return fingerprint(self.tools_of(backend))

    def verify(self) -> int:
        """Look at everything: the file, each tool as if it came from a stranger, and the search index. Returns how
        many tools there are. Raises CatalogueError for the first thing that is wrong."""
        with self._reading() as database:
            (answer,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if answer != "ok":
                raise CatalogueError(f"the catalogue {self.path} is damaged: {answer}", op="verify")
            entries: dict[str, Registered] = {}
            for rows in tables.read_pages(database):
                for row in rows:
                    tool, bindings = _checked(row)
                    entries[tool.id] = Registered(tool, bindings, bindings[0])
            data = tables.read_search(database)
        if data:
            BM25Searcher.load(data, ToolsOf(entries))
        return len(entries)

    def __len__(self) -> int:
        """Return how many tools are stored. Raises CatalogueError."""
        with self._reading() as database:
            (count,) = database.execute("SELECT count(*) FROM tools").fetchone()
            return count

    # -- writing ------------------------------------------------------------------------------------------------

    def save(self, index: Index, *, local: bool = True) -> int:
        """Store the tools of *index* in place of all that is stored, with a snapshot of its search index; returns how
        many. *local* says whether those of this process are stored, too. Raises CatalogueError, with the file as it
        was."""
        keeper = self._keeper
        with keeper.paused() if keeper is not None else nullcontext():  # its newer rows must not be written over
            version = _settled(index)
            data = _snapshot_of(index)
            rows = list(_rows(index.tools(), local))
            unchanged = _settled(index) == version
            with self._writing() as database:
                tables.replace_rows(database, rows)
                tables.put_search(database, data if unchanged else b"")
        return len(rows)

    def replace_tools(self, backend: str, tools: Iterable[tuple[Tool, Binding]]) -> bool:
        """Let *tools* be all that is stored of a backend; other bindings of theirs stay. Returns whether that changed
        anything; the file is not written to when it did not.

        Raises ConfigurationError for a binding to another backend, ToolConflictError for a tool that is stored with
        another definition and lives elsewhere, too, and CatalogueError.
        """
        fresh = {tool.id: (tool, binding) for tool, binding in tools}
        for tool, binding in fresh.values():
            if binding.backend != backend:
                raise ConfigurationError(f"{tool.id} is bound to {home_of(binding)}, not to {backend}", tool_id=tool.id)
        with self._writing() as database:
            known = {tool.id: (tool, bindings) for tool, bindings in _at(database, backend)}
            known |= {tool.id: (tool, bindings) for tool, bindings in map(read_row, tables.rows_of(database, fresh))}
            put, gone = changes_of(backend, known, fresh)
            tables.delete_rows(database, gone)
            tables.put_rows(database, put)
        return bool(put or gone)

    def clear(self) -> None:
        """Forget all tools, also those of a file with damaged ones. Raises CatalogueError."""
        with self._writing() as database:
            tables.replace_rows(database, ())
            tables.put_search(database, b"")

    def attach(self, index: Index, *, local: bool = True) -> None:
        """Keep the file in step with *index* from now on; until `close`, changes are written `delay` seconds later,
        all at once. What is stored now is replaced, if *index* is not what `open` gave. *local* is as for `save`.

        Raises ConfigurationError when an index is attached already, CatalogueError.
        """
        with self._lock:
            if self._keeper is not None:
                raise ConfigurationError("the catalogue keeps an index already; close it first")
            opened, self._opened = self._opened, None
            keeper = self._keeper = Keeper(index, partial(self._write, index, local), self._delay)
        if opened is not None and opened[0] is index and opened[1] == index.version:
            keeper.note(self._left_out)
            return
        try:
            self.save(index, local=local)
        except BaseException:
            self._keeper = None
            keeper.abandon()
            raise

    def flush(self) -> None:
        """Write what has changed and is not written yet. Raises CatalogueError; it is tried again later then."""
        if self._keeper is not None:
            self._keeper.flush()

    def close(self) -> None:
        """Write what is left to write, and release the index and the file; closing twice is fine. Raises
        CatalogueError."""
        keeper, self._keeper = self._keeper, None
        try:
            if keeper is not None:
                keeper.close()
        finally:
            with self._lock:
                database, self._database = self._database, None
                if database is not None:
                    database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, index: Index, local: bool, changed: set[str], reached: int) -> None:
        put: list[Row] = []
        gone: set[str] = set()
        for tool_id in changed:
            entry = index.find(tool_id)
            found = entry is not None and entry.tool.id == tool_id
            row = next(_rows([entry], local), None) if found and entry is not None else None
            if row is None:
                gone.add(tool_id)
            else:
                put.append(row)
        with self._writing() as database:
            tables.delete_rows(database, gone)
            tables.put_rows(database, put)
            due = len(tables.changed_since_search(database)) > max(
                _FEW_CHANGES, database.execute("SELECT count(*) FROM tools").fetchone()[0] // _LARGE_PART
            )
        if due:
            self._write_search(index, reached)

    def _write_search(self, index: Index, stored: int) -> None:
        """Store the search index, unless it knows of changes after version *stored*, which the rows do not have: a tool
        that it has forgotten, and that is still there after a crash, would not be found."""
        data = _snapshot_of(index)
        if data and _settled(index) == stored:
            with self._writing() as database:
                tables.put_search(database, data)

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        with self._used() as database, transaction(database, write=False):
            yield database

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        with self._used() as database, transaction(database):
            yield database

    @contextmanager
    def _used(self) -> Generator[sqlite3.Connection]:
        while True:
            with self._lock:
                if self._database is None:
                    self._database = OwnDatabase(partial(connect, self.path))
                own = self._database
            with unusable(self.path), own as database:
                if database is not None:  # else it was closed meanwhile, and is opened again
                    yield database
                    return


def _searcher(
    database: sqlite3.Connection, entries: Mapping[str, Registered], config: BM25Config | None
) -> BM25Searcher:
    """Return the searcher over these tools: of the snapshot and what has changed since, or if there is none, all
    again."""
    data = tables.read_search(database)
    if data:
        try:
            searcher = BM25Searcher.load(data, ToolsOf(entries), config)
        except CatalogueError as error:
            logger.info("%s", error)
        else:
            changed = tables.changed_since_search(database)
            _tell(searcher, [entries[tool_id] for tool_id in changed if tool_id in entries])
            return searcher
    searcher = BM25Searcher(config)
    _tell(searcher, entries.values())
    return searcher


def _tell(searcher: Searcher, entries: Iterable[Registered]) -> None:
    for entry in entries:
        searcher.add(entry.tool, entry.bindings)


def _snapshot_of(index: Index) -> bytes:
    searcher = getattr(index, "searcher", None)
    return searcher.dump() if type(searcher) is BM25Searcher else b""


def _settled(index: Index) -> int:
    """Return the version of *index* that has all changes which its searcher knows of by now."""
    return index.settled_version() if isinstance(index, InMemoryIndex) else index.version


def _rows(entries: Iterable[Registered], local: bool) -> Iterator[Row]:
    for entry in entries:
        bindings = entry.bindings
        if not local:
            bindings = tuple(binding for binding in bindings if binding.kind != "local")
        if bindings:
            yield row_of(entry.tool, bindings)


def _at(database: sqlite3.Connection, backend: str) -> list[Stored]:
    kinds = ("local", "provider", "mcp") if is_storable(backend) else ()  # else its tools are among the rare ones
    rows = tables.rows_at(database, [f"{kind}:{backend}" for kind in kinds])
    found = [read_row(row) for row in rows]
    return [stored for stored in found if any(binding.backend == backend for binding in stored[1])]


def _checked(row: Row) -> Stored:
    """Return the tool of a row, looked at as closely as a new one."""
    tool, bindings = read_row(row)
    try:
        made = Tool.from_dict(tool.to_dict())
        again = tuple([binding_from_dict(binding.to_dict()) for binding in bindings])
    except (ToolExecError, ValueError, TypeError, RecursionError) as error:
        raise CatalogueError(f"the stored tool {row[0][:200]!r} is not sound: {error}", op="verify") from error
    if made != tool or made.id != row[0] or again != bindings:
        raise CatalogueError(f"the stored tool {row[0][:200]!r} is not what a tool can be", op="verify")
    return made, bindings


@contextmanager
def _collector_paused() -> Generator[None]:
    """Hundreds of thousands of objects are about to be made, none of them garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.collect(1)  # looks at them once and here; the first search would pay for that, 30 ms for 100,000 tools
            gc.enable()
