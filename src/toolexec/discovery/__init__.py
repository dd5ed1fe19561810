"""Which tools exist, and what they say about themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.discovery.bm25 import BM25Config, BM25Searcher
    from toolexec.discovery.docs import DetailLevel, DocEntry, DocStore, InMemoryDocStore, SchemaInfo, ToolDoc
    from toolexec.discovery.examples import ToolExample, example_args
    from toolexec.discovery.explanation import Explains, Explanation, MatchKind, WordMatch
    from toolexec.discovery.facade import Discovery
    from toolexec.discovery.facets import CountsFacets, Facets
    from toolexec.discovery.index import (
        BrowsableIndex,
        BulkIndex,
        ChangeEvent,
        ChangeListener,
        ChangeType,
        Index,
        Registered,
        bulk,
        get_tool,
    )
    from toolexec.discovery.memory import InMemoryIndex
    from toolexec.discovery.pages import Page
    from toolexec.discovery.results import SearchResults
    from toolexec.discovery.search import Hit, Hits, LexicalSearcher, Searcher
    from toolexec.discovery.selection import Selection
    from toolexec.discovery.summary import Filters, Summary, summarize
    from toolexec.discovery.toolset import Toolset
    from toolexec.discovery.view import browsable
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.discovery.bm25": ("BM25Config", "BM25Searcher"),
            "toolexec.discovery.docs": (
                "DetailLevel",
                "DocEntry",
                "DocStore",
                "InMemoryDocStore",
                "SchemaInfo",
                "ToolDoc",
            ),
            "toolexec.discovery.examples": ("ToolExample", "example_args"),
            "toolexec.discovery.explanation": ("Explains", "Explanation", "MatchKind", "WordMatch"),
            "toolexec.discovery.facade": ("Discovery",),
            "toolexec.discovery.facets": ("CountsFacets", "Facets"),
            "toolexec.discovery.index": (
                "BrowsableIndex",
                "BulkIndex",
                "ChangeEvent",
                "ChangeListener",
                "ChangeType",
                "Index",
                "Registered",
                "bulk",
                "get_tool",
            ),
            "toolexec.discovery.memory": ("InMemoryIndex",),
            "toolexec.discovery.pages": ("Page",),
            "toolexec.discovery.results": ("SearchResults",),
            "toolexec.discovery.search": ("Hit", "Hits", "LexicalSearcher", "Searcher"),
            "toolexec.discovery.selection": ("Selection",),
            "toolexec.discovery.summary": ("Filters", "Summary", "summarize"),
            "toolexec.discovery.toolset": ("Toolset",),
            "toolexec.discovery.view": ("browsable",),
        },
    )

__all__ = [
    "BM25Config",
    "BM25Searcher",
    "BrowsableIndex",
    "BulkIndex",
    "ChangeEvent",
    "ChangeListener",
    "ChangeType",
    "CountsFacets",
    "DetailLevel",
    "Discovery",
    "DocEntry",
    "DocStore",
    "Explains",
    "Explanation",
    "Facets",
    "Filters",
    "Hit",
    "Hits",
    "InMemoryDocStore",
    "InMemoryIndex",
    "Index",
    "LexicalSearcher",
    "MatchKind",
    "Page",
    "Registered",
    "SchemaInfo",
    "SearchResults",
    "Searcher",
    "Selection",
    "Summary",
    "ToolDoc",
    "ToolExample",
    "Toolset",
    "WordMatch",
    "browsable",
    "bulk",
    "example_args",
    "get_tool",
    "summarize",
]
