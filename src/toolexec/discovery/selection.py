"""Which tools may be in an answer, and patterns of their IDs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import Final

from toolexec.discovery.index import Registered
from toolexec.discovery.summary import Filters
from toolexec.errors import ConfigurationError
from toolexec.model.tool import Tool

__all__ = ["IDPatterns", "Selection"]


_MAX_PATTERNS: Final = 1_000
_WILD: Final = re.compile(r"[*?\[]")


class IDPatterns:
    """IDs, and patterns of them: `*` for anything, `?` for one character, `[ab]` for one of these; case-sensitive.

    One that fits the ID without its version fits all versions. *what* names the patterns in errors. Raises
    ConfigurationError for more than 1,000 patterns that are not just IDs.
    """

    __slots__ = ("_exact", "_like")

    def __init__(self, what: str, patterns: Sequence[str]) -> None:
        self._exact = frozenset(pattern for pattern in patterns if not _WILD.search(pattern))
        wild = [pattern for pattern in patterns if pattern not in self._exact]
        if len(wild) > _MAX_PATTERNS:
            raise ConfigurationError(f"{what} has more than {_MAX_PATTERNS} patterns; use namespaces or tags")
        # What `translate` makes never tries a second way to fit a piece, so no pattern takes long on any ID.
        self._like = re.compile("|".join(map(translate, wild))).match if wild else None

    def match(self, tool: Tool) -> bool:
        """Return whether one of them fits the tool's ID."""
        return self.fits(tool.id) or (bool(tool.version) and self.fits(f"{tool.namespace}:{tool.name}"))

    def fits(self, tool_id: str) -> bool:
        """Return whether one of them fits this ID, or any other text, as a whole."""
        return tool_id in self._exact or (self._like is not None and self._like(tool_id) is not None)


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
