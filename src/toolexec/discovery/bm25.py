"""Ranked search: Okapi BM25 over weighted fields, kept up to date change by change.

A word counts by its field (name 3, namespace 2, tags 2, parameters a half, other texts 1), as in BM25F with
one length for the whole document: Robertson, Zaragoza, Taylor, "Simple BM25 Extension to Multiple Weighted Fields",
CIKM 2004.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from toolexec.discovery.search import Accept, Hit, SearchDoc, best
from toolexec.discovery.words import words_of
from toolexec.errors import ConfigurationError
from toolexec.model.binding import Binding
from toolexec.model.tool import Tool

__all__ = ["BM25Config", "BM25Searcher"]

_MAX_QUERY_WORDS = 64
_MAX_DOC_CHARS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BM25Config:
    """How much a word counts in each field, and BM25's two knobs: `k1` (how fast repetition saturates) and `b` (how
    much long documents are held back). A boost of 0 switches a field off. Negative values raise ConfigurationError."""

    name_boost: float = 3.0
    namespace_boost: float = 2.0
    tags_boost: float = 2.0
    text_boost: float = 1.0
    parameters_boost: float = 0.5
    k1: float = 1.2
    b: float = 0.75

    def __post_init__(self) -> None:
        boosts = (self.name_boost, self.namespace_boost, self.tags_boost, self.text_boost, self.parameters_boost)
        values = (*boosts, self.k1, self.b)
        if not all(math.isfinite(value) and value >= 0 for value in values) or self.b > 1:
            raise ConfigurationError("BM25 boosts and k1 must be 0 or more, and b between 0 and 1")


class BM25Searcher:
    """Ranks tools by BM25. Any word of the query may match; more and rarer words rank higher."""

    name = "bm25"
    deterministic = True

    def __init__(self, config: BM25Config | None = None) -> None:
        self.config = config or BM25Config()
        self._lock = threading.Lock()
        self._pending: dict[str, Tool] = {}
        self._documents: dict[str, dict[str, float]] = {}
        self._lengths: dict[str, float] = {}
        self._total_length = 0.0
        self._postings: dict[str, dict[str, float]] = defaultdict(dict)

    def add(self, tool: Tool, bindings: Sequence[Binding] = ()) -> None:
        """Take in a new tool, or the new form of a known one; its words are read at the next search."""
        with self._lock:
            self._pending[tool.id] = tool

    def remove(self, tool_id: str) -> None:
        """Forget a tool; unknown IDs are ignored."""
        with self._lock:
            self._pending.pop(tool_id, None)
            self._drop(tool_id)

    def search(self, query: str, limit: int, accept: Accept | None = None) -> list[Hit]:
        """The best hits."""
        if limit < 1:
            return []
        words = list(dict.fromkeys(words_of(query)))[:_MAX_QUERY_WORDS]
        with self._lock:
            self._take_in()
            if not query.strip():
                return best(dict.fromkeys(self._documents, 0.0), limit, accept)
            scores = self._score(words)
        return best(scores, limit, accept)

    def _score(self, words: list[str]) -> dict[str, float]:
        count = len(self._documents)
        k1, b = self.config.k1, self.config.b
        scores: dict[str, float] = {}
        if not count:
            return scores
        flat = k1 * (1 - b)
        slope = k1 * b / (self._total_length / count or 1.0)
        for word in words:
            posting = self._postings.get(word)
            if not posting:
                continue
            weight = math.log(1 + (count - len(posting) + 0.5) / (len(posting) + 0.5)) * (k1 + 1)
            for tool_id, frequency in posting.items():
                gain = weight * frequency / (frequency + flat + slope * self._lengths[tool_id])
                scores[tool_id] = scores.get(tool_id, 0.0) + gain
        return scores

    def _take_in(self) -> None:
        for tool_id, tool in self._pending.items():
            self._drop(tool_id)
            frequencies = self._frequencies(SearchDoc(tool))
            self._documents[tool_id] = frequencies
            length = sum(frequencies.values())
            self._lengths[tool_id] = length
            self._total_length += length
            for word, frequency in frequencies.items():
                self._postings[word][tool_id] = frequency
        self._pending.clear()

    def _drop(self, tool_id: str) -> None:
        for word in self._documents.pop(tool_id, ()):
            posting = self._postings[word]
            del posting[tool_id]
            if not posting:
                del self._postings[word]
        self._total_length -= self._lengths.pop(tool_id, 0.0)

    def _frequencies(self, doc: SearchDoc) -> dict[str, float]:
        config = self.config
        fields = (
            (config.name_boost, doc.name),
            (config.namespace_boost, doc.namespace),
            (config.tags_boost, " ".join(doc.tags)),
            (config.text_boost, f"{doc.description} {doc.extra}"[:_MAX_DOC_CHARS]),
            (config.parameters_boost, doc.parameters[:_MAX_DOC_CHARS]),
        )
        frequencies: dict[str, float] = defaultdict(float)
        for boost, text in fields:
            if boost:
                for word in words_of(text):
                    frequencies[word] += boost
        return dict(frequencies)
