"""What an index of tools promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from toolexec.discovery.facets import Facets
from toolexec.discovery.pages import Page
from toolexec.discovery.results import SearchResults
from toolexec.discovery.summary import Filters, Summary
from toolexec.errors import ToolConflictError, ToolNotFoundError
from toolexec.model.binding import Binding
from toolexec.model.ids import ToolID
from toolexec.model.tool import Tool

__all__ = [
    "BrowsableIndex",
    "BulkIndex",
    "ChangeEvent",
    "ChangeListener",
    "ChangeType",
    "CountsNamespaces",
    "Index",
    "OrdersBackends",
    "Registered",
    "bulk",
    "get_tool",
    "not_found",
]

_MAX_COMPARED: Final = 20_000
_MAX_CLOSE: Final = 3

ChangeType: TypeAlias = Literal[
    "registered", "updated", "backend_added", "backend_removed", "tool_removed", "refreshed"
]
"""What happened to a tool of an index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """One change of the index; `version` is the index's version after it. A refresh has no tool and no binding."""

    type: ChangeType
    version: int
    tool_id: str = ""
    binding: Binding | None = None


ChangeListener: TypeAlias = Callable[[ChangeEvent], None]
"""A function that an index calls after each change."""


class Registered:
    """A tool of the index with its bindings in order of registration (those of ordered backends in their order), and
    the one that the selector prefers; `target` is what that one's backend calls the tool."""

    __slots__ = ("_several", "binding", "target", "tool")

    def __init__(self, tool: Tool, bindings: tuple[Binding, ...], binding: Binding) -> None:
        self.tool: Tool = tool
        self.binding: Binding = binding
        self.target: str = binding.tool
        self._several = bindings if len(bindings) > 1 else None  # a tuple of one takes 48 bytes, 100,000 times

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """All bindings, in order of registration."""
        return self._several or (self.binding,)


class Index(Protocol):
    """Which tools exist and where they live. Every method is safe to call from several threads at once.

    This is all that an index must have. What else there is to ask of one, `get_tool`, `bulk` and `browsable` give; an
    index that can do it better is a `BulkIndex` or a `BrowsableIndex`, too.
    """

    def register(self, tool: Tool, binding: Binding) -> None:
        """Add a tool, or one more binding of a known tool.

        A known ID must come with the same definition; namespace, version and tags may differ and are replaced. A
        binding that is there already is kept. Raises ToolConflictError for another definition, with the index
        unchanged.
        """
        ...

    def unregister(self, tool_id: str, binding: Binding | None = None) -> None:
        """Remove one binding of a tool, and with the last one the tool; None removes the tool at once.

        Raises ToolNotFoundError for an unknown tool, BackendNotFoundError when it has no such binding.
        """
        ...

    def find(self, tool_id: str) -> Registered | None:
        """Return the tool, or None. `namespace:name` finds the highest version when no unversioned tool has that ID."""
        ...

    def search(
        self, query: str, limit: int = 10, *, filters: Filters | None = None, explain: bool = False
    ) -> SearchResults:
        """Return the best tools for *query*, best first, each with its score; the first by ID for an empty query.
        *explain* adds to each why it was found, if the searcher can say."""
        ...

    def tools(self) -> Sequence[Registered]:
        """Return all tools by ID."""
        ...

    def on_change(self, listener: ChangeListener) -> Callable[[], None]:
        """Have *listener* called after every change, in order, without locks held; returns how to stop that."""
        ...

    @property
    def version(self) -> int:
        """Grows with every change."""
        ...

    def __len__(self) -> int: ...


@runtime_checkable
class BulkIndex(Protocol):
    """What an index may have for changes of many tools; `bulk` gives it for any."""

    def register_many(self, tools: Iterable[tuple[Tool, Binding]]) -> None:
        """Add several tools, all or none; raises as `Index.register` does, with the index unchanged."""
        ...

    def replace(self, tool: Tool, binding: Binding) -> None:
        """Like `register`, but a new definition takes the place of the old one if *binding* is the tool's only one."""
        ...

    def refresh(self) -> int:
        """Make all cursors invalid and notify the listeners; returns the new version."""
        ...


