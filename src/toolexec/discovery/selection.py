"""Which tools may be in an answer."""

from __future__ import annotations

from collections.abc import Callable

from toolexec.discovery.index import Registered
from toolexec.discovery.summary import Filters

__all__ = ["Selection"]


class Selection:
    """Says of a tool's ID whether it may be in the answer: the `Accept` that an index hands to its searcher.

    `filters` is all that it decides by, so a searcher that keeps its own tables of namespaces, tags, backends and hints
    may look there in place of calling this for each tool.
    """

    __slots__ = ("_find", "filters")

    def __init__(self, filters: Filters, find: Callable[[str], Registered | None]) -> None:
        self.filters = filters
        self._find = find

    def __call__(self, tool_id: str) -> bool:
        """Whether it may."""
        entry = self._find(tool_id)
        return entry is not None and self.filters.accept(entry.tool, entry.bindings)
