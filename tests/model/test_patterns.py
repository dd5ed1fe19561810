"""Patterns that are compiled at their first use."""

from __future__ import annotations

import re

import pytest

from toolexec.model.patterns import lazy_pattern


def test_a_lazy_pattern_is_used_like_a_compiled_one() -> None:
    """Methods, groups and flags are those of the compiled pattern."""
    words = lazy_pattern(r"(?P<first>\w)\w*", re.ASCII)
    assert words.findall("one two") == ["o", "t"]
    assert words.sub("-", "one two") == "- -"
    assert (words.pattern, words.groups, words.groupindex) == (r"(?P<first>\w)\w*", 1, {"first": 1})
    found = words.fullmatch("one")
    assert found is not None
    assert found["first"] == "o"


def test_nothing_is_compiled_before_the_first_use() -> None:
    """A wrong pattern is noticed only then."""
    wrong = lazy_pattern("(")
    with pytest.raises(re.error):
        wrong.search("")
