"""How an `Exec` finds tools and describes them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from toolexec.discovery.preparing import off_loop_if_many, prepared
from toolexec.discovery.results import SearchResults
from toolexec.discovery.summary import Filters, Summary, summarize
from toolexec.discovery.view import browsable
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.discovery.docs import DetailLevel, ToolDoc
    from toolexec.discovery.facets import Facets
    from toolexec.discovery.index import Index
    from toolexec.discovery.links.producer import Producer
    from toolexec.exec.links import KeptLinks
    from toolexec.exec.scope import Scope
    from toolexec.exec.sources import Sources

_MAX_PRODUCERS: Final = 200


class Finder:
    """Finds tools of a scope, with how each is just now; starts the backends whose tools are not known yet."""

    def __init__(self, scope: Scope, sources: Sources, links: KeptLinks) -> None:
        self._scope = scope
        self._sources = sources
        self._links = links

    async def search(
        self, query: str, limit: int, *, filters: Filters | None, explain: bool = False, produces: str | None = None
    ) -> SearchResults:
        """Return the best tools for *query*; see `Exec.search_tools`."""
        if limit < 0:
            raise ConfigurationError(f"search_tools: limit must be 0 or more, not {limit}")
        if missing := self._sources.missing:
            await self._sources.start(missing)
        index = self._scope.visible_index()
        await prepared(index)
        if produces is not None:
            found = await self._producing(index, query, limit, filters, produces, explain)
        elif getattr(index, "search_blocks", False):
            found = await asyncio.to_thread(index.search, query, limit, filters=filters, explain=explain)
        else:
            found = index.search(query, limit, filters=filters, explain=explain)
        return found.like(self._with_state(summary) for summary in found)

    async def _producing(
        self, index: Index, query: str, limit: int, filters: Filters | None, produces: str, explain: bool
    ) -> SearchResults:
        links = await self._links.ready()
        producers = links.producers_of(produces, limit=_MAX_PRODUCERS, visible=lambda i: index.find(i) is not None)
        places = {producer.tool_id: producer for producer in producers}
        if query.strip():
            every = partial(index.search, query, len(index), filters=filters, explain=explain)
            found = await off_loop_if_many(index, every)
            hits = [replace(hit, produces=places[hit.id].path or "?") for hit in found if hit.id in places]
            return found.like(hits[: max(limit, 0)])
        summaries: list[Summary] = []
        for producer in producers:
            entry = index.find(producer.tool_id)
            if entry is not None and (filters is None or filters.accept(entry.tool, entry.bindings)):
                summary = summarize(entry.tool, entry.bindings, score=producer.score)
                summaries.append(replace(summary, produces=producer.path or "?"))
        note = "" if summaries else f"no tool is known to produce {produces}"
        return SearchResults(summaries[: max(limit, 0)], score_type="link", note=note)

    async def facets(self, query: str, *, filters: Filters | None) -> Facets:
        """Return how many tools a search would find, by kind; see `Exec.tool_facets`."""
        if missing := self._sources.missing:
            await self._sources.start(missing)
        index = self._scope.visible_index()
        return await off_loop_if_many(index, lambda: browsable(index).facets(query, filters=filters))

    async def describe(self, tool_id: str, level: DetailLevel) -> ToolDoc:
        """Return a tool's documentation; see `Exec.get_tool_doc`."""
        if self._sources.pending and (self._sources.closed or self._scope.index.find(tool_id) is None):
            await self._sources.start()
        index, docs = self._scope.visible()
        doc = docs.describe(tool_id, level)
        if doc.tool is not None and (learned := self._scope.learned) is not None:
            doc = replace(doc, tool=learned.with_output(doc.tool))
        reason = self._sources.unavailable(doc.id)
        find = partial(self._producers_for, index, doc.id) if level == "full" else None
        return doc.completed(reason, find) if reason or find else doc

    def _producers_for(self, index: Index, tool_id: str) -> Mapping[str, Sequence[Producer]]:
        return self._links.links.producers_for(tool_id, visible=lambda other: index.find(other) is not None)

    def _with_state(self, summary: Summary) -> Summary:
        reason = self._sources.unavailable(summary.id)
        return replace(summary, unavailable=reason) if reason else summary
