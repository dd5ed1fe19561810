"""The contract suite for searchers against every searcher."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolexec.discovery import BM25Config, BM25Searcher, Hit, LexicalSearcher, Searcher
from toolexec.discovery.search import Accept
from toolexec.testing.searcher_suite import SEARCHER_CHECKS, MakeSearcher, check_searcher, ranks_the_name_first

MAKERS: dict[str, MakeSearcher] = {
    "bm25": BM25Searcher,
    "bm25-flat": lambda: BM25Searcher(BM25Config(b=0, k1=2)),
    "lexical": LexicalSearcher,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("check", SEARCHER_CHECKS, ids=lambda check: check.__name__)
def test_searcher_keeps_the_contract(check: Callable[[MakeSearcher], None], make: MakeSearcher) -> None:
    """Each searcher passes each check."""
    check(make)


class _Upside(LexicalSearcher):
    """Ranks the worst first."""

    def search(self, query: str, limit: int, accept: Accept | None = None) -> list[Hit]:
        return super().search(query, 10_000, accept)[::-1][: max(limit, 0)]


class _Broken:
    name = ""
    deterministic = True

    def add(self, tool: object, bindings: object = ()) -> None:
        raise RuntimeError("no room")

    def remove(self, tool_id: str) -> None:
        raise RuntimeError("no room")

    def search(self, query: str, limit: int, accept: Accept | None = None) -> list[Hit]:
        return []


def _report(caught: pytest.ExceptionInfo[ExceptionGroup]) -> str:
    """Every failure with the notes that name its check."""
    return "\n".join(f"{error}; {' '.join(getattr(error, '__notes__', []))}" for error in caught.value.exceptions)


class TestCheckSearcher:
    @pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
    def test_a_good_searcher_passes(self, make: Callable[[], Searcher]) -> None:
        """All checks at once, without known gaps."""
        check_searcher(make)

    def test_every_failure_is_reported_by_name(self) -> None:
        """A wrong ranking fails the checks of order, and the report names them."""
        with pytest.raises(ExceptionGroup) as caught:
            check_searcher(_Upside)
        report = _report(caught)
        assert "'commit' must rank git:commit first" in report
        assert "searcher check: ranks_the_name_first" in report
        assert "searcher check: orders_by_score_then_id" in report
        assert "finds_nothing_when_empty" not in report

    def test_a_check_that_crashes_is_a_failure(self) -> None:
        """An exception of the searcher does not end the run of the suite."""
        with pytest.raises(ExceptionGroup) as caught:
            check_searcher(_Broken)
        assert "no room" in _report(caught)
        assert "searcher check: says_what_it_is" in _report(caught)

    def test_known_gaps_are_excused(self) -> None:
        """Failures listed by name do not count."""
        gaps = {"ranks_the_name_first", "orders_by_score_then_id", "lists_by_id_without_words"}
        check_searcher(_Upside, known_gaps=gaps)

    def test_a_closed_gap_is_news(self) -> None:
        """A known gap that passes is reported; one that does not exist is refused."""
        with pytest.raises(ExceptionGroup) as caught:
            check_searcher(LexicalSearcher, known_gaps=[ranks_the_name_first.__name__])
        assert "ranks_the_name_first is listed as a known gap, but it passes" in _report(caught)
        with pytest.raises(ValueError, match="there are no checks flies"):
            check_searcher(LexicalSearcher, known_gaps=["flies"])
