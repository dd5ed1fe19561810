"""Ranked search, kept up to date change by change."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolexec.discovery import BM25Config, BM25Searcher
from toolexec.discovery.search import SearchDoc
from toolexec.discovery.words import words_of
from toolexec.errors import ConfigurationError
from toolexec.model import Tool


def tool(tool_id: str, description: str = "", **parts: Any) -> Tool:
    """A tool with this ID and text."""
    namespace, _, name = tool_id.rpartition(":")
    return Tool(name=name, namespace=namespace, description=description, input_schema=True, **parts)


def searcher(*tools: Tool, config: BM25Config | None = None) -> BM25Searcher:
    """A searcher that knows these tools."""
    made = BM25Searcher(config)
    for each in tools:
        made.add(each)
    return made


def ids(made: BM25Searcher, query: str, limit: int = 10) -> list[str]:
    """The IDs that a query finds."""
    return [hit.tool_id for hit in made.search(query, limit)]


def naive(tools: list[Tool], query: str, config: BM25Config) -> dict[str, float]:
    """The formula as it stands in the books, computed from scratch."""
    documents: dict[str, dict[str, float]] = {}
    for each in tools:
        doc = SearchDoc(each)
        counts: dict[str, float] = {}
        fields = (
            (config.name_boost, doc.name),
            (config.namespace_boost, doc.namespace),
            (config.tags_boost, " ".join(doc.tags)),
            (config.text_boost, f"{doc.description} {doc.extra}"),
            (config.parameters_boost, doc.parameters),
        )
        for boost, text in fields:
            for word in words_of(text):
                counts[word] = counts.get(word, 0.0) + boost
        documents[each.id] = {word: count for word, count in counts.items() if count}
    mean = sum(sum(counts.values()) for counts in documents.values()) / max(len(documents), 1)
    scores: dict[str, float] = {}
    for word in dict.fromkeys(words_of(query)):
        holders = [tool_id for tool_id, counts in documents.items() if word in counts]
        idf = math.log(1 + (len(documents) - len(holders) + 0.5) / (len(holders) + 0.5))
        for tool_id in holders:
            count, length = documents[tool_id][word], sum(documents[tool_id].values())
            norm = config.k1 * (1 - config.b + config.b * length / (mean or 1))
            scores[tool_id] = scores.get(tool_id, 0.0) + idf * count * (config.k1 + 1) / (count + norm)
    return scores


vocabulary = st.sampled_from(["git", "commit", "log", "docker", "run", "read", "file", "weather"])
texts = st.lists(vocabulary, max_size=6).map(" ".join)
changes = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "search"]), st.sampled_from(["a", "n:b", "n:c", "m:git_log"]), texts),
    max_size=25,
)


@pytest.mark.full
@given(changes, texts)
@settings(max_examples=150, deadline=None)
def test_any_sequence_of_changes_ends_like_a_fresh_start(steps: list[tuple[str, str, str]], query: str) -> None:
    """Added, replaced and removed in any order: ranks and scores are those of a new searcher, and of the formula."""
    changing = BM25Searcher()
    current: dict[str, Tool] = {}
    for action, tool_id, text in steps:
        if action == "add":
            current[tool_id] = tool(tool_id, text, tags=text.split()[:1])
            changing.add(current[tool_id])
        elif action == "remove":
            current.pop(tool_id, None)
            changing.remove(tool_id)
        else:
            changing.search(text, 3)
    fresh = searcher(*current.values())
    query = query or "git"
    assert ids(changing, query) == ids(fresh, query)
    expected = naive(list(current.values()), query, BM25Config())
    found = {hit.tool_id: hit.score for hit in changing.search(query, 10)}
    assert found == pytest.approx(expected)
    assert ids(changing, "") == sorted(current)


@given(
    st.lists(texts, min_size=1, max_size=8),
    texts,
    st.floats(0, 3),
    st.floats(0, 1),
    st.integers(0, 40).map(lambda eighths: eighths / 8),
)
@settings(max_examples=50, deadline=None)
def test_scores_follow_the_formula(bodies: list[str], query: str, k1: float, b: float, boost: float) -> None:
    """With any knobs, the score is Okapi BM25 over weighted fields."""
    config = BM25Config(k1=k1, b=b, name_boost=boost, tags_boost=1)
    tools = [tool(f"n{i}:git", body) for i, body in enumerate(bodies)]
    query = query or "git"
    found = {hit.tool_id: hit.score for hit in searcher(*tools, config=config).search(query, 100)}
    assert found == pytest.approx(naive(tools, query, config))


class TestRanking:
    def test_more_words_rank_higher(self) -> None:
        """All words of the query beat one of them; any of them is enough."""
        made = searcher(tool("git-push", "Push commits"), tool("git-commit", "Record"), tool("docker", "Runs"))
        assert ids(made, "git commit") == ["git-commit", "git-push"]
        assert ids(made, "record") == ["git-commit"]

    def test_plurals_find_singulars(self) -> None:
        """A word and its plural are the same word, in queries and in documents."""
        made = searcher(tool("git-push", "Push commits"), tool("branches", "Lists"), tool("status", "Shows"))
        assert ids(made, "commit") == ids(made, "commits") == ["git-push"]
        assert ids(made, "branch list")[0] == "branches"
        assert ids(made, "status") == ["status"]

    def test_identifiers_are_words(self) -> None:
        """Multi-word queries find snake_case and camelCase."""
        made = searcher(tool("fs:readFile"), tool("fs:write_file"), tool("git:status"))
        assert ids(made, "read file")[0] == "fs:readFile"
        assert ids(made, "write_file")[0] == "fs:write_file"
        assert ids(made, "git status") == ["git:status"]

    def test_rare_words_count_more(self) -> None:
        """A word that few tools have says more than one that all have."""
        made = searcher(*(tool(f"common{i}", "file") for i in range(5)), tool("rare", "file zebra"))
        assert ids(made, "file zebra")[0] == "rare"

    def test_boosts(self) -> None:
        """A strong field wins, and a boost of 0 switches a field off."""
        tools = tool("deploy", "other"), tool("other", "deploy deploy", tags=["deploy"])
        assert ids(searcher(*tools, config=BM25Config(name_boost=50)), "deploy")[0] == "deploy"
        assert ids(searcher(*tools, config=BM25Config(tags_boost=50, exact_first=False)), "deploy")[0] == "other"
        assert ids(searcher(*tools, config=BM25Config(name_boost=0)), "deploy") == ["other"]
        only_names = BM25Config(text_boost=0, tags_boost=0, namespace_boost=0)
        assert ids(searcher(*tools, config=only_names), "deploy") == ["deploy"]

    def test_parameters_are_found(self) -> None:
        """The names and descriptions of parameters count as text."""
        schema = {"properties": {"latitude": {"description": "Degrees north"}}}
        made = searcher(Tool(name="weather", input_schema=schema))
        assert ids(made, "latitude") == ids(made, "north") == ["weather"]

    def test_long_texts(self) -> None:
        """10,000 words are searchable, and what lies beyond 20,000 characters is not read."""
        made = searcher(tool("long", "word " * 3000 + "needle " + "x" * 20_000 + " beyond"))
        assert ids(made, "needle") == ["long"]
        assert ids(made, "beyond") == []

    def test_tools_without_words(self) -> None:
        """Names of punctuation only are listed, and no query divides by zero."""
        made = searcher(tool("--"), tool("__"))
        assert ids(made, "") == ["--", "__"]
        assert ids(made, "--") == []
        assert ids(made, "x") == []

    def test_a_query_of_many_words(self) -> None:
        """Only the first 64 different words of a query count."""
        made = searcher(tool("last"))
        assert ids(made, " ".join(f"w{chr(97 + i % 26) * (i + 2)}" for i in range(64)) + " last") == []
        assert ids(made, "w " * 100 + "last") == ["last"]


class TestConfig:
    def test_defaults(self) -> None:
        """Name 3, namespace and tags 2, text 1."""
        config = BM25Searcher().config
        assert (config.name_boost, config.namespace_boost, config.tags_boost, config.text_boost) == (3, 2, 2, 1)

    @pytest.mark.parametrize(
        "knobs",
        [
            {"name_boost": -1},
            {"k1": -0.1},
            {"b": 1.1},
            {"b": -1},
            {"text_boost": math.nan},
            {"k1": math.inf},
            {"synonyms": 2},
            {"tags_boost": 101},
        ],
    )
    def test_senseless_knobs(self, knobs: dict[str, float]) -> None:
        """Negative and infinite weights are refused."""
        with pytest.raises(ConfigurationError):
            BM25Config(**knobs)


@pytest.mark.full
def test_nothing_is_kept() -> None:
    """After removing all, no posting is left, and words that are gone permanently free their memory."""
    made = searcher(*(tool(f"t{i}", f"word{chr(97 + i % 26)}{'x' * i} shared") for i in range(50)))
    assert len(ids(made, "shared", 100)) == 50
    for i in range(50):
        made.remove(f"t{i}")
    assert ids(made, "shared") == []
    postings = made._postings
    assert not any(postings.lists.values())
    assert postings.count == postings.total_length == 0
    for i in range(6000):
        made.add(tool("one", f"only{i}q"))
        made.search("only", 1)
    assert len(postings.words.signs) < 6000
