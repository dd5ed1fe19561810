"""References: an argument that stands for a part of an earlier step's value."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import InvalidChainError
from toolexec.run.large import Budget
from toolexec.run.references import check_references, resolve_references

FETCHED = {"items": [{"id": 7, "na-me": "x"}, {"id": 9}], "total": 2}
VALUES = [FETCHED, 5, "text", None]
NAMES = {"fetch": 0, "five": 1, "get-all": 0}


def resolve(args: Any, names: Any = NAMES) -> Any:
    """As the step after the four values would have it."""
    check_references(args, len(VALUES), names)
    return resolve_references(args, len(VALUES), names, VALUES, Budget())


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("steps.0", FETCHED),
        ("steps[0]", FETCHED),
        ("steps.0.total", 2),
        ("steps[0].total", 2),
        ("steps.0.items[0].id", 7),
        ("steps.0.items[-1].id", 9),
        ("steps.0.items[*].id", [7, 9]),
        ('steps.0.items[0]."na-me"', "x"),
        ("steps.0.length(items)", 2),
        ("steps.0.items[?id > `8`].id | [0]", 9),
        ("steps.0.items[].id", [7, 9]),
        ("steps.0.{n: total}", {"n": 2}),
        ("steps.1", 5),
        ("steps.3", None),
        ("fetch", FETCHED),
        ("fetch.items[1].id", 9),
        ("fetch.total", 2),
        ("steps.fetch.total", 2),
        ("steps.five", 5),
        ("get-all.total", 2),
        ("steps.3.a", None),
        ("steps.3.a[0].b", None),
        ("steps.0.nothing || `null`", None),
        ("steps.0.items[?id > `99`].id | [0] || `null`", None),
    ],
)
def test_where_a_reference_leads(reference: str, value: Any) -> None:
    """Numbers, names and paths; a path into a null gives null."""
    assert resolve({"a": {"$ref": reference}}) == {"a": value}


def test_anywhere_in_the_arguments() -> None:
    """References stand in lists and dicts at any depth, beside ordinary data."""
    args = {"a": [1, {"b": {"$ref": "steps.1"}}], "c": ({"$ref": "five"}, "d"), "e": None}
    assert resolve(args) == {"a": [1, {"b": 5}], "c": [5, "d"], "e": None}


def test_the_arguments_as_a_whole() -> None:
    """All arguments may be one reference."""
    assert resolve({"$ref": "steps.0"}) == FETCHED


def test_the_given_arguments_stay() -> None:
    """Resolving works on a copy."""
    args = {"a": [{"$ref": "steps.1"}]}
    resolve(args)
    assert args == {"a": [{"$ref": "steps.1"}]}


@pytest.mark.parametrize("value", [{"$ref": "steps.9"}, 5, None, [{"$ref": "x"}], {"$literal": 1}])
def test_a_literal_is_taken_as_it_is(value: Any) -> None:
    """Nothing inside a `$literal` is looked at."""
    assert resolve({"a": {"$literal": value}}) == {"a": value}


@pytest.mark.parametrize(
    "data",
    [
        {"$ref": "#/$defs/a"},
        {"$ref": "#"},
        {"$ref": "https://example.com/schema"},
        {"$ref": 5},
        {"$ref": "steps.0", "more": 1},
        {"$literal": 1, "more": 2},
        {"ref": "steps.0"},
    ],
)
def test_data_that_only_looks_like_a_reference(data: dict[str, Any]) -> None:
    """References of JSON Schema, and dicts with more keys, pass unchanged."""
    assert resolve({"a": data}) == {"a": data}


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("", "refers to no step"),
        (".", "refers to no step"),
        ("steps", "refers to no step"),
        ("steps.", "refers to no step"),
        ("steps.0x", "refers to no step"),
        ("steps.00x", "refers to no step"),
        ("steps.-1", "refers to no step"),
        ("steps[x]", "refers to no step"),
        ("steps.absent", "it can refer to fetch, five, get-all, steps.0"),
        ("absent.total", "refers to no step"),
        ("fetch-all.total", "refers to no step"),
        ("steps." + "9" * 5000, "refers to no step"),
        ("steps.4", "has not run by then"),
        ("steps.999999999", "has not run by then"),
        ("steps.0.items[", "not a valid path"),
        ("steps.0..total", "not a valid path"),
        ("steps.0.", "not a valid path"),
        ("steps.0-1", "refers to no step"),
        ("fetch items", "refers to no step"),
        ("steps.0." + "(" * 20_000, "not a valid path"),
    ],
)
def test_references_that_cannot_work(reference: str, text: str) -> None:
    """Malformed ones, and those to unknown, later or the same step, are refused with a short message."""
    with pytest.raises(InvalidChainError, match="step 4") as caught:
        check_references({"a": [{"$ref": reference}]}, 4, NAMES)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_the_first_step_has_nothing_to_refer_to() -> None:
    """The message says so."""
    with pytest.raises(InvalidChainError, match="none: it is the first step"):
        check_references({"a": {"$ref": "before"}}, 0, {})


@pytest.mark.parametrize("reference", ["steps.1.length(@)", "steps.0.nope(@)", "steps.0.items[::0]", "five.sum(@)"])
def test_paths_that_fail_on_the_value(reference: str) -> None:
    """A function that does not exist or does not take the value is known only when there is a value."""
    args = {"a": {"$ref": reference}}
    check_references(args, 4, NAMES)
    with pytest.raises(InvalidChainError, match="cannot be looked up"):
        resolve_references(args, 4, NAMES, VALUES, Budget())


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("steps.0.nothing", "there is no 'nothing'; it has"),
        ("steps.0.totl", "did you mean total?"),
        ("fetch.items[0].Id", "did you mean id?"),
        ("steps.0.item[*].id", "did you mean items?"),
        ("steps.0.item[0].id", "did you mean items?"),
        ("steps.0.item[] | [0]", "did you mean items?"),
        ("steps.0.items[99]", "there is no item 99; the list has 2 items, 0 to 1"),
        ("steps.0.items.id", "a list has no key 'id'; did you mean [0] or [*] before it?"),
        ("five.a", "a number has no key 'a'"),
        ("five[0]", "a number has no item 0"),
    ],
)
def test_paths_that_lead_nowhere(reference: str, text: str) -> None:
    """The error says what there is, and how to allow that it is absent."""
    with pytest.raises(InvalidChainError, match=r"step 4: .* cannot be looked up") as caught:
        resolve({"a": {"$ref": reference}})
    assert text in str(caught.value)
    assert "|| `null`" in str(caught.value)


def test_deep_arguments() -> None:
    """A hundred levels are looked through; more, or arguments that contain themselves, are refused."""
    fine: Any = {"$ref": "steps.1"}
    for _ in range(99):
        fine = [fine]
    check_references({"a": fine}, 4, NAMES)
    endless: dict[str, Any] = {}
    endless["a"] = [endless]
    with pytest.raises(InvalidChainError, match="100 levels"):
        check_references(endless, 4, NAMES)


def test_whether_there_is_anything_to_resolve() -> None:
    """The check says so, so that plain arguments need no copy."""
    assert check_references({"a": [{"b": {"$ref": "steps.0"}}]}, 1, {}) is True
    assert check_references({"a": {"$literal": 1}}, 1, {}) is True
    assert check_references({"a": [{"b": 1}], "c": "$ref"}, 1, {}) is False
