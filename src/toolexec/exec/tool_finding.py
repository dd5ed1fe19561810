"""What `Exec` knows of its tools: searches, documentation, and which tool makes what another one needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import CURRENT
from toolexec.model.settings import checked

if TYPE_CHECKING:
    from toolexec.discovery.docs import DetailLevel, DocStore, ToolDoc
    from toolexec.discovery.facets import Facets
    from toolexec.discovery.index import Index
    from toolexec.discovery.links.links import Links
    from toolexec.discovery.results import SearchResults
    from toolexec.discovery.summary import Filters
    from toolexec.exec.chains_ahead import ChainSuggestion
    from toolexec.exec.parts import Parts
else:  # what the annotations of checked methods name: imported at the first call of each
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.discovery.summary": ("Filters",),
        },
    )

__all__ = ["ToolFinding"]


class ToolFinding:
    """The methods of `Exec` that find tools."""

    _parts: Parts

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
        """Return the best tools for *query*, best first; an empty query gives the first by ID.

        The result is a list of summaries that also says what was probably meant (`did_you_mean`) and why it may be
        empty (`note`). *explain* adds to each summary which words matched where, and what they weighed. *produces*
        keeps to tools whose results have a value for an argument: `issue_id`, or that of a tool,
        `github:close_issue.issue_id`; each summary then says where (`produces`), and without a query the surest come
        first. It raises ToolNotFoundError and ConfigurationError when there is no such tool or argument.
        """
        finder = self._parts.finder
        return await finder.search(query, limit, filters=filters, explain=explain, produces=produces)

    @checked("tool_facets")
    async def tool_facets(self, query: str = "", *, filters: Filters | None = None) -> Facets:
        """Return how many tools a search would find, by namespace, tag, backend and hint; without a query, how many
        there are.
        """
        return await self._parts.finder.facets(query, filters=filters)

    async def get_tool_doc(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Return a tool's documentation: `summary`, `schema` or `full`; raises as `DocStore.describe` does. `full` also
        knows which other tools produce its arguments.
        """
        return await self._parts.finder.describe(tool_id, level)

    def visible(self) -> tuple[Index, DocStore]:
        """Return the tools that may be known of just now, and their documentation: all, unless a gate hides some from
        the `current_origin`.
        """
        scope, gate = self._parts.scope, self._parts.options.own_gate
        return gate.view(scope.index, scope.docs, CURRENT.get()) if gate is not None else (scope.index, scope.docs)

    @property
    def links(self) -> Links:
        """The tools that make the arguments that others need; kept from the first use on. What a `LinkWatch` among the
        layers has seen counts, too."""
        return self._parts.links.links

    async def links_ready(self) -> Links:
        """Return the `links` once all tools were looked at; where there are many, the event loop goes on meanwhile."""
        self._parts.sources.check_open()
        return await self._parts.links.ready()

    @checked("suggest_chain")
    async def suggest_chain(self, goal: str, args: JSONObject | None = None, *, depth: int = 3) -> ChainSuggestion:
        """Return a chain whose last step is the tool *goal*, for `run_chain`.

        *args* are arguments of the goal that are known already. There are at most *depth* producers in a row (0 to 6)
        and 8 steps in all. Read-only tools are preferred, others flagged; tools that cannot be called just now, and
        those that the `current_origin` may not know of, are not used. Nothing is run.

        Raises ToolNotFoundError and InvalidToolIDError for the goal, ConfigurationError for the depth.
        """
        return await self._parts.planner.suggest(goal, args, depth=depth)
