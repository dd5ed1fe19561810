"""Search by words and meaning finds what the steps of a task need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolexec.discovery.bm25 import BM25Searcher
from toolexec.discovery.ranking.steps import is_task, telling_clauses
from toolexec.discovery.search import Hit
from toolexec.discovery.semantic import EmbeddingSearcher, HybridSearcher
from toolexec.discovery.semantic.steps import Namespaces, by_words, gains_of
from toolexec.model import Tool

from .conftest import WordEmbedder

MakeTool = Callable[..., Tool]
TASK = "Bill the client of the old invoice, prepare the room for the board, write Kim about lunch."


@pytest.fixture
def searcher(embedder: WordEmbedder, make_tool: MakeTool) -> HybridSearcher:
    """A catalogue of three namespaces, each with a tool that looks things up and shares no word with the task."""
    made = HybridSearcher(BM25Searcher(), EmbeddingSearcher(embedder))
    for tool_id, text in {
        "billing:create": "bill a client by an invoice",
        "billing:void": "void an invoice of a client",
        "billing:search_all": "query what was billed",
        "rooms:book": "a room for the board",
        "rooms:prepare": "prepare a room",
        "rooms:find_places": "query by size",
        "weather:forecast": "rain and sun",
        "weather:search_stations": "query stations",
        "weather:warn": "storms",
    }.items():
        made.add(make_tool(tool_id, text))
    return made


def test_what_looks_things_up_comes_for_each_step(searcher: HybridSearcher) -> None:
    """The namespace that is closest to a clause gives what looks things up there, though no word of the task is in
    it; one that no clause is about does not."""
    found = [hit.tool_id for hit in searcher.search(TASK, 20)]
    assert {"billing:search_all", "rooms:find_places"} <= set(found[:4])
    assert "weather:search_stations" not in found


def test_filters_hold_for_what_the_steps_add(searcher: HybridSearcher) -> None:
    """A tool that the caller may not see is not added for a step."""
    found = searcher.search(TASK, 20, lambda tool_id: tool_id != "rooms:find_places")
    assert "rooms:find_places" not in [hit.tool_id for hit in found]


def test_a_removed_tool_is_not_added(searcher: HybridSearcher) -> None:
    """A tool that is gone is not found for a step."""
    searcher.search(TASK, 20)
    searcher.remove("billing:search_all")
    assert "billing:search_all" not in [hit.tool_id for hit in searcher.search(TASK, 20)]


def test_the_clauses_are_embedded_in_one_call(embedder: WordEmbedder, searcher: HybridSearcher) -> None:
    """An embedder is asked once for a task and its clauses, where its batch has room, and not again for the same task."""
    searcher.search("warm up", 1)
    embedder.calls.clear()
    searcher.search(TASK, 5)
    assert [len(call) for call in embedder.calls] == [4]
    searcher.search(TASK, 5)
    assert len(embedder.calls) == 1


def test_a_failing_embedder_leaves_the_words(embedder: WordEmbedder, searcher: HybridSearcher) -> None:
    """When the embedder fails, a task is answered by words, and the note says so."""
    embedder.down = True
    found, words = searcher.search(TASK, 5), searcher.lexical
    assert [hit.tool_id for hit in found][:1] == [hit.tool_id for hit in words.search(TASK, 1)]
    assert "search by meaning is off" in found.note


def test_a_short_query_has_no_steps(searcher: HybridSearcher, embedder: WordEmbedder) -> None:
    """A query for one tool is embedded as a whole, and nothing else."""
    searcher.search("warm up", 1)
    embedder.calls.clear()
    searcher.search("void an invoice, please", 5)
    assert embedder.embedded() == ["void an invoice, please"]


def test_two_clauses_of_some_words_are_a_task(searcher: HybridSearcher, embedder: WordEmbedder) -> None:
    """Eight words in two clauses are about two steps for a search by meaning, eight in one clause are not."""
    two, one = (
        "void the old unpaid invoice, prepare the large quiet room",
        "void old unpaid invoice prepare large quiet room",
    )
    searcher.search("warm up", 1)
    embedder.calls.clear()
    searcher.search(one, 5)
    searcher.search(two, 5)
    assert embedder.calls == [[one], [two, *telling_clauses(two)]]


def test_a_short_task_keeps_what_is_best_for_all_of_it(searcher: HybridSearcher) -> None:
    """A text of a few words in several clauses may be about one tool: that comes before what its clauses add."""
    found = searcher.search("void the invoice of the client, write Kim, lunch", 20)
    assert [hit.tool_id for hit in found][:2] == ["billing:void", "billing:search_all"]
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


def test_pages_follow_one_another(searcher: HybridSearcher) -> None:
    """The best few of a task are the beginning of the best many."""
    whole = searcher.search(TASK, 20)
    assert all(searcher.search(TASK, limit) == whole[:limit] for limit in range(1, len(whole)))


def test_clauses_without_a_telling_word_are_left_out() -> None:
    """A clause of stop words says nothing."""
    assert is_task(TASK, 12)
    assert telling_clauses("Close it, and then mail Kim, if it is there.") == ["Close it", "mail Kim"]


def test_a_clause_is_about_one_namespace() -> None:
    """Only the namespace that a clause is most about gets something: most what looks things up, then what is closest;
    nothing where none is closer than another."""
    spaces = {"a": ["a:search_x", "a:y"], "b": ["b:z"]}
    gains = gains_of([{"a:y": 0.8, "a:search_x": 0.2, "b:z": 0.3}], spaces, {})
    assert set(gains) == {"a:search_x", "a:y"}
    assert gains["a:search_x"] > gains["a:y"] > 0
    assert gains_of([{"a:y": 0.3, "a:search_x": 0.3, "b:z": 0.3}], spaces, {}) == {}
    assert gains_of([{}], spaces, {}) == gains_of([{"a:y": 1.0}], {}, {}) == {}


def test_the_words_say_something_of_a_namespace() -> None:
    """The best three of a namespace count, as shares of the best score; fewer count less."""
    hits = [Hit("a:x", 4.0), Hit("a:y", 2.0), Hit("b:z", 1.0)]
    assert by_words(hits) == pytest.approx({"a": 0.5, "b": 0.25 / 3})
    assert by_words([]) == {}


def test_a_large_namespace_is_represented() -> None:
    """Of many tools, those with a score stand for their namespace, then those that look things up."""
    known = Namespaces()
    for number in range(300):
        known.add(f"a:tool_{number}")
    known.add("a:search_it")
    chosen = known.chosen({"a:tool_299": 1.0, "b:gone": 2.0}, None)
    assert list(chosen) == ["a"]
    assert chosen["a"][:2] == ["a:tool_299", "a:search_it"]
    assert len(chosen["a"]) < 100
    for tool_id in ("a:tool_299", "b:gone"):
        known.remove(tool_id)
    assert "a:tool_299" not in known.chosen({"a:tool_1": 1.0}, None)["a"]
