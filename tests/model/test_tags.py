"""Tags are made uniform."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.model.tags import MAX_TAG_LENGTH, MAX_TAGS, normalize_tags


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["  Foo ", "foo", "Bar Baz", "bar-baz", "A_B", "A.B"], ("foo", "bar-baz", "a_b", "a.b")),
        (["", "   ", "###", "ok!", "good_tag"], ("ok", "good_tag")),
        (["a \t\n b"], ("a-b",)),
        (["Émile Zola"], ("mile-zola",)),
        (["x" * 100], ("x" * 64,)),
        (["x" * 64 + "1", "x" * 64 + "2"], ("x" * 64,)),
        (["###", "!!!"], ()),
        (["  ", "\n"], ()),
        ([], ()),
    ],
)
def test_normalize_tags(tags: list[str], expected: tuple[str, ...]) -> None:
    """Lower-case words, each once, in order of first appearance."""
    assert normalize_tags(tags) == expected


def test_stops_at_twenty() -> None:
    """More than 20 tags are cut, without reading on."""
    assert normalize_tags(f"t{i}" for i in range(10**12)) == tuple(f"t{i}" for i in range(20))


@given(st.lists(st.text(max_size=80), max_size=30))
def test_any_tags(tags: list[str]) -> None:
    """Whatever comes in: at most 20 different words of legal characters, and doing it again changes nothing."""
    words = normalize_tags(tags)
    assert len(words) <= MAX_TAGS
    assert len(set(words)) == len(words)
    assert all(re.fullmatch(rf"[a-z0-9\-_.]{{1,{MAX_TAG_LENGTH}}}", word) for word in words)
    assert normalize_tags(words) == words
