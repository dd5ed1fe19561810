"""Search by words and by meaning at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from toolexec.discovery.explanation import Explains, Explanation
from toolexec.discovery.ranking.expansion import MAX_QUERY, word_count
from toolexec.discovery.ranking.steps import LONG, is_task, telling_clauses
from toolexec.discovery.search import Accept, Hit, Hits, Searcher, best
from toolexec.discovery.semantic.fusion import reciprocal_rank, weighted_sum
from toolexec.discovery.semantic.searcher import EmbeddingSearcher
from toolexec.discovery.semantic.steps import MAX_STEPS, Namespaces, by_words, gains_of
from toolexec.errors import ConfigurationError
from toolexec.model.binding import Binding
from toolexec.model.settings import checked
from toolexec.model.tool import Tool

_TASK: Final = 0.4
"""How much of the weight of meaning goes to words when a query is a task."""
_TWO: Final = 8
"""From so many words on, stop words aside, a query of two clauses is a task here; by words alone it takes more. (Of the
599 labelled queries for one tool four have as many, and 7 of the 205 tasks.)"""

Fusion: TypeAlias = Literal["alpha", "rrf"]
"""How the two rankings become one: by their scores, or by their ranks."""


@checked("HybridSearcher")
class HybridSearcher:
    """Asks a lexical searcher, such as `BM25Searcher`, and an `EmbeddingSearcher`, and makes one ranking of both.

    *fusion* `alpha` goes by scores: alpha * lexical score + (1 - alpha) * cosine, see `weighted_sum`; for a query that
    is a task (nine words or more, eight in two clauses, or five in three), two fifths of the weight of the cosine go to
    the lexical side, and each clause is embedded by itself, see `steps`: the text as a whole is close to tools for none
    of its parts. Of fewer than nine words, the tool that is best for the text as a whole stays first. `rrf` goes by
    ranks, with *k*, see `reciprocal_rank`. In both, *alpha* is the weight of the lexical side: with 1 only that is
    asked, with 0 only the other. The best *candidates* of each side are ranked, and for a task the tools of their
    namespaces.

    The query is embedded as the caller wrote it, whatever the lexical side makes of it.

    When the embedder fails, the answer is the lexical one, and its `note` says so.

    Raises ConfigurationError for an alpha outside of 0 to 1, a negative k, candidates below 1, an unknown fusion.
    """

    name = "hybrid"

    def __init__(
        self,
        lexical: Searcher,
        embedding: EmbeddingSearcher,
        *,
        fusion: Fusion = "alpha",
        alpha: float = 0.5,
        k: float = 60,
        candidates: int = 100,
    ) -> None:
        if not 0 <= alpha <= 1:
            raise ConfigurationError(f"alpha is the weight of the lexical side, from 0 to 1, not {alpha!r}")
        if fusion not in ("rrf", "alpha"):
            raise ConfigurationError(f"fusion is 'rrf' or 'alpha', not {fusion!r}")
        if not k >= 0 or candidates < 1:
            raise ConfigurationError(f"k is 0 or more and candidates 1 or more, not {k!r} and {candidates!r}")
        self.lexical = lexical
        self.embedding = embedding
        self.fusion: Fusion = fusion
        self.alpha = alpha
        self.k = k
        self.candidates = candidates
        self.deterministic: bool = lexical.deterministic and embedding.deterministic
        self._namespaces = Namespaces()

    @property
    def blocks(self) -> bool:
        """Whether the next search may take long, so that an event loop should have it done by a thread."""
        return self.alpha < 1 and self.embedding.blocks

    def add(self, tool: Tool, bindings: Sequence[Binding] = ()) -> None:
        """Take in a new tool, or the new form of a known one."""
        self.lexical.add(tool, bindings)
        self.embedding.add(tool, bindings)
        self._namespaces.add(tool.id)

    def remove(self, tool_id: str) -> None:
        """Forget a tool; unknown IDs are ignored."""
        self.lexical.remove(tool_id)
        self.embedding.remove(tool_id)
        self._namespaces.remove(tool_id)

    def search(self, query: str, limit: int, accept: Accept | None = None) -> Hits:
        """Return the best hits, with what both sides have to say about them."""
        if limit < 1 or not query.strip():
            return Hits(self.lexical.search(query, limit, accept))
        steps = self._steps_of(query)
        if steps:
            self.embedding.cosines([query, *steps], ())  # embedded in one call
        words = self.lexical.search(query, self.candidates, accept) if self.alpha > 0 else []
        said = words if isinstance(words, Hits) else Hits()
        close = self.embedding.search(query, self.candidates, accept) if self.alpha < 1 else Hits()
        if self.fusion == "rrf":
            scores = reciprocal_rank(words, close, alpha=self.alpha, k=self.k)
        else:
            cosines = {hit.tool_id: hit.score for hit in close}
            others = [hit.tool_id for hit in words if hit.tool_id not in cosines]
            cosines |= self.embedding.scores(query, others) if others and self.alpha < 1 else {}
            alpha = self.alpha + (_TASK * (1 - self.alpha) if steps else 0.0)
            scores = weighted_sum(words, cosines, alpha=alpha)
            if steps:
                first = best(scores, 1)
                self._add_steps(scores, steps, words, accept)
                if first and word_count(query) < LONG:  # it may be about that alone
                    scores[first[0].tool_id] = math.nextafter(max(scores.values()), math.inf)
        note = "; ".join(text for text in (said.note, close.note) if text)
        meant = said.did_you_mean if words or not scores else None  # without hits of its own it only supposes something
        return Hits(best(scores, limit), did_you_mean=meant, note=note)

    def _steps_of(self, query: str) -> list[str]:
        """Return the clauses of a query that is the text of a task, where both sides have a say; else nothing."""
        if self.fusion != "alpha" or not 0 < self.alpha < 1:
            return []
        count = word_count(query)
        task = is_task(query, count)
        if not task and count < _TWO:
            return []
        clauses = telling_clauses(query[:MAX_QUERY])[:MAX_STEPS]
        return clauses if task or len(clauses) > 1 else []

    def _add_steps(
        self, scores: dict[str, float], steps: Sequence[str], words: Sequence[Hit], accept: Accept | None
    ) -> None:
        """Add to *scores* what the steps of a task say by themselves."""
        spaces = self._namespaces.chosen(scores, accept)
        cosines = self.embedding.cosines(steps, [tool_id for ids in spaces.values() for tool_id in ids])
        for tool_id, gain in gains_of(cosines, spaces, by_words(words)).items():
            scores[tool_id] = scores.get(tool_id, 0.0) + (1 - self.alpha) * gain

    def explain(self, query: str, tool_id: str) -> Explanation | None:
        """Return the words that matched on the lexical side, and each side's own score as a part: of `bm25` (or
        what the lexical side is called) and `embedding`. None when neither finds the tool."""
        words = self.lexical.explain(query, tool_id) if isinstance(self.lexical, Explains) else None
        hits = self.lexical.search(query, 1, lambda other: other == tool_id) if query.strip() else []
        close = self.embedding.explain(query, tool_id)
        if not hits and close is None:
            return None
        parts = {self.lexical.name: hits[0].score} if hits else {}
        parts |= close.parts if close is not None else {}
        return Explanation(
            matches=words.matches if words is not None else (),
            snippet=words.snippet if words is not None else "",
            parts=parts,
        )

    def close(self) -> None:
        """Release what the embedding side holds; see `EmbeddingSearcher.close`."""
        self.embedding.close()
