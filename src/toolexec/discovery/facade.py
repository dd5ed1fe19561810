"""Index and documentation behind one object."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from toolexec.discovery.facets import Facets
from toolexec.discovery.index import ChangeListener, Index, Registered, bulk, get_tool
from toolexec.discovery.memory import InMemoryIndex
from toolexec.discovery.pages import Page
from toolexec.discovery.results import SearchResults
from toolexec.discovery.search import Searcher
from toolexec.discovery.summary import Filters, Summary
from toolexec.discovery.view import browsable
from toolexec.errors import ConfigurationError
from toolexec.model.binding import Binding
from toolexec.model.settings import check_ranges, checked
from toolexec.model.tool import Tool

if TYPE_CHECKING:
    from toolexec.adapter.provider_card import ProviderCard
    from toolexec.discovery.docs import DetailLevel, DocEntry, DocStore, ToolDoc
    from toolexec.discovery.examples import ToolExample
    from toolexec.discovery.providers import ProviderStore


_HOMES = {"DocStore": "toolexec.discovery.docs", "ProviderStore": "toolexec.discovery.providers"}


@checked("Discovery", homes=_HOMES)
class Discovery:
    """Register tools with their documentation, find them, read about them.

    Every part has a default: an `InMemoryIndex` (with *searcher*, if given) and an `InMemoryDocStore` on top of it.
    *searcher* goes with the default index only; raises ConfigurationError when both are given. *providers* keeps the
    cards of providers (default: an `InMemoryProviderStore`).
    """

    def __init__(
        self,
        *,
        index: Index | None = None,
        docs: DocStore | None = None,
        searcher: Searcher | None = None,
        max_examples: int | None = 10,
        providers: ProviderStore | None = None,
    ) -> None:
        if index is not None and searcher is not None:
            raise ConfigurationError("give either an index or a searcher for the default index, not both")
        self.index: Index = index if index is not None else InMemoryIndex(searcher)
        check_ranges("Discovery", least={"max_examples": max_examples} if max_examples is not None else None)
        self._max_examples = max_examples
        self._docs = docs
        self._providers = providers
        self._lock = threading.Lock()

    @property
    def docs(self) -> DocStore:
        """The documentation; the default store is made at its first use."""
        docs = self._docs
        return docs if docs is not None else self._default_docs()

    def _default_docs(self) -> DocStore:
        from toolexec.discovery.docs import InMemoryDocStore

        with self._lock:
            if self._docs is None:
                self._docs = InMemoryDocStore(self.index, max_examples=self._max_examples)
            return self._docs

    def register(self, tool: Tool, binding: Binding, doc: DocEntry | None = None) -> None:
        """Add a tool and, if given, its documentation: both or neither.

        Raises as `Index.register` and `DocStore.register_doc` do.
        """
        found = self.index.find(tool.id)
        known = found if found is not None and found.tool.id == tool.id else None
        self.index.register(tool, binding)
        if doc is not None:
            try:
                self.docs.register_doc(tool.id, doc)
            except Exception:
                if known is None or binding not in known.bindings:
                    self.index.unregister(tool.id, binding)
                if known is not None and known.tool != tool:
                    self.index.register(known.tool, known.binding)  # its former tags
                raise

    def register_many(self, tools: Iterable[tuple[Tool, Binding]]) -> None:
        """Add several tools, all or none."""
        bulk(self.index).register_many(tools)

    def register_doc(self, tool_id: str, entry: DocEntry) -> None:
        """Keep documentation; see `DocStore.register_doc`."""
        self.docs.register_doc(tool_id, entry)

    def register_examples(self, tool_id: str, examples: Sequence[ToolExample]) -> None:
        """Keep examples; see `DocStore.register_examples`."""
        self.docs.register_examples(tool_id, examples)

    def search(
        self, query: str, limit: int = 10, *, filters: Filters | None = None, explain: bool = False
    ) -> SearchResults:
        """Return the best tools for *query*, best first, each with its score; see `Index.search`."""
        return self.index.search(query, limit, filters=filters, explain=explain)

    def facets(self, query: str = "", *, filters: Filters | None = None) -> Facets:
        """Return how many tools a search would find, by namespace, tag, backend and hint; see
        `BrowsableIndex.facets`."""
        return browsable(self.index).facets(query, filters=filters)

    def search_page(
        self, query: str, limit: int = 10, *, cursor: str | None = None, filters: Filters | None = None
    ) -> Page[Summary]:
        """Return one page of all results, ranked as `search` ranks them; raises as `BrowsableIndex.search_page`
        does."""
        return browsable(self.index).search_page(query, limit, cursor=cursor, filters=filters)

    def get(self, tool_id: str) -> Registered:
        """Return the tool with its bindings; raises InvalidToolIDError or ToolNotFoundError."""
        return get_tool(self.index, tool_id)

    def describe(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Return the tool's documentation; raises as `DocStore.describe` does."""
        return self.docs.describe(tool_id, level)

    def list_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """Return the tool's examples; raises as `DocStore.list_examples` does."""
        return self.docs.list_examples(tool_id, limit)

    def namespaces(self) -> list[str]:
        """Return all namespaces in alphabetical order."""
        return browsable(self.index).namespaces()

    def on_change(self, listener: ChangeListener) -> Callable[[], Any]:
        """Have *listener* called after every change of the index; returns how to stop that."""
        return self.index.on_change(listener)

    # -- providers ----------------------------------------------------------------------------------------------

    @property
    def providers(self) -> ProviderStore:
        """The store of the providers' cards, made at its first use."""
        if self._providers is None:
            from toolexec.discovery.providers import InMemoryProviderStore

            self._providers = InMemoryProviderStore()
        return self._providers

    def register_provider(self, card: ProviderCard, id: str | None = None) -> str:
        """Keep a provider's card and give its ID; see `ProviderStore.register`."""
        return self.providers.register(card, id)

    def describe_provider(self, id: str) -> ProviderCard:
        """Return the card with this ID; raises ConfigurationError or ProviderNotFoundError."""
        return self.providers.describe(id)

    def list_providers(self) -> list[tuple[str, ProviderCard]]:
        """Return all cards with their IDs, by ID."""
        return self.providers.list()
