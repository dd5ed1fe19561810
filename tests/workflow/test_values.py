"""The operators of the workflow language: what they take, what they give, and how they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.run.large import Budget, BudgetExceededError
from toolexec.workflow import values
from toolexec.workflow.values import OPERATORS, OperationError, TooLargeError

BIG = 10**1233


def bomb(levels: int) -> list[Any]:
    """A list with two places for the same list, and so on: few parts, and more places than one can look at."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("left", "operator", "right", "result"),
    [
        (1, "+", 2, 3),
        (1, "+", 0.5, 1.5),
        ("a", "+", "b", "ab"),
        ([1], "+", [2], [1, 2]),
        (5, "-", 2, 3),
        (2**60, "*", 2**60, 2**120),
        (6, "/", 3, 2),
        (7, "/", 2, 3.5),
        (7, "%", 3, 1),
        (-7, "%", 3, 2),
        (1, "<", 1.5, True),
        ("a", "<", "b", True),
        (2, ">=", 2, True),
    ],
)
def test_operators_of_two_values(left: object, operator: str, right: object, result: object) -> None:
    """Each operator gives one value of a definite type."""
    found = OPERATORS[operator](left, right)
    assert (found, type(found)) == (result, type(result))


@pytest.mark.parametrize(
    ("left", "operator", "right", "message"),
    [
        (1, "+", "a", r"string\(x\)"),
        ("a", "+", None, r"\$\{a\}"),
        ([1], "+", 2, "append"),
        ({}, "+", {}, "merge"),
        (True, "+", 1, "numbers, strings or lists, not true and the integer 1"),
        (1, "-", "1", "two numbers"),
        (1, "/", 0, "division by zero"),
        (1, "%", 0.0, "division by zero"),
        (1e308, "*", 10, "too large for a float"),
        (BIG, "/", 3, "too large for a float"),
        (BIG, "+", 0.5, "too large for a float"),
        (1, "<", "2", "two numbers or two strings"),
        (None, "<", 1, "not null and the integer 1"),
        ([1], "<", [2], "not a list and a list"),
    ],
)
def test_operators_say_what_they_take(left: object, operator: str, right: object, message: str) -> None:
    """Values that do not fit are refused, with their types and what to write instead."""
    with pytest.raises(OperationError, match=message):
        OPERATORS[operator](left, right)


@pytest.mark.parametrize(
    ("left", "operator", "right"),
    [(BIG, "*", 10), ("a" * (5 << 20), "+", "b" * (5 << 20)), ([0] * 600_000, "+", [0] * 600_000)],
    ids=["integer", "string", "list"],
)
def test_what_is_made_is_bounded(left: object, operator: str, right: object) -> None:
    """An operator makes no value above the bounds."""
    with pytest.raises(TooLargeError):
        OPERATORS[operator](left, right)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        ([True], [1], False),
        ({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]}, True),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 2], False),
        ([], {}, False),
        (None, False, False),
        ("1", 1, False),
    ],
)
def test_values_are_equal_by_what_is_in_them(left: object, right: object, same: bool) -> None:
    """Equality is deep; numbers count by value, and true is not 1."""
    assert values.equal(left, right) is same
    assert values.equal(right, left) is same


def test_what_is_shared_is_compared_once() -> None:
    """Two lists of 2 to the power of 60 places are compared at once."""
    assert values.equal(bomb(60), bomb(60))


def test_text_of_a_bomb_stops_at_the_bound() -> None:
    """Few parts with many places do not become an endless text."""
    with pytest.raises((TooLargeError, BudgetExceededError)):
        values.json_text(bomb(60), Budget(steps=1_000_000))


def test_nesting_is_bounded() -> None:
    """A list in a list in a list ends at 100."""
    value: Any = []
    with pytest.raises(TooLargeError, match="100 deep"):
        for _ in range(200):
            value = values.listed([1, value, 2])


def test_members() -> None:
    """A member is found, or the error names the nearest one; `?.` gives null."""
    value = {"title": "a", "number": 1}
    assert values.member(value, "title") == "a"
    assert values.member(value, "titel", safe=True) is None
    assert values.member(None, "title", safe=True) is None
    with pytest.raises(OperationError, match=r"no member titel; did you mean title\?"):
        values.member(value, "titel")
    with pytest.raises(OperationError, match=r"write \?\.title"):
        values.member(None, "title")
    with pytest.raises(OperationError, match=r"write len\(x\)"):
        values.member([1], "length")
    with pytest.raises(OperationError, match="append"):
        values.member([1], "push")


def test_indexes() -> None:
    """Lists and strings take integers, from both ends; objects take strings."""
    assert values.index([1, 2, 3], -1) == 3
    assert values.index("abc", 1) == "b"
    assert values.index([1, 2], 1.0) == 2
    assert values.index({"a b": 1}, "a b") == 1
    assert values.index([1], 5, safe=True) is None
    with pytest.raises(OperationError, match="no index 5: the list has 1 entries"):
        values.index([1], 5)
    with pytest.raises(OperationError, match='not the string "a"'):
        values.index([1], "a")
    with pytest.raises(OperationError, match="not true"):
        values.index([1], True)


def test_parts_from_to() -> None:
    """`[a:b]` takes what there is."""
    assert values.part([1, 2, 3], 1, None) == [2, 3]
    assert values.part("abc", None, -1) == "ab"
    assert values.part([1], 5, 9) == []
    with pytest.raises(OperationError, match="only a list or a string"):
        values.part({}, 1, 2)


def test_replacing_a_part_leaves_the_value_as_it_is() -> None:
    """An assignment to a part makes another value, and shares what is the same."""
    value = {"a": [1, {"b": 2}], "c": [0]}
    changed = values.replaced(value, ["a", 1, "b"], 3)
    assert changed == {"a": [1, {"b": 3}], "c": [0]}
    assert value == {"a": [1, {"b": 2}], "c": [0]}
    assert changed["c"] is value["c"]
    assert values.replaced({}, ["new"], 1) == {"new": 1}
    with pytest.raises(OperationError, match="no index 1"):
        values.replaced([1], [1], 2)


@pytest.mark.parametrize(
    ("item", "holder", "found"),
    [(1, [1.0], True), (True, [1], False), ("a", {"a": 1}, True), ("b", "abc", True), ([1], [[1]], True)],
)
def test_in(item: object, holder: object, found: bool) -> None:
    """`in` looks into lists, for keys of objects and for strings in strings."""
    assert values.is_in(item, holder) is found


def test_in_says_what_it_takes() -> None:
    """A number has nothing in it, and a string holds strings only."""
    with pytest.raises(OperationError, match="takes a list, an object or a string"):
        values.is_in(1, 12)
    with pytest.raises(OperationError, match="takes a string on the left"):
        values.is_in(1, "12")
