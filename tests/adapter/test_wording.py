"""Rules in plain words."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.adapter.losses import Losses
from toolexec.adapter.wording import described, phrase


@pytest.mark.parametrize(
    ("keyword", "value", "expected"),
    [
        ("minimum", 1, "minimum 1"),
        ("exclusiveMaximum", 2.5, "less than 2.5"),
        ("multipleOf", 5, "a multiple of 5"),
        ("minProperties", 1, "at least 1 property"),
        ("maxProperties", 2, "at most 2 properties"),
        ("minLength", 1, "at least 1 character"),
        ("enum", ["a", None], 'one of "a", null'),
        ("examples", [1], "for example 1"),
        ("title", "T", "T"),
        ("contains", {"type": "integer"}, 'contains {"type": "integer"}'),
        ("additionalProperties", False, ""),
        ("deprecated", False, ""),
        ("$comment", "c", ""),
        ("pattern", "x" * 300, ""),
        ("enum", 5, ""),
        ("default", object(), ""),
    ],
)
def test_phrases(keyword: str, value: Any, expected: str) -> None:
    """Short, and nothing where there is nothing to say, or no sense."""
    assert phrase(keyword, value) == expected


def test_descriptions() -> None:
    """The words come last, each once, and not without end."""
    assert described("Text.", ["a", "b", "a"]) == "Text. (a, b)"
    assert described(None, ["a"]) == "(a)"
    assert described("Text.", []) == "Text."
    assert len(described("", ["x" * 190, "y" * 190, "z" * 190, "w" * 190])) < 620


def test_warnings_end_somewhere() -> None:
    """After 500 only their number is told; the same one twice is told once."""
    losses = Losses("a", "b", "t")
    for number in range(600):
        losses.add("pattern", f"/properties/{number}")
        losses.add("pattern", f"/properties/{number}")
    warnings = losses.warnings()
    assert len(warnings) == 501
    assert "more warnings are left out" in str(warnings[-1])
