"""Which tools exist, and what they say about themselves."""

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
