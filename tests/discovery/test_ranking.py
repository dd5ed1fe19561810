"""How often the default search finds the right tool, on queries that people wrote."""

from __future__ import annotations

import pytest
from benchmarks.context.catalogue import FEW, add_unneeded, tasks
from benchmarks.context.recall import halves, recall
from benchmarks.context.world import definitions
from benchmarks.corpus import check
from benchmarks.ranking.labelled import HALVES, KINDS, operations, queries
from benchmarks.ranking.score import DEPTH, judge

from toolexec import Exec, InMemoryIndex, LocalBinding, Tool
from toolexec.discovery.bm25 import BM25Searcher
from toolexec.discovery.semantic import EmbeddingSearcher, HybridSearcher, StaticEmbedder

FLOORS = {
    # kind: (recall at 1, recall at 5, recall at 20), over both halves of the set
    "summary": (0.72, 0.90, 0.95),
    "misspelt": (0.70, 0.90, 0.94),
    "abbreviated": (0.52, 0.76, 0.88),
    "synonym": (0.42, 0.80, 0.93),
    "goal": (0.16, 0.36, 0.50),
    "all": (0.53, 0.78, 0.86),
}


@pytest.fixture(scope="module")
def index() -> InMemoryIndex:
    """All tools of the labelled set."""
    made = InMemoryIndex()
    tools = [Tool.from_dict(operation.to_dict()) for operation in operations()]
    made.register_many((tool, LocalBinding(tool.id)) for tool in tools)
    return made


@pytest.mark.full
def test_right_tools_are_found(index: InMemoryIndex) -> None:
    """For each kind of query, a right tool is among the first one, five and twenty as often as it was."""
    whole = [type(query)(query.text, query.relevant, query.kind, "test") for query in queries()]
    scores = judge(lambda query: index.search(query, DEPTH).ids(), whole)
    found = {kind: tuple(scores["test", kind][f"recall{k}"] for k in (1, 5, 20)) for kind in FLOORS}
    short = {kind: found[kind] for kind in FLOORS if any(a < b for a, b in zip(found[kind], FLOORS[kind], strict=True))}
    assert not short, f"found less often than {FLOORS}"


@pytest.mark.full
def test_what_was_not_tuned_for_is_found_as_well(index: InMemoryIndex) -> None:
    """The half that was not used for tuning is not far behind the other."""
    scores = judge(lambda query: index.search(query, DEPTH).ids())
    assert scores["test", "all"]["recall5"] > scores["dev", "all"]["recall5"] - 0.1


@pytest.mark.full
def test_the_text_of_a_task_finds_its_tools() -> None:
    """Of the tools that a task of several steps needs, as many are among the first five and twenty as they were, also
    for the half of the tasks that was not used for tuning."""
    ex = Exec()
    for tool in definitions().values():
        ex.add(tool, handler=dict)
    add_unneeded(ex, FEW)
    _, held_out = halves(tasks())

    def search(text: str, depth: int) -> list[str]:
        return ex.index.search(text, depth).ids()

    assert recall(search, tasks(), 5) >= 0.47
    assert recall(search, tasks(), 20) >= 0.76
    assert recall(search, held_out, 5) >= 0.42


@pytest.mark.full
def test_the_text_of_a_task_finds_its_tools_by_words_and_meaning() -> None:
    """With embeddings beside the words more of a task's tools are among the first five, not fewer, also for the half of
    the tasks that was not used for tuning."""
    made = InMemoryIndex(HybridSearcher(BM25Searcher(), EmbeddingSearcher(StaticEmbedder())))
    ex = Exec()
    for tool in definitions().values():
        ex.add(tool, handler=dict)
    add_unneeded(ex, FEW)
    made.register_many((entry.tool, LocalBinding(entry.tool.id)) for entry in ex.index.tools())

    def search(text: str, depth: int) -> list[str]:
        return made.search(text, depth).ids()

    assert recall(search, tasks(), 5) >= 0.52
    assert recall(search, tasks(), 20) >= 0.81
    assert recall(search, halves(tasks())[1], 5) >= 0.45


def test_each_answer_is_stable(index: InMemoryIndex) -> None:
    """The same query has the same answer, and no tool is in it twice."""
    for query in queries()[::10]:
        ids = index.search(query.text, DEPTH).ids()
        assert ids == index.search(query.text, DEPTH).ids()
        assert len(ids) == len(set(ids))


class TestTheSet:
    def test_sizes(self) -> None:
        """Enough tools, enough queries of each kind, and halves of about the same size."""
        assert len(operations()) == len({operation.id for operation in operations()}) >= 1000
        for kind in KINDS:
            halves = [sum(query.kind == kind and query.half == half for query in queries()) for half in HALVES]
            assert sum(halves) >= 100
            assert min(halves) > sum(halves) * 0.4

    def test_summaries_are_not_given_away(self) -> None:
        """A tool's own summary is in none of its texts."""
        for operation in operations():
            assert operation.summary.lower() not in str(operation.to_dict()).lower(), operation.id

    def test_the_made_up_corpus_never_changes(self) -> None:
        """Figures taken with it can be compared over years."""
        check([1000])
