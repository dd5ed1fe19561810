"""The searcher seam, and the plain substring search."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from toolexec.discovery.summary import Metadata, parameter_words
from toolexec.model.binding import Binding
from toolexec.model.tool import Tool

__all__ = ["Accept", "Hit", "Hits", "LexicalSearcher", "SearchDoc", "Searcher", "best"]

Accept: TypeAlias = Callable[[str], bool]
"""Says whether the tool with this ID may be in the answer."""


class Hit(NamedTuple):
    """A tool's ID and how well it fits; higher is better."""

    tool_id: str
    score: float


class Hits(list[Hit]):
    """Hits, best first, with what else there is to say about them.

    `did_you_mean` is the query as it was probably meant, when words of it are unknown. `note` says why the answer is
    empty, or less than was asked for; empty when there is nothing to say.
    """

    __slots__ = ("did_you_mean", "note")

    def __init__(self, hits: Iterable[Hit] = (), *, did_you_mean: str | None = None, note: str = "") -> None:
        super().__init__(hits)
        self.did_you_mean: str | None = did_you_mean
        self.note: str = note


class SearchDoc:
    """The strings of one tool that a search may look at, each as written; `of` reads them off a tool."""

    __slots__ = ("description", "extra", "name", "namespace", "parameters", "tags", "tool_id")

    def __init__(self, tool: Tool) -> None:
        meta = Metadata(tool.meta)
        self.tool_id: str = tool.id
        self.name: str = tool.name
        self.namespace: str = tool.namespace
        self.tags: tuple[str, ...] = tool.tags
        title = "" if tool.title and tool.title in tool.description else tool.title  # else its words would count twice
        self.description: str = f"{title} {meta.summary} {tool.description}".strip()
        self.extra: str = " ".join(
            (meta.category, meta.security_summary, *meta.input_modes, *meta.output_modes)
        ).strip()
        self.parameters: str = parameter_words(tool)

    def text(self) -> str:
        """Return all of it in one lower-case line."""
        parts = (self.name, self.namespace, self.description, self.extra, " ".join(self.tags))
        return " ".join(part for part in parts if part).lower()


class Searcher(Protocol):
    """Ranks tools for a query. It is notified of every change, so it never has to look at the whole catalogue again.

    `add` and `remove` are called in the order of the changes, one at a time, before the change becomes visible to
    callers of the index; they must be cheap (put work off to the next `search`) and must not call the index.
    `search` may run on several threads at once. It returns at most *limit* hits (none for a limit below 1), only those
    that *accept* lets through, ordered by score, highest first, then by ID; a query without words returns the first
    tools by ID with score 0. The list may be a `Hits`, to say more.

    The *accept* of an index's filters is a `Selection`, whose `filters` a searcher may apply in a faster way.
    """

    name: str
    """What kind of score this is, such as `bm25`."""

    deterministic: bool
    """Whether the same catalogue and query always give the same answer; only then can results be paged."""

    def add(self, tool: Tool, bindings: Sequence[Binding] = ()) -> None:
        """Take in a new tool, or the new form of a known one, or a known one that now lives elsewhere."""
        ...

    def remove(self, tool_id: str) -> None:
        """Forget a tool; unknown IDs are ignored."""
        ...

    def search(self, query: str, limit: int, accept: Accept | None = None) -> list[Hit]:
        """Return the best hits."""
        ...


def best(scores: dict[str, float], limit: int, accept: Accept | None = None) -> list[Hit]:
    """Return the *limit* highest scores that *accept* lets through; ties go by ID."""
    if accept is None:
        ranked = heapq.nsmallest(limit, scores.items(), key=lambda item: (-item[1], item[0]))
        return [Hit(tool_id, score) for tool_id, score in ranked]
    wanted = ((tool_id, score) for tool_id, score in scores.items() if accept(tool_id))
    return [Hit(t, s) for t, s in heapq.nsmallest(limit, wanted, key=lambda item: (-item[1], item[0]))]


class LexicalSearcher:
    """Finds the query as one piece of text: in the name (100, and 50 more if it is the whole name), in the namespace
    (50), or else anywhere in the tool's strings (10). Letter case does not matter."""

    name = "lexical"
    deterministic = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._docs: dict[str, tuple[str, str, str]] = {}

    def add(self, tool: Tool, bindings: Sequence[Binding] = ()) -> None:
        """Take in a new tool, or the new form of a known one."""
        text = SearchDoc(tool).text()
        with self._lock:
            self._docs[tool.id] = (tool.name.lower(), tool.namespace.lower(), text)

    def remove(self, tool_id: str) -> None:
        """Forget a tool; unknown IDs are ignored."""
        with self._lock:
            self._docs.pop(tool_id, None)

    def search(self, query: str, limit: int, accept: Accept | None = None) -> list[Hit]:
        """Return the best hits."""
        if limit < 1:
            return []
        needle = query.strip().lower()
        with self._lock:
            docs = list(self._docs.items())
        if not needle:
            return best(dict.fromkeys((tool_id for tool_id, _ in docs), 0.0), limit, accept)
        scores: dict[str, float] = {}
        for tool_id, (name, namespace, text) in docs:
            score = (100.0 if needle in name else 0.0) + (50.0 if needle == name else 0.0)
            score += 50.0 if needle in namespace else 0.0
            if not score and needle in text:
                score = 10.0
            if score:
                scores[tool_id] = score
        return best(scores, limit, accept)
