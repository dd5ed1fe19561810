"""The plain substring search."""

from __future__ import annotations

import pytest

from toolexec.discovery import Hit, LexicalSearcher
from toolexec.discovery.search import SearchDoc, best
from toolexec.model import Tool


def tool(tool_id: str, description: str = "", **parts: object) -> Tool:
    """A tool with this ID and text."""
    namespace, _, name = tool_id.rpartition(":")
    return Tool(name=name, namespace=namespace, description=description, input_schema=True, **parts)  # type: ignore[arg-type]


def searcher(*tools: Tool) -> LexicalSearcher:
    """A searcher that knows these tools."""
    made = LexicalSearcher()
    for each in tools:
        made.add(each)
    return made


@pytest.mark.parametrize(
    ("query", "score"),
    [
        ("log", 150),
        ("lo", 100),
        ("git", 50),
        ("g", 150),
        ("history", 10),
        ("HISTORY of", 10),
        (" log ", 150),
        ("vcs", 10),
    ],
)
def test_scores(query: str, score: float) -> None:
    """100 in the name, 50 more if it is the name, 50 in the namespace, else 10 anywhere."""
    assert searcher(tool("git:log", "Shows the history of it", tags=["VCS"])).search(query, 5) == [
        Hit("git:log", score)
    ]


def test_the_query_is_one_piece() -> None:
    """Words in another order are not found."""
    assert searcher(tool("git_status")).search("git status", 5) == []
    assert searcher(tool("git_status")).search("git_status", 5) == [Hit("git_status", 150)]


def test_search_doc_reads_everything() -> None:
    """Title, summary, description, category, security, modes and parameters."""
    meta = {
        "summary": "S",
        "category": "C",
        "securitySchemes": {"oauth": {}},
        "inputModes": ["text"],
        "outputModes": ["json"],
    }
    full = Tool(name="N", namespace="ns", title="T", description="D", meta=meta, tags=["x"], input_schema=True)
    doc = SearchDoc(full)
    assert (doc.description, doc.extra, doc.parameters) == ("T S D", "C oauth text json", "")
    assert doc.text() == "n ns t s d c oauth text json x"
    assert SearchDoc(tool("only")).text() == "only"


def test_best() -> None:
    """The highest scores that are wanted, ties by ID."""
    scores = {"c": 1.0, "a": 1.0, "b": 2.0, "d": 0.5}
    assert [hit.tool_id for hit in best(scores, 3)] == ["b", "a", "c"]
    assert [hit.tool_id for hit in best(scores, 2, lambda tool_id: tool_id != "b")] == ["a", "c"]
    assert best({}, 3) == []
