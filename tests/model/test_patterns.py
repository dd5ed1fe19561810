"""Patterns that are compiled at their first use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import toolexec
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


def test_no_group_is_repeated_possessively() -> None:
    """Refuse what Python before 3.11.5 matches wrongly (python/cpython#106052): a possessive group that goes back inside."""
    package = Path(toolexec.__file__).parent
    possessive = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+|\(\?>")
    found = [
        f"{path.relative_to(package)}:{number}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if possessive.search(line)
    ]
    assert not found, found
