"""The index in memory."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from toolexec.discovery.changes import ChangeLog
from toolexec.discovery.explanation import Explains
from toolexec.discovery.facets import CountsFacets, Facets, count_facets
from toolexec.discovery.index import ChangeEvent, ChangeListener, ChangeType, Registered
from toolexec.discovery.many import FEW, are_long
from toolexec.discovery.pages import CursorSeal, Page
from toolexec.discovery.results import SearchResults
from toolexec.discovery.search import Accept, Hits, Searcher
from toolexec.discovery.selection import Selection
from toolexec.discovery.summaries import Summaries
from toolexec.discovery.summary import Filters, Summary
from toolexec.discovery.versions import Versions
from toolexec.errors import (
    BackendNotFoundError,
    ConfigurationError,
    InvalidToolError,
    ToolConflictError,
    ToolNotFoundError,
)
from toolexec.model.binding import Binding, BindingSelector, LocalBinding, MCPBinding, ProviderBinding, prefer_local
from toolexec.model.ids import ToolID
from toolexec.model.settings import checked
from toolexec.model.tool import Tool

logger: logging.Logger = logging.getLogger(__name__)
_TRIES = 3
_KEPT = 512
_BINDINGS = (LocalBinding, ProviderBinding, MCPBinding)


class _RecentChanges:
    """Remembers the IDs of the tools that were changed last, so that a reader who takes no lock can see afterwards
    whether what it read belongs together. `note` is called before a change, `finish` after it, one caller at a time.

    `finished` counts the changes that are over: one that a reader began in the middle of is fresh for it, too.
    """

    __slots__ = ("_ids", "_noted", "finished")

    def __init__(self) -> None:
        self.finished = 0
        self._noted = 0
        self._ids: deque[str] = deque(maxlen=_KEPT)

    def note(self, tool_id: str) -> None:
        """Note that a tool is about to change."""
        self._noted += 1  # first: a reader in between sees one ID too many rather than one too few
        self._ids.append(tool_id)

    def finish(self) -> None:
        """Say that the change is made."""
        self.finished = self._noted

    def touched(self, tool_ids: Iterable[str], since: int) -> bool:
        """Return whether any of the tools may have changed since there were *since* changes."""
        fresh = self._noted - since
        if not fresh:
            return False
        if fresh >= _KEPT:
            return True
        try:
            changed = set(list(self._ids)[-fresh:])
        except RuntimeError:  # one was added just now
            return True
        return not changed.isdisjoint(tool_ids)


@checked("InMemoryIndex")
class InMemoryIndex:
    """An `Index` in this process's memory, bulk and browsable, ranked by BM25 unless another *searcher* is given.

    *selector* picks the preferred one of several bindings (default: local, then provider, then mcp).

    >>> from toolexec import Exec, Tool
    >>> index = InMemoryIndex()
    >>> tool = Tool(name="add", namespace="math", description="Adds two numbers.", input_schema={"type": "object"})
    >>> with Exec(index=index).sync as ex:
    ...     _ = ex.add(tool, handler=sum)
    >>> [found.id for found in index.search("add numbers", 1)]
    ['math:add']
    """

    def __init__(self, searcher: Searcher | None = None, *, selector: BindingSelector = prefer_local) -> None:
        self._searcher = searcher
        self._selector = selector
        self._lock = threading.RLock()
        self._entries: dict[str, Registered] = {}
        self._order: dict[str, int] = {}
        self._versions = Versions()
        self._namespaces: dict[str, int] = {}
        self._changes = ChangeLog()
        self._recent = _RecentChanges()
        self._summaries = Summaries()
        self._seal = CursorSeal()
        self._listeners: dict[int, ChangeListener] = {}
        self._next_listener = 0
        self._events: deque[ChangeEvent] = deque()
        self._delivering = False

    @property
    def searcher(self) -> Searcher:
        """What ranks the tools. The default one is made at the first search: a program that only runs tools needs
        none."""
        searcher = self._searcher
        return searcher if searcher is not None else self._default_searcher()

    def _default_searcher(self) -> Searcher:
        from toolexec.discovery.bm25 import BM25Searcher

        with self._lock:
            if self._searcher is None:
                made = BM25Searcher()
                for entry in self._entries.values():
                    made.add(entry.tool, entry.bindings)
                self._searcher = made
            return self._searcher

    def close_search(self) -> None:
        """Close the searcher, if there is one by now and it has something to close."""
        close = getattr(self._searcher, "close", None)
        if close is not None:
            close()

    # -- changes ------------------------------------------------------------------------------------------------

    def register(self, tool: Tool, binding: Binding) -> None:
        """Add a tool, or one more binding of a known tool; see `Index.register`."""
        _check_types(tool, binding)
        with self._lock:
            self._put(*self._checked(tool, binding, self._entries.get(tool.id)))
        self._deliver()

    def register_many(self, tools: Iterable[tuple[Tool, Binding]]) -> None:
        """Add several tools, all or none."""
        with self._lock:
            staged: dict[str, Registered] = {}
            changes: list[tuple[Registered, ChangeType, Binding]] = []
            for tool, binding in tools:
                _check_types(tool, binding)
                entry, change, bound = self._checked(tool, binding, staged.get(tool.id) or self._entries.get(tool.id))
                staged[tool.id] = entry
                changes.append((entry, change, bound))
            for change in changes:
                self._put(*change)
        self._deliver()

    def replace(self, tool: Tool, binding: Binding) -> None:
        """Like `register`, but a new definition takes the place of the old one if *binding* is the tool's only one."""
        _check_types(tool, binding)
        with self._lock:
            known = self._entries.get(tool.id)
            if known is not None and known.bindings == (binding,) and known.tool != tool:
                self._put(Registered(tool, (binding,), binding), "updated", binding)
            else:
                self._put(*self._checked(tool, binding, known))
        self._deliver()

    def unregister(self, tool_id: str, binding: Binding | None = None) -> None:
        """Remove one binding of a tool, and with the last one the tool; see `Index.unregister`."""
        with self._lock:
            entry = self._entries.get(tool_id)
            if entry is None:
                raise self._not_found(tool_id)
            if binding is not None and binding not in entry.bindings:
                raise BackendNotFoundError(
                    f"{tool_id} has no binding {binding}; it has {', '.join(map(str, entry.bindings))}", tool_id=tool_id
                )
            rest = tuple(b for b in entry.bindings if b != binding) if binding is not None else ()
            if rest:
                self._entries[tool_id] = Registered(entry.tool, rest, self._select(entry.tool, rest))
                if self._searcher is not None:
                    self._searcher.add(entry.tool, rest)
                self._note("backend_removed", tool_id, binding)
            else:
                self._remove(entry, binding or entry.binding)
        self._deliver()

    def refresh(self) -> int:
        """Make all cursors invalid and notify the listeners; returns the new version."""
        with self._lock:
            self._note("refreshed", "", None)
            version = self.version
        self._deliver()
        return version

    def _checked(
        self, tool: Tool, binding: Binding, known: Registered | None
    ) -> tuple[Registered, ChangeType, Binding]:
        if known is None:
            bindings = (binding,)
            return Registered(tool, bindings, self._select(tool, bindings)), "registered", binding
        if not known.tool.same_definition(tool):
            raise ToolConflictError(
                f"{tool.id} is registered already with another definition ({_difference(known.tool, tool)}); "
                "give this one another namespace, name or version",
                tool_id=tool.id,
                details={"registered": [b.to_dict() for b in known.bindings], "refused": binding.to_dict()},
            )
        if binding in known.bindings:  # the same one may lead elsewhere by now
            bindings = self._ordered([binding if one == binding else one for one in known.bindings])
            return Registered(tool, bindings, self._select(tool, bindings)), "updated", binding
        bindings = self._ordered([*known.bindings, binding])
        return Registered(tool, bindings, self._select(tool, bindings)), "backend_added", binding

    def order_backends(self, names: Sequence[str]) -> None:
        """Have the bindings of a tool stand in the order of these backends; see `OrdersBackends`."""
        self._order = {name: number for number, name in enumerate(names)}

    def _ordered(self, bindings: list[Binding]) -> tuple[Binding, ...]:
        return tuple(sorted(bindings, key=lambda binding: self._order.get(binding.backend, -1)))

    def _select(self, tool: Tool, bindings: tuple[Binding, ...]) -> Binding:
        chosen = bindings[0] if self._selector is prefer_local and len(bindings) == 1 else self._selector(bindings)
        if chosen not in bindings:
            raise ConfigurationError(
                f"the binding selector returned {chosen!r} for {tool.id}, which is not one of its bindings",
                tool_id=tool.id,
                op="select_backend",
            )
        return chosen

    def _put(self, entry: Registered, change: ChangeType, binding: Binding) -> None:
        tool = entry.tool
        known = self._entries.get(tool.id)
        differs = known is None or _where(known) != _where(entry) or known.tool != tool
        if not differs and change == "updated":
            return  # nothing that anyone could see has changed; what was found out about the entry still holds
        self._recent.note(tool.id)
        self._entries[tool.id] = entry
        if known is None:
            self._namespaces[tool.namespace] = self._namespaces.get(tool.namespace, 0) + 1
            if tool.version:
                self._versions.add(tool.namespace, tool.name, tool.version)
        if differs and self._searcher is not None:
            self._searcher.add(tool, entry.bindings)
        self._recent.finish()
        self._note(change, tool.id, binding)

    def _remove(self, entry: Registered, binding: Binding) -> None:
        tool = entry.tool
        self._recent.note(tool.id)
        del self._entries[tool.id]
        self._namespaces[tool.namespace] -= 1
        if not self._namespaces[tool.namespace]:
            del self._namespaces[tool.namespace]
        if tool.version:
            self._versions.discard(tool.namespace, tool.name, tool.version)
        if self._searcher is not None:
            self._searcher.remove(tool.id)
        self._recent.finish()
        self._note("tool_removed", tool.id, binding)

    # -- events -------------------------------------------------------------------------------------------------

    def on_change(self, listener: ChangeListener) -> Callable[[], None]:
        """Have *listener* called after every change, in order, without locks held; returns how to stop that."""
        with self._lock:
            key = self._next_listener
            self._next_listener += 1
            self._listeners[key] = listener

        def stop() -> None:
            with self._lock:
                self._listeners.pop(key, None)

        return stop

    def _note(self, change: ChangeType, tool_id: str, binding: Binding | None) -> None:
        self._changes.add((tool_id,))
        if self._listeners:
            self._events.append(ChangeEvent(type=change, version=self.version, tool_id=tool_id, binding=binding))

    def _deliver(self) -> None:
        """Hand out waiting events in order, without locks. One thread does at a time: changes that others, or the
        listeners themselves, make meanwhile join its queue."""
        while self._events:
            with self._lock:
                if self._delivering or not self._events:
                    return
                self._delivering = True
                event = self._events.popleft()
                keys = list(self._listeners)
            try:
                for key in keys:
                    self._tell(key, event)
            finally:
                self._delivering = False

    def _tell(self, key: int, event: ChangeEvent) -> None:
        listener = self._listeners.get(key)  # None: stopped by one that was notified before
        if listener is None:
            return
        try:
            listener(event)
        except Exception:
            logger.exception("a change listener failed on %s of %s", event.type, event.tool_id)

    # -- lookups ------------------------------------------------------------------------------------------------

    def find(self, tool_id: str) -> Registered | None:
        """Return the tool, or None; `namespace:name` finds the highest version when no unversioned tool has that ID."""
        try:
            return self._entries[tool_id]
        except KeyError:
            pass
        except TypeError:  # a list, or what else cannot be an ID
            return None
        if not self._versions or not isinstance(tool_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            return None
        namespace, _, name = tool_id.rpartition(":")
        with self._lock:
            highest = self._versions.highest(namespace, name)
            return self._entries[f"{tool_id}:{highest}"] if highest is not None else None

    def get(self, tool_id: str) -> Registered:
        """Return the tool; raises InvalidToolIDError for a malformed ID, ToolNotFoundError with similar IDs
        otherwise."""
        entry = self.find(tool_id)
        if entry is None:
            ToolID.parse(tool_id)
            raise self._not_found(tool_id)
        return entry

    def _not_found(self, tool_id: str) -> ToolNotFoundError:
        with self._lock:
            known = list(self._entries)
        from difflib import get_close_matches

        name = tool_id.rpartition(":")[2]
        same_name = [other for other in known if other.rpartition(":")[2] == name]
        close = same_name[:3] or get_close_matches(tool_id[:200], known[:20_000], n=3, cutoff=0.6)
        return ToolNotFoundError(tool_id, close=close)

    def tools(self) -> Sequence[Registered]:
        """Return all tools by ID."""
        with self._lock:
            entries = sorted(self._entries.items())
        return [entry for _, entry in entries]

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._changes.version

    def changed_since(self, version: int) -> Collection[str] | None:
        """Return the tools that changed after this version; see `TracksChanges`."""
        return self._changes.changed_since(version)

    def settled_version(self) -> int:
        """Return `version` once no change is under way: it counts all that the searcher knows of by then."""
        with self._lock:
            return self.version

    def __len__(self) -> int:
        return len(self._entries)

    # -- search -------------------------------------------------------------------------------------------------

    def search(
        self, query: str, limit: int = 10, *, filters: Filters | None = None, explain: bool = False
    ) -> SearchResults:
        """Return the best tools for *query*, best first, each with its score; see `Index.search`."""
        return self._search(query, limit, self._accept(filters), explain=explain)

    @property
    def search_blocks(self) -> bool:
        """Whether a search may wait for something, so that it should not be made on an event loop."""
        if self._searcher is None:  # the default searcher has all their words to read first
            entries = self._entries
            return len(entries) > FEW or are_long(entry.tool for entry in list(entries.values()))
        return bool(getattr(self.searcher, "blocks", False))

    def search_within(
        self, query: str, limit: int, ids: frozenset[str], *, filters: Filters | None = None, explain: bool = False
    ) -> SearchResults:
        """Return the best of the tools with these IDs; see `SearchesWithin`."""
        return self._search(query, limit, Selection(filters or Filters(), self._entries.get, ids), explain=explain)

    def _search(self, query: str, limit: int, accept: Accept | None, *, explain: bool) -> SearchResults:
        for _ in range(_TRIES):
            since = self._recent.finished
            found = self._found(query, limit, accept, explain=explain)
            # A tool that changed meanwhile may have been found by what it was and shown as what it is.
            if not self._recent.touched((summary.id for summary in found), since):
                return found
        with self._lock:
            return self._found(query, limit, accept, explain=explain)

    def _found(self, query: str, limit: int, accept: Accept | None, *, explain: bool) -> SearchResults:
        searcher = self.searcher
        hits = searcher.search(query, limit, accept)
        found = SearchResults(score_type=searcher.name)
        if isinstance(hits, Hits):
            found.did_you_mean, found.note = hits.did_you_mean, hits.note
        explains = searcher if explain and isinstance(searcher, Explains) else None
        for hit in hits:
            entry = self._entries.get(hit.tool_id)
            if entry is not None:
                why = explains.explain(query, hit.tool_id) if explains is not None else None
                found.append(self._summaries.of(entry, hit.score, why))
        return found

    def facets(self, query: str = "", *, filters: Filters | None = None) -> Facets:
        """Return how many tools a search would find, by namespace, tag, backend and hint; see
        `BrowsableIndex.facets`."""
        searcher, accept = self.searcher, self._accept(filters)
        if isinstance(searcher, CountsFacets):
            return searcher.facets(query, accept)
        hits = searcher.search(query, len(self._entries), accept)
        found = (self._entries.get(hit.tool_id) for hit in hits)
        return count_facets((entry.tool, entry.bindings) for entry in found if entry is not None)

    def search_page(
        self, query: str, limit: int = 10, *, cursor: str | None = None, filters: Filters | None = None
    ) -> Page[Summary]:
        """Return one page of all results; see `BrowsableIndex.search_page`."""
        if not self.searcher.deterministic:
            raise ConfigurationError(f"results of the {self.searcher.name} searcher cannot be paged; use search")
        question = ["search", query, dataclasses.asdict(filters) if filters else None]
        return self._seal.page(
            lambda wanted: self.search(query, wanted, filters=filters), limit, cursor, self.version, question
        )

    def namespaces(self) -> list[str]:
        """Return all namespaces in alphabetical order; `""` is among them when a tool has none."""
        with self._lock:
            return sorted(self._namespaces)

    def namespace_counts(self) -> Mapping[str, int]:
        """Return the number of tools by namespace."""
        with self._lock:
            return dict(self._namespaces)

    def namespaces_page(self, limit: int = 10, *, cursor: str | None = None) -> Page[str]:
        """Return one page of `namespaces`; see `BrowsableIndex.namespaces_page`."""
        return self._seal.page(lambda _: self.namespaces(), limit, cursor, self.version, ["namespaces"])

    def _accept(self, filters: Filters | None) -> Accept | None:
        return None if filters is None or filters == Filters() else Selection(filters, self._entries.get)


def _where(entry: Registered) -> list[tuple[Binding, str]]:
    return [(binding, binding.destination) for binding in entry.bindings]


def _check_types(tool: object, binding: object) -> None:
    if not isinstance(tool, Tool) or not isinstance(binding, _BINDINGS):
        raise InvalidToolError(f"register(tool, binding) takes a Tool and a binding, not {tool!r} and {binding!r}")


def _difference(old: Tool, new: Tool) -> str:
    fields = ("title", "description", "annotations", "icons", "meta", "input_schema", "output_schema")
    return "another " + ", ".join(f for f in fields if getattr(old, f) != getattr(new, f))
