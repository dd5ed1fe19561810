"""The best by bit sets are the best by counting one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolexec.discovery import BM25Config, BM25Searcher, Filters, InMemoryIndex
from toolexec.discovery.ranking import ranker as ranker_module
from toolexec.discovery.ranking.planes import add_planes, best_of, bits_of, slots_of
from toolexec.discovery.ranking.ranker import Choice
from toolexec.model import MCPBinding, Tool, ToolAnnotations

WORDS = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(60)]


def catalogue(count: int, seed: int) -> list[Tool]:
    """Tools with words of a skewed vocabulary, some of them equal but for their IDs."""
    r = random.Random(seed)
    usual = [word for i, word in enumerate(WORDS) for _ in range(max(1, 40 // (i + 1)))]
    return [
        Tool(
            name=f"t{i}",
            namespace=f"n{r.randrange(8)}",
            description=" ".join(r.choice(usual) for _ in range(r.choice((3, 3, 8, 30)))),
            tags=[r.choice(["red", "green", "blue"])],
            annotations=ToolAnnotations(read_only=r.random() < 0.3),
            input_schema=True,
        )
        for i in range(count)
    ]


def one_by_one(made: BM25Searcher, query: str, limit: int) -> list[tuple[str, float]]:
    """The best, without bit sets."""
    made.search("", 1)  # takes in what is pending
    ranker = made._ranker
    groups = [m for word in made._expander.read(query).words if (m := ranker._members(word.members))]
    scored = [(made._id(slot), score) for score, slot in ranker._one_by_one(groups, Choice())]
    return sorted(scored, key=lambda item: (-item[1], item[0]))[:limit]


def found(made: BM25Searcher, query: str, limit: int) -> list[tuple[str, float]]:
    """The best, as a search gives them."""
    return [(hit.tool_id, hit.score) for hit in made.search(query, limit)]


@pytest.mark.full
@pytest.mark.parametrize("size", [600, 5000])
def test_bit_sets_find_the_same(size: int) -> None:
    """For many queries and limits, and again after each of many changes: same tools, same order, same scores."""
    r = random.Random(size)
    tools = catalogue(size, 1)
    made = BM25Searcher()
    for tool in tools:
        made.add(tool)
    for step in range(60):
        query = " ".join(r.sample(WORDS[:30], r.choice((1, 2, 3, 6))))
        limit = r.choice((1, 10, 50))
        expected = one_by_one(made, query, limit)
        assert found(made, query, limit) == expected, query
        for _ in range(r.choice((0, 1, 5, 200 if step % 20 == 0 else 2))):
            tool = r.choice(tools)
            action = r.random()
            if action < 0.3:
                made.remove(tool.id)
            else:
                made.add(tool.replace(description=" ".join(r.sample(WORDS, 5))))
    assert made._ranker._planes, "no query went by bit sets"


@pytest.mark.full
def test_many_equal_tools() -> None:
    """Thousands of tools with one score: the first by ID, whatever the road."""
    made = BM25Searcher()
    for i in range(6000):
        made.add(Tool(name=f"same{i:05}", description="equal words here", input_schema=True))
    assert [hit.tool_id for hit in made.search("equal words", 5)] == [f"same{i:05}" for i in range(5)]
    assert len(made.search("equal", 10_000)) == 6000


def test_words_that_cost_much_cost_less_when_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frequent word of a large catalogue is found through finer bit sets after a while, and finds the same."""
    monkeypatch.setattr(ranker_module, "_LARGE", 1000)
    made = BM25Searcher()
    for tool in catalogue(8000, 5):
        made.add(tool)
    expected = one_by_one(made, "waa", 10)
    looked: list[int] = []
    exact = ranker_module.Ranker._exact

    def counted(*args: Any) -> Any:
        looked[-1] += len(args[2])
        return exact(*args)

    monkeypatch.setattr(ranker_module.Ranker, "_exact", counted)
    for _ in range(6):
        looked.append(0)
        assert found(made, "waa", 10) == expected
    assert looked[0] == looked[1] > 2 * looked[2]
    assert looked[2:] == [looked[2]] * 4


