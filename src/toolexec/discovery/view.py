"""A part of an index as if it were the whole: for callers that may not know of every tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from toolexec.discovery.docs import DetailLevel, DocEntry, DocStore, ToolDoc
from toolexec.discovery.examples import ToolExample
from toolexec.discovery.index import ChangeListener, Index, Registered
from toolexec.discovery.pages import CursorSeal, Page
from toolexec.discovery.results import SearchResults
from toolexec.discovery.summary import Filters, Summary
from toolexec.errors import ConfigurationError, ToolNotFoundError
from toolexec.model.binding import Binding
from toolexec.model.ids import ToolID
from toolexec.model.tool import Tool

__all__ = ["DocsView", "IndexView", "Visible", "without_hidden"]

Visible = Callable[[Registered], bool]
"""Whether a tool may be known of; must be quick and always say the same of the same tool."""


class IndexView:
    """An `Index` that shows only the tools that *visible* accepts; changes go to the index behind it.

    A hidden tool is not found, not counted, and not suggested in place of one that is misspelt. *question* is mixed
    into cursors, so that one made for another caller is refused.
    """

    _seal = CursorSeal()

    def __init__(self, index: Index, visible: Visible, question: str = "") -> None:
        self._index = index
        self._visible = visible
        self._question = question

    def register(self, tool: Tool, binding: Binding) -> None:
        """See `Index.register`."""
        self._index.register(tool, binding)

    def register_many(self, tools: Iterable[tuple[Tool, Binding]]) -> None:
        """See `Index.register_many`."""
        self._index.register_many(tools)

    def replace(self, tool: Tool, binding: Binding) -> None:
        """See `Index.replace`."""
        self._index.replace(tool, binding)

    def unregister(self, tool_id: str, binding: Binding | None = None) -> None:
        """See `Index.unregister`."""
        self._index.unregister(tool_id, binding)

    def find(self, tool_id: str) -> Registered | None:
        """The tool, or None; see `Index.find`."""
        found = self._index.find(tool_id)
        return found if found is not None and self._visible(found) else None

    def get(self, tool_id: str) -> Registered:
        """The tool; raises as `Index.get` does, with no hidden tool among the suggestions."""
        try:
            found = self._index.get(tool_id)
        except ToolNotFoundError as error:
            raise without_hidden(error, self.find) from None
        if self._visible(found):
            return found
        raise ToolNotFoundError(tool_id, op="resolve")

    def search(
        self, query: str, limit: int = 10, *, filters: Filters | None = None, explain: bool = False
    ) -> SearchResults:
        """The best visible tools; see `Index.search`."""
        size = len(self._index)
        wanted = limit
        while True:  # most tools are visible as a rule, so ask for a few more until enough are left
            wanted = min(max(wanted * 2, limit + 10), size) if limit > 0 else limit
            found = self._index.search(query, wanted, filters=filters, explain=explain)
            shown = found.like(summary for summary in found if self.find(summary.id) is not None)
            if len(shown) >= limit or wanted >= size:
                return found.like(shown[: max(limit, 0)])

    def search_page(
        self, query: str, limit: int = 10, *, cursor: str | None = None, filters: Filters | None = None
    ) -> Page[Summary]:
        """One page of all visible results; see `Index.search_page`."""
        _check_limit(limit)
        question = [self._question, query, filters]
        start = 0 if cursor is None else self._seal.read(cursor, self.version, question)
        found = self.search(query, start + limit + 1, filters=filters)
        more = len(found) > start + limit
        following = self._seal.make(start + limit, self.version, question) if more else None
        return Page(tuple(found[start : start + limit]), following)

    def namespaces(self) -> list[str]:
        """The namespaces of visible tools; see `Index.namespaces`."""
        return sorted({entry.tool.namespace for entry in self.tools()})

    def namespaces_page(self, limit: int = 10, *, cursor: str | None = None) -> Page[str]:
        """One page of `namespaces`; see `Index.namespaces_page`."""
        _check_limit(limit)
        question = [self._question, "namespaces"]
        start = 0 if cursor is None else self._seal.read(cursor, self.version, question)
        names = self.namespaces()
        more = len(names) > start + limit
        following = self._seal.make(start + limit, self.version, question) if more else None
        return Page(tuple(names[start : start + limit]), following)

    def tools(self) -> Sequence[Registered]:
        """All visible tools by ID."""
        return [entry for entry in self._index.tools() if self._visible(entry)]

    def on_change(self, listener: ChangeListener) -> Callable[[], None]:
        """See `Index.on_change`; *listener* hears of changes of hidden tools, too."""
        return self._index.on_change(listener)

    def refresh(self) -> int:
        """See `Index.refresh`."""
        return self._index.refresh()

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._index.version

    def __len__(self) -> int:
        return len(self.tools())


class DocsView:
    """A `DocStore` that describes only the tools of *index*, which is a view."""

    def __init__(self, docs: DocStore, index: Index) -> None:
        self._docs = docs
        self._index = index

    def register_doc(self, tool_id: str, entry: DocEntry) -> None:
        """See `DocStore.register_doc`."""
        self._docs.register_doc(tool_id, entry)

    def register_examples(self, tool_id: str, examples: Iterable[ToolExample]) -> None:
        """See `DocStore.register_examples`."""
        self._docs.register_examples(tool_id, examples)

    def describe(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """The documentation; raises as `DocStore.describe` does, and ToolNotFoundError for a hidden tool."""
        self._check(tool_id)
        try:
            return self._docs.describe(tool_id, level)
        except ToolNotFoundError as error:
            raise without_hidden(error, self._index.find) from None

    def list_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """The tool's examples; raises as `describe` does."""
        self._check(tool_id)
        try:
            return self._docs.list_examples(tool_id, limit)
        except ToolNotFoundError as error:
            raise without_hidden(error, self._index.find) from None

    def _check(self, tool_id: str) -> None:
        ToolID.parse(tool_id)
        if self._index.find(tool_id) is None:
            self._index.get(tool_id)


def without_hidden(error: ToolNotFoundError, find: Callable[[str], Registered | None]) -> ToolNotFoundError:
    """The error with only those suggestions that *find* finds."""
    close = [tool_id for tool_id in error.details.get("close", ()) if find(tool_id) is not None]
    return ToolNotFoundError(error.tool_id or "", close=close, op=error.op or "resolve")


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ConfigurationError(f"a page needs a limit of 1 or more, not {limit}")
