"""Search by words and by meaning at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from toolexec.discovery import BM25Searcher, Explanation, Filters, Hit, Hits, InMemoryIndex, LexicalSearcher, WordMatch
from toolexec.discovery.search import Accept
from toolexec.discovery.semantic import EmbeddingSearcher, HybridSearcher, StaticEmbedder
from toolexec.errors import ConfigurationError
from toolexec.model import LocalBinding, Tool
from toolexec.testing.searcher_suite import check_searcher

MakeTool = Callable[..., Tool]


class Fixed:
    """A lexical side that always finds the same, and remembers what it was told and asked."""

    name = "fixed"
    deterministic = True

    def __init__(self, *hits: tuple[str, float], **said: Any) -> None:
        self.hits = [Hit(*hit) for hit in hits]
        self.said = said
        self.known: list[str] = []
        self.asked: list[tuple[str, int]] = []

    def add(self, tool: Tool, bindings: Sequence[Any] = ()) -> None:
        self.known.append(tool.id)

    def remove(self, tool_id: str) -> None:
        self.known.remove(tool_id)

    def search(self, query: str, limit: int, accept: Accept | None = None) -> list[Hit]:
        self.asked.append((query, limit))
        return Hits([hit for hit in self.hits if accept is None or accept(hit.tool_id)][:limit], **self.said)


class Axes:
    """Texts about `north` and `east` have vectors in that direction."""

    deterministic = True
    blocks = False

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        self.asked += texts
        return [[text.count("north"), text.count("east")] for text in texts]


def hybrid(lexical: Any, make_tool: MakeTool, **options: Any) -> HybridSearcher:
    """A searcher of three tools: north, east, and half of each."""
    made = HybridSearcher(lexical, EmbeddingSearcher(Axes()), **options)
    made.add(make_tool("t:a", "north"))
    made.add(make_tool("t:b", "east"))
    made.add(make_tool("t:c", "north east"))
    return made


def rounded(hits: list[Hit]) -> dict[str, float]:
    """Scores by ID, best first."""
    return {hit.tool_id: round(hit.score, 2) for hit in hits}


class TestFusion:
    @pytest.mark.parametrize(
        ("alpha", "expected"),
        [
            (1.0, {"t:b": 1.0, "t:c": 0.5}),
            (0.75, {"t:b": 0.75, "t:c": 0.55, "t:a": 0.25}),
            (0.5, {"t:c": 0.6, "t:a": 0.5, "t:b": 0.5}),
            (0.25, {"t:a": 0.75, "t:c": 0.66, "t:b": 0.25}),
            (0.0, {"t:a": 1.0, "t:c": 0.71}),
        ],
    )
    def test_alpha(self, alpha: float, expected: dict[str, float], make_tool: MakeTool) -> None:
        """The weight is between two scores of 0 to 1; at its ends, one side alone counts."""
        made = hybrid(Fixed(("t:b", 20.0), ("t:c", 10.0)), make_tool, alpha=alpha)
        hits = made.search("north", 5)
        assert list(rounded(hits).items()) == list(expected.items())

    def test_words_weigh_more_for_a_task(self, make_tool: MakeTool) -> None:
        """A query of nine telling words is about several tools, and close to none of them as a whole."""
        short = "send mail book room bill client close ticket"
        made = hybrid(Fixed(("t:b", 20.0), ("t:c", 10.0)), make_tool)
        found = {
            query: {hit.tool_id: hit.score for hit in made.search(query, 9)} for query in (short, f"{short} today")
        }
        before, after = found.values()
        assert after["t:c"] - 0.7 * 0.5 == pytest.approx(0.6 * (before["t:c"] - 0.5 * 0.5))
        assert after["t:b"] - 0.7 == pytest.approx(0.6 * (before["t:b"] - 0.5))

    @pytest.mark.parametrize(
        ("alpha", "order"), [(1.0, ["t:b", "t:c"]), (0.5, ["t:c", "t:a", "t:b"]), (0.0, ["t:a", "t:c"])]
    )
    def test_ranks(self, alpha: float, order: list[str], make_tool: MakeTool) -> None:
        """With rrf only the ranks count; a tool that both sides find comes first, and equal ones go by ID."""
        made = hybrid(Fixed(("t:b", 20.0), ("t:c", 19.9)), make_tool, alpha=alpha, fusion="rrf", k=60)
        hits = made.search("north", 5)
        assert list(rounded(hits)) == order
        assert all(hit.score > 0 for hit in hits)

    def test_one_side_is_not_asked_when_it_does_not_count(self, make_tool: MakeTool) -> None:
        """An embedder that costs is not called for nothing."""
        lexical = Fixed(("t:b", 1.0))
        words, meaning = hybrid(lexical, make_tool, alpha=1.0), hybrid(Fixed(), make_tool, alpha=0.0)
        words.search("north", 5)
        assert words.embedding.prepare() == 0
        meaning.search("north", 5)
        assert isinstance(meaning.lexical, Fixed)
        assert meaning.lexical.asked == []
        assert lexical.asked == [("north", 100)]
        assert words.blocks is False

    def test_candidates(self, make_tool: MakeTool) -> None:
        """Ranks so many of each side, whatever the limit: pages must follow one another."""
        lexical = Fixed(*((f"x:{i}", 100.0 - i) for i in range(50)))
        made = hybrid(lexical, make_tool, candidates=10)
        whole = made.search("north", 1000)
        assert len(whole) == 10 + 2
        assert all(made.search("north", limit) == whole[:limit] for limit in range(1, 12))

    def test_the_cosine_of_every_candidate_counts(self, make_tool: MakeTool) -> None:
        """The cosine counts even for a candidate that is not among the closest."""
        made = hybrid(Fixed(("t:c", 1.0)), make_tool, candidates=1)
        assert rounded(made.search("north", 5)) == {"t:c": 0.85, "t:a": 0.5}

    @pytest.mark.parametrize(
        "options",
        [{"alpha": -0.01}, {"alpha": 1.01}, {"alpha": float("nan")}, {"fusion": "max"}, {"k": -1}, {"candidates": 0}],
        ids=repr,
    )
    def test_what_makes_no_sense_is_refused(self, options: dict[str, Any]) -> None:
        """Weights outside of 0 to 1, unknown fusions, negative numbers."""
        with pytest.raises(ConfigurationError):
            HybridSearcher(Fixed(), EmbeddingSearcher(Axes()), **options)


class TestBothSides:
    def test_changes_reach_both(self, make_tool: MakeTool) -> None:
        """Tools come and go on both sides."""
        lexical = Fixed()
        made = hybrid(lexical, make_tool)
        made.remove("t:a")
        assert lexical.known == ["t:b", "t:c"]
        assert list(rounded(made.search("north", 5))) == ["t:c"]

    def test_what_the_lexical_side_says(self, make_tool: MakeTool) -> None:
        """Its note and its guess are passed on; a guess without hits only if meaning finds nothing either."""
        made = hybrid(Fixed(("t:a", 1.0), did_you_mean="south", note="nothing has this word"), make_tool)
        hits = made.search("north", 5)
        assert list(rounded(hits)) == ["t:a", "t:c"]
        assert (hits.did_you_mean, hits.note) == ("south", "nothing has this word")
        made = hybrid(Fixed(did_you_mean="south"), make_tool)
        assert made.search("north", 5).did_you_mean is None
        assert made.search("nowhere", 5).did_you_mean == "south"

    def test_a_lexical_side_that_says_nothing(self, make_tool: MakeTool) -> None:
        """A plain list will do."""
        hits = hybrid(LexicalSearcher(), make_tool).search("east", 5)
        assert list(rounded(hits)) == ["t:b", "t:c"]
        assert (hits.did_you_mean, hits.note) == (None, "")

    def test_without_words_it_lists(self, make_tool: MakeTool) -> None:
        """As the lexical side does."""
        hits = hybrid(LexicalSearcher(), make_tool).search(" ", 2)
        assert hits == [Hit("t:a", 0.0), Hit("t:b", 0.0)]
        assert hybrid(LexicalSearcher(), make_tool).search("east", 0) == []

    def test_in_an_index(self, make_tool: MakeTool) -> None:
        """Filters hold on both sides, the score type is hybrid, and pages follow one another."""
        index = InMemoryIndex(HybridSearcher(BM25Searcher(), EmbeddingSearcher(Axes())))
        for tool in (make_tool("x:a", "north"), make_tool("y:b", "north"), make_tool("y:c", "north east")):
            index.register(tool, LocalBinding(tool.id))
        found = index.search("north", 5, filters=Filters(namespace="y"), explain=True)
        assert found.ids() == ["y:b", "y:c"]
        assert found.score_type == "hybrid"
        assert found[0].explanation is not None
        assert set(found[0].explanation.parts) == {"bm25", "embedding"}
        page = index.search_page("north", 2)
        rest = index.search_page("north", 2, cursor=page.next_cursor)
        assert [summary.id for summary in (*page.items, *rest.items)] == index.search("north", 5).ids()

    def test_close_and_what_it_says_of_itself(self, make_tool: MakeTool) -> None:
        """A hybrid is deterministic only if both sides are, and blocks when its embedder does."""
        made = hybrid(Fixed(), make_tool)
        assert made.deterministic
        made.search("north", 1)
        assert not made.blocks
        made.close()
        other = HybridSearcher(Fixed(), EmbeddingSearcher(lambda texts: [[1.0] for _ in texts]))
        assert not other.deterministic
        assert other.blocks


class TestExplain:
    def test_both_parts(self, make_tool: MakeTool) -> None:
        """Each side's own score, with the words of a lexical side that tells them."""

        class Telling(Fixed):
            def explain(self, query: str, tool_id: str) -> Explanation | None:
                return Explanation(matches=(WordMatch(query_word=query, word="north"),), snippet="**north**")

        made = hybrid(Telling(("t:a", 7.5), did_you_mean="north"), make_tool)
        made.search("north", 5)
        why = made.explain("north", "t:a")
        assert why is not None
        assert {name: round(part, 2) for name, part in why.parts.items()} == {"fixed": 7.5, "embedding": 1.0}
        assert (why.snippet, why.matches[0].query_word) == ("**north**", "north")

    def test_one_part(self, make_tool: MakeTool) -> None:
        """Only the sides that find the tool; None when neither does, and for a query without words."""
        made = hybrid(Fixed(("t:b", 7.5)), make_tool)
        made.search("north", 5)
        by_words, by_meaning = made.explain("north", "t:b"), made.explain("north", "t:a")
        assert by_words is not None
        assert by_meaning is not None
        assert (set(by_words.parts), set(by_meaning.parts)) == ({"fixed"}, {"embedding"})
        assert made.explain("north", "never:there") is None
        assert made.explain(" ", "t:a") is None


SEMANTIC_GAPS = {"takes_the_new_form"}  # a forecast of rain has to do with temperature


class TestContract:
    @pytest.mark.full
    def test_hybrid_keeps_it(self) -> None:
        """In both fusions."""
        embedder = StaticEmbedder()
        for fusion in ("alpha", "rrf"):
            check_searcher(
                lambda fusion=fusion: HybridSearcher(BM25Searcher(), EmbeddingSearcher(embedder), fusion=fusion),
                known_gaps=SEMANTIC_GAPS,
            )

    def test_search_by_meaning_keeps_it(self) -> None:
        """Search by meaning keeps it, except for what only words can give: a word that means little finds nothing."""
        embedder = StaticEmbedder()
        check_searcher(lambda: EmbeddingSearcher(embedder), known_gaps=SEMANTIC_GAPS | {"orders_by_score_then_id"})

    def test_with_an_embedder_that_shares_words(self, embedder: Any) -> None:
        """Where meaning is nothing but words, there are no gaps."""
        check_searcher(lambda: HybridSearcher(BM25Searcher(), EmbeddingSearcher(embedder)))
        check_searcher(lambda: EmbeddingSearcher(embedder), known_gaps={"ranks_the_name_first"})
