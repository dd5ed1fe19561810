"""What a search returns."""

from __future__ import annotations

from collections.abc import Iterable

from toolexec.discovery.summary import Summary


class SearchResults(list[Summary]):
    """Summaries of the tools found, best first: a list with something to say.

    `score_type` names the kind of the scores, such as `bm25` or `hybrid`. `did_you_mean` is the query as it was
    probably meant, when words of it are unknown (the answer then is for that). `note` says why the answer is empty, or
    less than was asked for; empty when there is nothing to say.
    """

    __slots__ = ("did_you_mean", "note", "score_type")

    def __init__(
        self,
        found: Iterable[Summary] = (),
        *,
        score_type: str = "",
        did_you_mean: str | None = None,
        note: str = "",
    ) -> None:
        super().__init__(found)
        self.score_type: str = score_type
        self.did_you_mean: str | None = did_you_mean
        self.note: str = note

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from toolexec.discovery.html import results_html

        return results_html(self)

    def ids(self) -> list[str]:
        """Return the IDs, best first."""
        return [summary.id for summary in self]

    def filter_by_namespace(self, namespace: str) -> SearchResults:
        """Return those of one namespace, in the same order."""
        return self.like(summary for summary in self if summary.namespace == namespace)

    def filter_by_min_score(self, score: float) -> SearchResults:
        """Return those with a score of at least *score*, in the same order."""
        return self.like(summary for summary in self if (summary.score or 0.0) >= score)

    def like(self, found: Iterable[Summary]) -> SearchResults:
        """Other summaries with all else as it is here."""
        return SearchResults(found, score_type=self.score_type, did_you_mean=self.did_you_mean, note=self.note)