def test_planes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bit sets of words are kept within bounds, the oldest given up first."""
    monkeypatch.setattr(ranker_module, "_MAX_KEPT_BYTES", 10_000)
    made = BM25Searcher()
    for tool in catalogue(4000, 2):
        made.add(tool)
    for word in WORDS[:20]:
        made.search(word, 5)
    for kept in (made._ranker._planes, made._ranker._tiers):
        assert kept.bytes <= 10_000
        assert kept.bytes == sum(each.size for each in kept.values())


@pytest.mark.full
def test_statistics_may_drift() -> None:
    """Scores follow the catalogue when it grows tenfold after the bit sets were made."""
    made = BM25Searcher()
    tools = catalogue(3000, 3)
    for tool in tools[:300]:
        made.add(tool)
    for tool in tools[300:]:
        made.add(tool)
        if int(tool.name[1:]) % 97 == 0:
            expected = one_by_one(made, "waa wab", 10)
            assert found(made, "waa wab", 10) == expected


class TestFilters:
    @pytest.mark.full
    @pytest.mark.parametrize(
        "filters",
        [
            Filters(namespace="n3"),
            Filters(namespace="nowhere"),
            Filters(tags=("red",)),
            Filters(tags=("red", "green")),
            Filters(read_only=True),
            Filters(destructive=True, namespace="n1"),
            Filters(read_only=False, tags=("blue",)),
            Filters(backend="mcp"),
            Filters(backend="server2"),
            Filters(open_world=False),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("query", ["waa", "waa wab wac", ""])
    def test_filters_inside_the_index(self, filters: Filters, query: str) -> None:
        """The answer is that of the whole list, filtered; and so are the counts."""
        index = InMemoryIndex()
        for i, tool in enumerate(catalogue(3000, 4)):
            index.register(tool, MCPBinding(f"server{i % 3}", tool.name))
        index.search("waa wab", 5)
        for tool in catalogue(30, 4):
            index.unregister(tool.id)
        everything = index.search(query, 5000)
        expected = []
        for summary in everything:
            entry = index.find(summary.id)
            if entry is not None and filters.accept(entry.tool, entry.bindings):
                expected.append(summary.id)
        assert index.search(query, 12, filters=filters).ids() == expected[:12]
        facets = index.facets(query, filters=filters)
        assert facets.total == len(expected)
        assert sum(facets.namespaces.values()) == len(expected)

    def test_an_own_accept(self) -> None:
        """A function says which tools may be in the answer; asked for more until enough are found."""
        made = BM25Searcher()
        for tool in catalogue(3000, 5):
            made.add(tool)
        everything = [hit.tool_id for hit in made.search("waa", 5000)]
        chosen = [tool_id for tool_id in everything if tool_id.endswith("7")]
        assert [hit.tool_id for hit in made.search("waa", 10, lambda i: i.endswith("7"))] == chosen[:10]
        assert made.facets("waa", lambda i: i.endswith("7")).total == len(chosen)
        assert made.search("waa", 10, lambda i: False) == []


class TestBits:
    @given(st.lists(st.integers(0, 5000), unique=True, max_size=60))
    def test_there_and_back(self, slots: list[int]) -> None:
        """Slots become bits and slots again."""
        assert slots_of(bits_of(slots, 5001)) == sorted(slots)

    def test_many_bits(self) -> None:
        """The road for many slots gives the same as the one for few."""
        slots = list(range(0, 9000, 2))
        assert slots_of(bits_of(slots, 9000)) == slots

    @given(st.lists(st.lists(st.integers(0, 63), min_size=20, max_size=20), min_size=1, max_size=5), st.integers(1, 25))
    @settings(max_examples=50)
    def test_sums_and_the_best(self, words: list[list[int]], wanted: int) -> None:
        """Added planes are the sums; the best of them are those by sorting."""
        total: list[int] = []
        for i, levels in enumerate(words):
            add_planes(total, [bits_of([s for s, v in enumerate(levels) if v >> b & 1], 20) for b in range(6)], i % 3)
        sums = [sum(levels[slot] << i % 3 for i, levels in enumerate(words)) for slot in range(20)]
        assert [sum((plane >> slot & 1) << i for i, plane in enumerate(total)) for slot in range(20)] == sums
        sure, equal, bound = best_of(total, (1 << 20) - 1, wanted)
        assert all(sums[slot] > bound for slot in slots_of(sure))
        assert all(sums[slot] == bound for slot in slots_of(equal))
        assert len(slots_of(sure)) < wanted
        if bound:
            assert len(slots_of(sure)) + len(slots_of(equal)) >= wanted


def test_synonyms_never_outrank_the_word() -> None:
    """A rare word that means the same counts for less than the word that was asked for."""
    made = BM25Searcher()
    for i in range(40):
        made.add(Tool(name=f"get_{i}", input_schema=True))
    made.add(Tool(name="fetch_0", input_schema=True))
    assert made.search("get", 41)[-1].tool_id == "fetch_0"
    assert made.search("fetch", 41)[0].tool_id == "fetch_0"
    assert len(BM25Searcher(BM25Config(synonyms=0)).search("get", 5)) == 0
