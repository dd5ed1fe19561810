"""A part of an index as if it were the whole: for callers that may not know of every tool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from toolexec.discovery.changes import TracksChanges
from toolexec.discovery.facets import Facets, count_facets
from toolexec.discovery.index import (
    BrowsableIndex,
    ChangeEvent,
    ChangeListener,
    Index,
    Registered,
    bulk,
    get_tool,
    not_found,
)
from toolexec.discovery.many import FEW
from toolexec.discovery.pages import CursorSeal, Page
from toolexec.discovery.results import SearchResults
from toolexec.discovery.shown import Shown, changes_since
from toolexec.discovery.summary import Filters, Summary
from toolexec.errors import ToolNotFoundError
from toolexec.model.binding import Binding
from toolexec.model.ids import ToolID
from toolexec.model.json_value import JSONDict
from toolexec.model.tool import Tool

if TYPE_CHECKING:
    from toolexec.discovery.docs import DetailLevel, DocEntry, DocStore, ToolDoc
    from toolexec.discovery.examples import ToolExample

Visible = Callable[[Registered], bool]
"""Whether a tool may be known of; must be quick and always say the same of the same tool."""

_MAX_CORRECTED: Final = 8


@runtime_checkable
class SearchesWithin(Protocol):
    """An index that can keep a search to some of its tools from the inside, so that it need not be asked for all."""

    def search_within(
        self, query: str, limit: int, ids: frozenset[str], *, filters: Filters | None = None, explain: bool = False
    ) -> SearchResults:
        """Return the best of the tools with these IDs; else as `Index.search`."""
        ...


class IndexView:
    """An `Index` that shows only the tools that *visible* accepts; changes go to the index behind it.

    A hidden tool is not found, not counted, and not suggested in place of one that is misspelt. *question* is mixed
    into cursors, so that one made for another caller is refused. *filters* are what every visible tool passes for
    certain: searches hand them on, so that fewer hidden tools are looked at.

    What it shows is computed when it is first asked for, and then only of the tools that have changed, so a view that
    is kept costs little. *states* are what *visible* goes by beside the tool: they say of which tools it may have
    changed its mind. With *stable* false nothing is kept: for a *visible* that may change its mind without a state.
    *ranked* says that a change of one tool may show or hide others. *whole* has what there is for a caller,
    hidden tools, too: their calls are refused as denied, not as unknown.
    """

    _seal = CursorSeal()

    def __init__(
        self,
        index: Index,
        visible: Visible,
        question: str = "",
        *,
        filters: Filters | None = None,
        stable: bool = True,
        ranked: bool = False,
        states: Sequence[TracksChanges] = (),
        whole: Index | None = None,
    ) -> None:
        self._index = index
        self._visible = visible
        self._question = question
        self._filters = filters
        self._stable = stable
        self._ranked = ranked
        self._sources: tuple[Index | TracksChanges, ...] = (index, *states)
        self._known: Shown | None = None
        self._preparing = threading.Lock()
        self.whole: Index | None = whole
        self.root: int = index.root if isinstance(index, IndexView) else id(index)
        """The same for all views of one index."""

    def _seen(self) -> Shown:
        seen, stamps = self._known, tuple([source.version for source in self._sources])
        if seen is not None and seen.stamps == stamps:
            return seen
        changed = None
        if seen is not None and not self._ranked:
            changed = changes_since(self._sources, seen.stamps, stamps)
        if seen is None or changed is None:
            seen = Shown.of(self._index, self._visible, stamps)
        else:
            seen = seen.after(changed, self._index, self._visible, stamps)
        if self._stable:
            self._known = seen
        return seen

    @property
    def is_prepared(self) -> bool:
        """Whether few tools have changed since what is shown was computed; see `Prepares`."""
        seen = self._known
        if seen is not None and not self._ranked:
            changed = changes_since(self._sources, seen.stamps, [source.version for source in self._sources])
            if changed is not None:
                return len(changed) <= FEW
        return not self._stable or len(self._index) <= FEW

    def prepare(self) -> None:
        """Compute what is shown; see `Prepares`. Of several threads one does, and the others wait for it."""
        with self._preparing:
            if not self.is_prepared:
                self._seen()

    # -- changes ------------------------------------------------------------------------------------------------

    def register(self, tool: Tool, binding: Binding) -> None:
        """Implement `Index.register`."""
        self._index.register(tool, binding)

    def register_many(self, tools: Iterable[tuple[Tool, Binding]]) -> None:
        """Implement `BulkIndex.register_many`."""
        bulk(self._index).register_many(tools)

    def replace(self, tool: Tool, binding: Binding) -> None:
        """Implement `BulkIndex.replace`."""
        bulk(self._index).replace(tool, binding)

    def unregister(self, tool_id: str, binding: Binding | None = None) -> None:
        """Implement `Index.unregister`."""
        self._index.unregister(tool_id, binding)

    def on_change(self, listener: ChangeListener) -> Callable[[], None]:
        """Implement `Index.on_change`; *listener* is notified only of changes that affect what is shown."""
        shown = self._seen().ids
        hidden = {entry.tool.id for entry in self._index.tools()} - shown

        def concerns(event: ChangeEvent) -> bool:
            """Return whether the tool is shown, or was, by its present state; it may have changed again meanwhile."""
            tool_id = event.tool_id
            found = self._index.find(tool_id)
            known = tool_id in hidden
            if found is None or found.tool.id != tool_id:
                hidden.discard(tool_id)
                return not known
            if self._visible(found):
                hidden.discard(tool_id)
                return True
            hidden.add(tool_id)
            return not known and event.type != "registered"

        def hear(event: ChangeEvent) -> None:
            nonlocal shown
            changed = not event.tool_id or concerns(event)
            if self._ranked:  # it may have let others in or out
                before, shown = shown, self._seen().ids
                changed = changed or before != shown
            if changed:
                listener(event)

        return self._index.on_change(hear)

    def refresh(self) -> int:
        """Implement `BulkIndex.refresh`."""
        return bulk(self._index).refresh()

    # -- lookups ------------------------------------------------------------------------------------------------

    def find(self, tool_id: str) -> Registered | None:
        """Return the tool, or None; see `Index.find`."""
        found = self._index.find(tool_id)
        return found if found is not None and self._visible(found) else None

    def get(self, tool_id: str) -> Registered:
        """Return the tool; raises as `BrowsableIndex.get` does, for a hidden tool just as for one that there is not."""
        found = self.find(tool_id)
        if found is not None:
            return found
        raise not_found(tool_id, self._seen().entries)

    def tools(self) -> Sequence[Registered]:
        """Return all visible tools by ID."""
        return self._seen().entries

    def namespaces(self) -> list[str]:
        """Return the namespaces of visible tools; see `BrowsableIndex.namespaces`."""
        return list(self._seen().namespaces)

    def namespaces_page(self, limit: int = 10, *, cursor: str | None = None) -> Page[str]:
        """Return one page of `namespaces`; see `BrowsableIndex.namespaces_page`."""
        question = [self.root, self._question, "namespaces"]
        return self._seal.page(lambda _: self._seen().namespaces, limit, cursor, self.version, question)

    def namespace_counts(self) -> Mapping[str, int]:
        """Return how many visible tools each namespace has."""
        return self._seen().namespace_counts

    @property
    def version(self) -> int:
        """Grows with every change."""
        return sum([source.version for source in self._sources])

    def __len__(self) -> int:
        return len(self._seen().entries)

    # -- search -------------------------------------------------------------------------------------------------

    def search(
        self, query: str, limit: int = 10, *, filters: Filters | None = None, explain: bool = False
    ) -> SearchResults:
        """Return the best visible tools; see `Index.search`."""
        narrowed = both_filters(filters, self._filters)
        if narrowed is None or limit < 1:
            return self._index.search(query, 0)
        found = self._search(query, limit, narrowed, explain=explain)
        if found.did_you_mean is not None and not self._knows(query, found.did_you_mean, narrowed):
            found.did_you_mean = None
        if found.note and not found:  # which of the words hidden tools have is not to be seen from the note
            found.note = "nothing that can be seen from here has these words" if query.strip() else "there are no tools"
        elif found.note.startswith("no tool has"):
            found.note = ""
        return found

    def _search(self, query: str, limit: int, filters: Filters, *, explain: bool) -> SearchResults:
        for wanted in (limit, limit * 4 + 16):  # most tools are visible as a rule
            found = self._index.search(query, wanted, filters=filters, explain=explain)
            shown = found.like(summary for summary in found if self.find(summary.id) is not None)
            if len(shown) >= limit or len(found) < wanted:
                return found.like(shown[:limit])
        return self._search_all(query, limit, self._seen().ids, filters, explain=explain)

    def _search_all(
        self, query: str, limit: int, ids: frozenset[str], filters: Filters, *, explain: bool
    ) -> SearchResults:
        index, size = self._index, len(self._index)
        if isinstance(index, SearchesWithin):
            return index.search_within(query, limit, ids, filters=filters, explain=explain)
        wanted = limit * 4 + 16
        while True:
            wanted = min(wanted * 8, size)
            found = index.search(query, wanted, filters=filters, explain=explain)
            shown = found.like(summary for summary in found if summary.id in ids)
            if len(shown) >= limit or wanted >= size:
                return found.like(shown[:limit])

    def _knows(self, query: str, meant: str, filters: Filters) -> bool:
        """Return whether visible tools have the words that the query was corrected to: those of hidden ones stay
        hidden."""
        asked = set(query.split())
        words = [word for word in meant.split() if word not in asked]
        if len(words) > _MAX_CORRECTED:
            return False
        found = (self._search(word, 1, filters, explain=False) for word in words)
        return all(hits and hits.did_you_mean is None for hits in found)

    def search_within(
        self, query: str, limit: int, ids: frozenset[str], *, filters: Filters | None = None, explain: bool = False
    ) -> SearchResults:
        """Return the best visible tools with these IDs; see `SearchesWithin`."""
        narrowed = both_filters(filters, self._filters)
        if narrowed is None or limit < 1:
            return self._index.search(query, 0)
        return self._search_all(query, limit, self._seen().ids & ids, narrowed, explain=explain)

    @property
    def search_blocks(self) -> bool:
        """Whether a search may wait for something, so that it should not be made on an event loop."""
        return bool(getattr(self._index, "search_blocks", False))

    def facets(self, query: str = "", *, filters: Filters | None = None) -> Facets:
        """Return how many visible tools a search would find, by facet; see `BrowsableIndex.facets`."""
        if query.strip():
            found = (self.find(summary.id) for summary in self.search(query, len(self._index), filters=filters))
            return count_facets((entry.tool, entry.bindings) for entry in found if entry is not None)
        entries = self._seen().entries
        wanted = filters if filters is not None else Filters()
        return count_facets((e.tool, e.bindings) for e in entries if wanted.accept(e.tool, e.bindings))

    def search_page(
        self, query: str, limit: int = 10, *, cursor: str | None = None, filters: Filters | None = None
    ) -> Page[Summary]:
        """Return one page of all visible results; see `BrowsableIndex.search_page`."""
        question = [self.root, self._question, query, filters]
        return self._seal.page(
            lambda wanted: self.search(query, wanted, filters=filters), limit, cursor, self.version, question
        )


def browsable(index: Index) -> BrowsableIndex:
    """Return the index itself if it is a `BrowsableIndex`, else a view of all of it, which is one."""
    return index if isinstance(index, BrowsableIndex) else IndexView(index, lambda _: True)


class DocsView:
    """A `DocStore` that describes only the tools of *index*, which is a view."""

    def __init__(self, docs: DocStore, index: Index) -> None:
        self._docs = docs
        self._index = index

    def register_doc(self, tool_id: str, entry: DocEntry) -> None:
        """Implement `DocStore.register_doc`."""
        self._docs.register_doc(tool_id, entry)

    def register_examples(self, tool_id: str, examples: Iterable[ToolExample]) -> None:
        """Implement `DocStore.register_examples`."""
        self._docs.register_examples(tool_id, examples)

    def describe(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Return the documentation; raises as `DocStore.describe` does, and ToolNotFoundError for a hidden tool."""
        self._check(tool_id)
        try:
            return self._docs.describe(tool_id, level)
        except ToolNotFoundError as error:
            raise without_hidden(error, self._index.find) from None

    def list_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """Return the tool's examples; raises as `describe` does."""
        self._check(tool_id)
        try:
            return self._docs.list_examples(tool_id, limit)
        except ToolNotFoundError as error:
            raise without_hidden(error, self._index.find) from None

    def _check(self, tool_id: str) -> None:
        ToolID.parse(tool_id)
        get_tool(self._index, tool_id)


def without_hidden(error: ToolNotFoundError, find: Callable[[str], Registered | None]) -> ToolNotFoundError:
    """Return the error with only those suggestions that *find* finds."""
    close = [tool_id for tool_id in error.details.get("close", ()) if find(tool_id) is not None]
    return ToolNotFoundError(error.tool_id or "", close=close, op=error.op or "resolve")


def both_filters(first: Filters | None, second: Filters | None) -> Filters | None:
    """Return what passes both, or None when nothing can. Where only one backend can be said, it is that of *first*; all
    else of *second* holds, too."""
    if first is None or second is None:
        return first or second or Filters()
    merged: JSONDict = {}
    for each in fields(Filters):
        one, two = getattr(first, each.name), getattr(second, each.name)
        if each.name == "tags":
            merged["tags"] = (*one, *two)
        elif one is None or two is None or one == two or each.name == "backend":
            merged[each.name] = two if one is None else one
        else:
            return None
    return Filters(**merged)