@runtime_checkable
class OrdersBackends(Protocol):
    """An index that can keep the bindings of a tool in an order of backends."""

    def order_backends(self, names: Sequence[str]) -> None:
        """Have the bindings of a tool stand in the order of these backends from now on, behind those of others, which
        stand in order of registration."""
        ...


@runtime_checkable
class CountsNamespaces(Protocol):
    """An index that knows how many tools each namespace has, without a look at all of them."""

    def namespace_counts(self) -> Mapping[str, int]:
        """Return the number of tools by namespace."""
        ...


@runtime_checkable
class BrowsableIndex(Protocol):
    """What an index may have for those who look around in it; `browsable` gives it for any."""

    def get(self, tool_id: str) -> Registered:
        """Return the tool; raises InvalidToolIDError for a malformed ID, ToolNotFoundError with similar IDs
        otherwise."""
        ...

    def facets(self, query: str = "", *, filters: Filters | None = None) -> Facets:
        """Return how many tools a search would find, by namespace, tag, backend and hint; without a query, how many
        there are."""
        ...

    def search_page(
        self, query: str, limit: int = 10, *, cursor: str | None = None, filters: Filters | None = None
    ) -> Page[Summary]:
        """Return one page of all results. Raises InvalidCursorError, and ConfigurationError for a limit below 1 or a
        searcher that is not deterministic."""
        ...

    def namespaces(self) -> list[str]:
        """Return all namespaces in alphabetical order; `""` is among them when a tool has none."""
        ...

    def namespaces_page(self, limit: int = 10, *, cursor: str | None = None) -> Page[str]:
        """Return one page of `namespaces`; raises as `search_page` does."""
        ...


def get_tool(index: Index, tool_id: str) -> Registered:
    """Return the tool; raises InvalidToolIDError for a malformed ID, ToolNotFoundError with similar IDs otherwise."""
    found = index.find(tool_id)
    if found is not None:
        return found
    if isinstance(index, BrowsableIndex):
        return index.get(tool_id)
    raise not_found(tool_id, index.tools())


def not_found(tool_id: str, entries: Sequence[Registered]) -> ToolNotFoundError:
    """Return the error for an unknown ID, with those of *entries* that may have been meant, best first.

    Raises InvalidToolIDError for a malformed ID.
    """
    name = ToolID.parse(tool_id).name
    same = [entry.tool.id for entry in entries if entry.tool.name == name]
    if not same:
        from difflib import get_close_matches

        known = [entry.tool.id for entry in islice(entries, _MAX_COMPARED)]
        same = get_close_matches(tool_id[:200], known, n=_MAX_CLOSE, cutoff=0.6)
    return ToolNotFoundError(tool_id, close=same[:_MAX_CLOSE], op="resolve")


def bulk(index: Index) -> BulkIndex:
    """Return the index itself if it is a `BulkIndex`, else one that makes the changes one by one."""
    return index if isinstance(index, BulkIndex) else _OneByOne(index)


class _OneByOne:
    def __init__(self, index: Index) -> None:
        self._index = index

    def register_many(self, tools: Iterable[tuple[Tool, Binding]]) -> None:
        added: list[tuple[str, Binding]] = []
        try:
            for tool, binding in tools:
                known = self._index.find(tool.id)
                is_new = known is None or known.tool.id != tool.id or binding not in known.bindings
                self._index.register(tool, binding)
                if is_new:
                    added.append((tool.id, binding))
        except BaseException:
            for tool_id, binding in reversed(added):
                self._index.unregister(tool_id, binding)
            raise

    def replace(self, tool: Tool, binding: Binding) -> None:
        try:
            self._index.register(tool, binding)
        except ToolConflictError:
            known = self._index.find(tool.id)
            if known is None or known.bindings != (binding,):
                raise
            self._index.unregister(tool.id)
            self._index.register(tool, binding)

    def refresh(self) -> int:
        return self._index.version  # cursors of such an index hold until its next change
