"""Strict JSON values."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.model.json_value import MAX_DEPTH, explain_not_json, is_json, pointer, shorten

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


def nested(levels: int, *, lists: bool = False) -> Any:
    """A value of so many levels."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if lists else {"a": value}
    return value


@given(json_values)
def test_json_is_json(value: Any) -> None:
    """Dicts with text keys, lists, text, numbers, booleans and null, in any arrangement."""
    assert is_json(value)
    assert explain_not_json(value) == []


@pytest.mark.parametrize("value", [10**400, -(10**400), True, (1, 2), {}, [], "", "é🚀", 1e308, -0.0, {"": None}])
def test_borderline_json(value: Any) -> None:
    """Integers of any size and tuples are JSON."""
    assert is_json(value)
    assert explain_not_json(value) == []


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        (float("nan"), "", "nan is not a JSON number"),
        ([1, float("inf")], "/1", "inf is not a JSON number"),
        ({"a": {"b/c~d": -float("inf")}}, "/a/b~1c~0d", "-inf is not a JSON number"),
        ("\ud800", "", "lone surrogate"),
        ({"a": ["x\udfff"]}, "/a/0", "lone surrogate"),
        ({"\ud800": 1}, "", "lone surrogate"),
        ({1: 2}, "", "the key 1 is not text"),
        ({"a": {None: 2}}, "/a", "the key None is not text"),
        (b"x", "", "bytes is not a JSON type"),
        ({"a": {1, 2}}, "/a", "set is not a JSON type"),
        ([object()], "/0", "object is not a JSON type"),
        (dt.date(2026, 1, 1), "", "date is not a JSON type"),
        (1j, "", "complex is not a JSON type"),
    ],
)
def test_what_is_not_json(value: Any, path: str, message: str) -> None:
    """The place and the reason are told, and both functions agree."""
    assert not is_json(value)
    (violation,) = explain_not_json(value)
    assert violation.path == path
    assert violation.keyword == "json"
    assert message in violation.message


def test_all_places_are_listed() -> None:
    """Every bad place is told, but no more than 20."""
    assert [v.path for v in explain_not_json({"a": b"", "b": 1, "c": [float("nan")]})] == ["/a", "/c/0"]
    assert len(explain_not_json([b""] * 1000)) == 20


@pytest.mark.parametrize("lists", [True, False])
def test_depth_limit(lists: bool) -> None:
    """120 levels are fine, one more is not, and 100,000 do not crash the process."""
    assert is_json(nested(MAX_DEPTH, lists=lists))
    assert explain_not_json(nested(MAX_DEPTH, lists=lists)) == []
    for levels in (MAX_DEPTH + 1, 100_000):
        deep = nested(levels, lists=lists)
        assert not is_json(deep)
        (violation,) = explain_not_json(deep)
        assert "more than 120 levels" in violation.message
        assert len(violation.path) < 200


def test_values_that_contain_themselves() -> None:
    """Endless values end, narrow and wide ones."""
    narrow: list[Any] = []
    narrow.append(narrow)
    wide: dict[str, Any] = {}
    wide |= dict.fromkeys("abcdefgh", wide)
    for value in (narrow, wide):
        assert not is_json(value)
        assert "contains itself" in explain_not_json(value)[0].message


def test_ten_megabytes() -> None:
    """Large values are no problem."""
    assert is_json({"text": "x" * 10_000_000, "list": list(range(100_000))})


def test_small_helpers() -> None:
    """Pointers escape their two special characters; long text ends in dots."""
    assert [pointer(step) for step in ("a/b", "~", 3)] == ["a~1b", "~0", "3"]
    assert shorten("x" * 100) == "x" * 100
    assert shorten("x" * 101) == "x" * 97 + "..."
