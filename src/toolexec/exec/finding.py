"""The part of an `Exec` that finds tools and tells what they are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from toolexec.discovery.docs import DetailLevel, DocStore, ToolDoc
from toolexec.discovery.facets import Facets
from toolexec.discovery.index import Index
from toolexec.discovery.results import SearchResults
from toolexec.discovery.summary import Filters, Summary, summarize
from toolexec.discovery.view import browsable
from toolexec.exec.options import Options
from toolexec.exec.sources import Sources
from toolexec.model.origin import current_origin
from toolexec.model.settings import checked

if TYPE_CHECKING:
    from toolexec.discovery.links.links import Links
    from toolexec.discovery.links.producer import Producer

__all__ = ["Finding"]

_MAX_PRODUCERS = 200


class Finding:
    """What an `Exec` can be asked about its tools."""

    options: Options
    index: Index
    docs: DocStore
    _sources: Sources

    if TYPE_CHECKING:

        async def links_ready(self) -> Links:
            """See `ChainsAhead.links_ready`."""
            ...

        @property
        def links(self) -> Links:
            """See `ChainsAhead.links`."""
            ...

    @checked("search_tools")
    async def search_tools(
        self,
        query: str,
        limit: int = 10,
        *,
        filters: Filters | None = None,
        explain: bool = False,
        produces: str | None = None,
    ) -> SearchResults:
        """The best tools for *query*, best first; an empty query gives the first by ID.

        The result is a list of summaries that also says what was probably meant (`did_you_mean`) and why it may be
        empty (`note`). *explain* adds to each summary which words matched where, and what they weighed. *produces*
        keeps to tools whose results have a value for an argument: `issue_id`, or that of a tool,
        `github:close_issue.issue_id`; each summary then says where (`produces`), and without a query the surest come
        first. It raises ToolNotFoundError and ConfigurationError when there is no such tool or argument.
        """
        if missing := self._sources.missing:
            await self._sources.start(missing)
        index, _ = self.visible()
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
        links = await self.links_ready()
        producers = links.producers_of(produces, limit=_MAX_PRODUCERS, visible=lambda i: index.find(i) is not None)
        places = {producer.tool_id: producer for producer in producers}
        if query.strip():
            found = index.search(query, len(index), filters=filters, explain=explain)
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

    @checked("tool_facets")
    async def tool_facets(self, query: str = "", *, filters: Filters | None = None) -> Facets:
        """How many tools a search would find, by namespace, tag, backend and hint; without a query, how many there
        are."""
        if missing := self._sources.missing:
            await self._sources.start(missing)
        index, _ = self.visible()
        return browsable(index).facets(query, filters=filters)

    async def get_tool_doc(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """A tool's documentation: `summary`, `schema` or `full`; raises as `DocStore.describe` does. `full` also knows
        which other tools produce its arguments."""
        if self._sources.pending and self.index.find(tool_id) is None:
            await self._sources.start()
        index, docs = self.visible()
        doc = docs.describe(tool_id, level)
        reason = self._sources.unavailable(doc.id)
        find = partial(self._producers_for, index, doc.id) if level == "full" else None
        return replace(doc, unavailable=reason, find_producers=find) if reason or find else doc

    def _producers_for(self, index: Index, tool_id: str) -> Mapping[str, Sequence[Producer]]:
        return self.links.producers_for(tool_id, visible=lambda other: index.find(other) is not None)

    def visible(self) -> tuple[Index, DocStore]:
        """The tools that may be known of just now, and their documentation: all, unless a gate hides some from the
        `current_origin`."""
        gate = self.options.gate
        return gate.view(self.index, self.docs, current_origin()) if gate is not None else (self.index, self.docs)

    def _with_state(self, summary: Summary) -> Summary:
        reason = self._sources.unavailable(summary.id)
        return replace(summary, unavailable=reason) if reason else summary
