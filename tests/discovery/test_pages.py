"""Cursors fit only the question that they came from."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.discovery.pages import CursorSeal, Page
from toolexec.errors import InvalidCursorError

SEAL = CursorSeal()
CURSOR = SEAL.make(20, 7, ["search", "git", None])


def test_round_trip() -> None:
    """The offset comes back for the same question and version."""
    assert SEAL.read(CURSOR, 7, ["search", "git", None]) == 20
    assert SEAL.read(SEAL.make(10**30, 1, "q"), 1, "q") == 10**30


@pytest.mark.parametrize(
    ("version", "question", "message"),
    [
        (8, ["search", "git", None], "has changed since"),
        (6, ["search", "git", None], "has changed since"),
        (7, ["search", "gi", None], "belongs to another query"),
        (7, ["search", "git", {"namespace": "x"}], "belongs to another query"),
        (7, ["namespaces"], "belongs to another query"),
    ],
)
def test_other_questions(version: int, question: Any, message: str) -> None:
    """Another version, query, filter or method is refused, and the message says which."""
    with pytest.raises(InvalidCursorError, match=message):
        SEAL.read(CURSOR, version, question)


def test_other_index() -> None:
    """Every index has a key of its own."""
    with pytest.raises(InvalidCursorError):
        CursorSeal().read(CURSOR, 7, ["search", "git", None])


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "????", "é", "\ud800", "bm90IGpzb24=", CURSOR[:-1], CURSOR + "A", " " + CURSOR, CURSOR.lower()],
    ids=[*map(str, range(10))],
)
def test_damaged_cursors(cursor: str) -> None:
    """Whatever is not a cursor is refused, never a crash."""
    with pytest.raises(InvalidCursorError):
        SEAL.read(cursor, 7, ["search", "git", None])


def test_each_bit_counts() -> None:
    """No byte of a cursor can be changed."""
    raw = base64.urlsafe_b64decode(CURSOR)
    for position in range(len(raw)):
        changed = bytearray(raw)
        changed[position] ^= 1
        with pytest.raises(InvalidCursorError):
            SEAL.read(base64.urlsafe_b64encode(changed).decode(), 7, ["search", "git", None])


@given(st.text(max_size=80))
def test_any_text_is_refused(text: str) -> None:
    """Text that is not from here is an error of its own kind."""
    with pytest.raises(InvalidCursorError):
        SEAL.read(text, 7, ["search", "git", None])


def test_page() -> None:
    """The last page has no cursor."""
    assert Page((1, 2)).next_cursor is None
