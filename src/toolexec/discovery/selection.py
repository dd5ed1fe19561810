"""Which tools may be in an answer."""

from __future__ import annotations

from collections.abc import Callable

from toolexec.discovery.index import Registered
from toolexec.discovery.summary import Filters


class Selection:
    """Says of a tool's ID whether it may be in the answer: the `Accept` that an index hands to its searcher.

    `filters`, and `ids` unless that is None, are all that it decides by, so a searcher that keeps its own tables of
    namespaces, tags, backends and hints may look there in place of calling this for each tool.
    """

    __slots__ = ("_find", "filters", "ids")

    def __init__(
        self, filters: Filters, find: Callable[[str], Registered | None], ids: frozenset[str] | None = None
    ) -> None:
        self.filters: Filters = filters
        self.ids: frozenset[str] | None = ids
        self._find = find

    def __call__(self, tool_id: str) -> bool:
        """Return whether it may."""
        if self.ids is not None and tool_id not in self.ids:
            return False
        entry = self._find(tool_id)
        return entry is not None and self.filters.accept(entry.tool, entry.bindings)
