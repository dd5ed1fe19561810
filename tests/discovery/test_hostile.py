"""Queries, limits, cursors and tools of hostile callers."""

from __future__ import annotations

import base64
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolexec.discovery import BM25Searcher, Filters, InMemoryIndex
from toolexec.errors import ConfigurationError, InvalidCursorError
from toolexec.model import LocalBinding, Tool

QUERIES = {
    "a megabyte of one word": "x" * 1_000_000,
    "a megabyte of words": "commit " * 150_000,
    "a megabyte of different words": " ".join(f"w{i}" for i in range(150_000)),
    "control characters": "com\x00mit\x1b[31m\x07\r\n\u202e\u2028",
    "a bomb of a regular expression": "(a+)+$ (.*)* [[[[ \\1 (?P<x>",
    "wildcards": "* ? % _ ' \" ; DROP TABLE tools --",
    "surrogates": "\ud800 \udfff commit",
    "marks of other writing": "e\u0301" * 5000,
    "right to left": "שלום עולם مرحبا بالعالم",
    "chinese": "提交到仓库",
    "emoji": "👩‍👩‍👧‍👦 🚀",
    "ligatures": "ﬁle ﷺ ½ ①",
    "ours": "\0namespace\0git",
    "signs": "Ā ā Ă 𐀀",
}


def index() -> InMemoryIndex:
    """A few tools, one of them hostile to the bone."""
    made = InMemoryIndex()
    tools = [
        Tool(name="commit", namespace="git", description="Record changes", input_schema=True),
        Tool(name="empty", description="", input_schema=True),
        Tool(name="huge", description="commit " * 150_000, input_schema={"properties": {"x" * 900_000: {}}}),
        Tool(name="odd", description="\ud800\udfff\x00\x1b\u202e Ā 𐀀 提交到仓库 e\u0301", input_schema=True),
        Tool(name="same1", description="identical text", input_schema=True),
        Tool(name="same2", description="identical text", input_schema=True),
    ]
    for tool in tools:
        made.register(tool, LocalBinding(tool.id))
    return made


@pytest.mark.full
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_queries(query: str) -> None:
    """Each has an answer, quickly; an empty one says why; explanations and counts hold, too."""
    made = index()
    found = made.search(query, 10, explain=True)
    assert found or found.note
    assert made.facets(query).total == len(made.search(query, 100))
    assert made.search_page(query, 1).items == tuple(made.search(query, 1))


@pytest.mark.parametrize("query", ["", " ", "\n\t"])
def test_blank_queries(query: str) -> None:
    """Nothing is asked, so the first tools by ID are the answer."""
    assert index().search(query, 3).ids() == ["empty", "git:commit", "huge"]


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (-1, 0), (-(10**30), 0), (1, 1), (10**30, 3), (sys.maxsize, 3)])
def test_limits(limit: int, count: int) -> None:
    """Below 1 nothing, above the catalogue all that there is."""
    made = index()
    assert len(made.search("commit identical changes", limit)) == min(max(limit, 0), 4)
    assert len(made.search("", limit, filters=Filters(namespace=""))) == min(max(limit, 0), 5)
    assert count <= 3
    if limit < 1:
        with pytest.raises(ConfigurationError):
            made.search_page("commit", limit)


@pytest.mark.parametrize(
    "cursor",
    ["x", "AAAA", base64.urlsafe_b64encode(b'{"offset": -5}').decode(), "=" * 1000, "\x00", "é" * 100, "A" * 1_000_000],
    ids=lambda cursor: cursor[:8].encode("unicode_escape").decode(),
)
def test_forged_cursors(cursor: str) -> None:
    """None is believed; a true one is bound to its query, filters, and the state of the catalogue."""
    made = index()
    with pytest.raises(InvalidCursorError):
        made.search_page("commit", 1, cursor=cursor)
    true = made.search_page("commit identical", 1).next_cursor
    assert true is not None
    for query, filters in (("other", None), ("commit identical", Filters(namespace="git"))):
        with pytest.raises(InvalidCursorError):
            made.search_page(query, 1, cursor=true, filters=filters)
    with pytest.raises(InvalidCursorError):
        index().search_page("commit identical", 1, cursor=true)
    made.unregister("empty")
    with pytest.raises(InvalidCursorError):
        made.search_page("commit identical", 1, cursor=true)


def test_pages_neither_repeat_nor_skip() -> None:
    """All pages together are the whole answer."""
    made = InMemoryIndex()
    for i in range(700):
        made.register(
            Tool(name=f"t{i}", description="equal words " * (i % 7 + 1), input_schema=True), LocalBinding("x")
        )
    seen: list[str] = []
    cursor = None
    while True:
        page = made.search_page("equal", 37, cursor=cursor)
        seen += [summary.id for summary in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == made.search("equal", 1000).ids()
    assert len(set(seen)) == 700


def test_identical_texts_go_by_id() -> None:
    """Ties are no matter of chance."""
    assert index().search("identical text", 2).ids() == ["same1", "same2"]


def test_marks_cannot_be_asked_for() -> None:
    """Terms for filters are not words: a query cannot find them."""
    made = index()
    assert made.search("\0hint\0destructive", 5).ids() == []
    assert made.search("namespace", 5).ids() == []
    assert made.search("destructive", 5).ids() == []


@given(st.lists(st.text(max_size=30), max_size=12), st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_texts(texts: list[str], query: str) -> None:
    """Whatever the texts: no crash, no duplicate, hits have positive scores in order."""
    made = BM25Searcher()
    for i, text in enumerate(texts):
        made.add(Tool(name=f"t{i}", description=text, input_schema=True))
    hits = made.search(query, 100)
    ids = [hit.tool_id for hit in hits]
    assert len(set(ids)) == len(ids)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    if query.strip():
        assert all(hit.score > 0 for hit in hits)
        for tool_id in ids:
            why = made.explain(query, tool_id)
            assert why is not None
            assert why.matches
