"""How two rankings become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolexec.discovery.search import Hit


def reciprocal_rank(lexical: Sequence[Hit], embedding: Sequence[Hit], *, alpha: float, k: float) -> dict[str, float]:
    """Reciprocal rank fusion: alpha / (k + rank) from the lexical ranking, (1 - alpha) / (k + rank) from the other.

    Cormack, Clarke, Büttcher: "Reciprocal rank fusion outperforms Condorcet and individual rank learning methods",
    SIGIR 2009; there k is 60 and both weigh the same. It needs no scores, so it does not matter how they compare.
    """
    scores: dict[str, float] = {}
    for weight, hits in ((alpha, lexical), (1 - alpha, embedding)):
        if weight:
            for rank, hit in enumerate(hits, 1):
                scores[hit.tool_id] = scores.get(hit.tool_id, 0.0) + weight / (k + rank)
    return scores


def weighted_sum(lexical: Sequence[Hit], cosines: Mapping[str, float], *, alpha: float) -> dict[str, float]:
    """alpha * lexical score + (1 - alpha) * cosine, both from 0 to 1: lexical scores are divided by the highest one of
    this query, cosines below 0 count as 0. Tools that end with 0 are left out."""
    highest = max((hit.score for hit in lexical), default=0.0) or 1.0
    scores = {hit.tool_id: alpha * max(hit.score, 0.0) / highest for hit in lexical}
    for tool_id, cosine in cosines.items():
        scores[tool_id] = scores.get(tool_id, 0.0) + (1 - alpha) * min(max(cosine, 0.0), 1.0)
    return {tool_id: score for tool_id, score in scores.items() if score > 0}
