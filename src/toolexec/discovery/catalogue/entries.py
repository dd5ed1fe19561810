"""Entries of an index whose tools are made of their rows when somebody first looks at them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from toolexec.discovery.catalogue.rows import Row, read_row
from toolexec.discovery.index import Registered
from toolexec.model.binding import BindingSelector
from toolexec.model.tool import Tool

__all__ = ["Entries", "RowEntry", "ToolsOf"]

_reading = threading.Lock()


class RowEntry(Registered):
    """The entry of a row with a single binding. To make 100,000 tools takes half a second, to look at one 4 us."""

    __slots__ = ("_row",)

    _row: Row | None

    def __init__(self, row: Row) -> None:  # pyright: ignore[reportMissingSuperCall]
        self._row = row

    def __getattr__(self, name: str) -> Any:
        """What is asked for and not there yet. Raises CatalogueError when the row cannot be read."""
        with _reading:
            if self._row is not None:
                tool, bindings = read_row(self._row)
                super().__init__(tool, bindings, bindings[0])
                self._row = None
        return object.__getattribute__(self, name)


class ToolsOf(Mapping[str, Tool]):
    """The tools of entries by ID, made when they are asked for."""

    def __init__(self, entries: Mapping[str, Registered]) -> None:
        self._entries = entries

    def __getitem__(self, tool_id: str) -> Tool:
        return self._entries[tool_id].tool

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Entries:
    """The entries of an index from their rows: only those of *backends* (None: of all), and of this process only with
    *local*; *selector* picks one of several bindings. A binding that is not wanted is as if it were not there.

    `by_id` are the entries, `by_backend` the IDs of those that live outside of this process, `left_out` the others.
    """

    def __init__(self, backends: Collection[str] | None, local: bool, selector: BindingSelector) -> None:
        self.by_id: dict[str, Registered] = {}
        self.by_backend: dict[str, list[str]] = {}
        self.left_out: set[str] = set()
        self._backends = None if backends is None else frozenset(backends)
        self._local = local
        self._selector = selector
        self._lists: dict[str, list[str] | None] = {}

    def take(self, rows: Iterable[Row]) -> None:
        """Take in some rows. Raises CatalogueError for one that cannot be read."""
        by_id, lists = self.by_id, self._lists
        for row in rows:
            if row[-1]:
                self._take_rare(row)
                continue
            home = row[6]
            ids = lists[home] if home in lists else self._list_of(*home.split(":", 1))
            if ids is None:
                self.left_out.add(row[0])
            else:
                by_id[row[0]] = RowEntry(row)
                ids.append(row[0])

    def _take_rare(self, row: Row) -> None:
        tool, bindings = read_row(row)
        lists = [(binding, self._list_of(binding.kind, binding.backend)) for binding in bindings]
        wanted = tuple(binding for binding, ids in lists if ids is not None)
        if not wanted:
            self.left_out.add(tool.id)
            return
        self.by_id[tool.id] = Registered(tool, wanted, self._selector(wanted))
        for ids in {id(ids): ids for _, ids in lists if ids is not None}.values():
            ids.append(tool.id)

    def _list_of(self, kind: str, backend: str = "") -> list[str] | None:
        """Where to note the IDs of tools with such a binding; None when they are not wanted."""
        if kind == "local":
            ids: list[str] | None = [] if self._local else None
        elif self._backends is None or backend in self._backends:
            ids = self.by_backend.setdefault(backend, [])
        else:
            ids = None
        self._lists[f"{kind}:{backend}"] = ids
        return ids
