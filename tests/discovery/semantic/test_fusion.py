"""How two rankings become one."""

from __future__ import annotations

import pytest

from toolexec.discovery import Hit
from toolexec.discovery.semantic.fusion import reciprocal_rank, weighted_sum

LEXICAL = [Hit("a", 8.0), Hit("b", 2.0), Hit("c", 0.0)]
EMBEDDING = [Hit("b", 0.9), Hit("d", 0.5)]


def test_reciprocal_ranks() -> None:
    """Each ranking gives its weight, divided by k and the rank."""
    scores = reciprocal_rank(LEXICAL, EMBEDDING, alpha=0.5, k=60)
    assert scores == pytest.approx({"a": 0.5 / 61, "b": 0.5 / 62 + 0.5 / 61, "c": 0.5 / 63, "d": 0.5 / 62})
    assert set(reciprocal_rank(LEXICAL, EMBEDDING, alpha=1, k=0)) == {"a", "b", "c"}
    assert reciprocal_rank(LEXICAL, EMBEDDING, alpha=0, k=0) == {"b": 1, "d": 0.5}
    assert reciprocal_rank([], [], alpha=0.5, k=60) == {}


def test_weighted_sums() -> None:
    """Both are brought to 0 to 1, so that alpha is a weight: a lexical score by the best one, a cosine as it is."""
    cosines = {"b": 0.9, "d": 0.5, "a": -0.7, "e": 1.0000001, "f": -0.1}
    scores = weighted_sum(LEXICAL, cosines, alpha=0.25)
    assert scores == pytest.approx({"a": 0.25, "b": 0.25 / 4 + 0.75 * 0.9, "d": 0.375, "e": 0.75})
    assert weighted_sum(LEXICAL, {}, alpha=1) == {"a": 1.0, "b": 0.25}
    assert weighted_sum([], cosines, alpha=1) == {}
    assert weighted_sum([Hit("a", 0.0)], {}, alpha=0.5) == {}


def test_the_scale_of_lexical_scores_does_not_matter() -> None:
    """Scores a thousand times as high give the same."""
    larger = [Hit(hit.tool_id, hit.score * 1000) for hit in LEXICAL]
    assert weighted_sum(larger, {"b": 0.5}, alpha=0.5) == weighted_sum(LEXICAL, {"b": 0.5}, alpha=0.5)
