"""The part of an `Exec` that finds tools and tells what they are."""

from __future__ import annotations

from dataclasses import replace

from toolexec.discovery.docs import DetailLevel, DocStore, ToolDoc
from toolexec.discovery.index import Index
from toolexec.discovery.results import SearchResults
from toolexec.discovery.summary import Filters, Summary
from toolexec.exec.options import Options
from toolexec.exec.sources import Sources
from toolexec.model.origin import current_origin

__all__ = ["Finding"]


class Finding:
    """What an `Exec` can be asked about its tools."""

    options: Options
    index: Index
    docs: DocStore
    _sources: Sources

    async def search_tools(
        self, query: str, limit: int = 10, *, filters: Filters | None = None, explain: bool = False
    ) -> SearchResults:
        """The best tools for *query*, best first; an empty query gives the first by ID.

        The result is a list of summaries that also says what was probably meant (`did_you_mean`) and why it may be
        empty (`note`). *explain* adds to each summary which words matched where, and what they weighed.
        """
        if self._sources.pending:
            await self._sources.start()
        index, _ = self.visible()
        found = index.search(query, limit, filters=filters, explain=explain)
        return found.like(self._with_state(summary) for summary in found)

    async def get_tool_doc(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """A tool's documentation: `summary`, `schema` or `full`; raises as `DocStore.describe` does."""
        if self._sources.pending and self.index.find(tool_id) is None:
            await self._sources.start()
        _, docs = self.visible()
        doc = docs.describe(tool_id, level)
        reason = self._sources.unavailable(doc.id)
        return replace(doc, unavailable=reason) if reason else doc

    def visible(self) -> tuple[Index, DocStore]:
        """The tools that may be known of just now, and their documentation: all, unless a gate hides some from the
        `current_origin`."""
        gate = self.options.gate
        return gate.view(self.index, self.docs, current_origin()) if gate is not None else (self.index, self.docs)

    def _with_state(self, summary: Summary) -> Summary:
        reason = self._sources.unavailable(summary.id)
        return replace(summary, unavailable=reason) if reason else summary
