"""From the values of a program to JSON."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import json
import pathlib
import uuid
from typing import Any, NamedTuple

import pytest

from toolexec.runtime.guest.python.values import NotJSONError, from_text, to_text


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: int
    y: Any = None


class Pair(NamedTuple):
    """A named tuple."""

    a: int
    b: int


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


class Level(enum.IntEnum):
    """An enum of numbers."""

    HIGH = 3


class Text(str):
    """A text of another class."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**80, 2**80),
        (1.5, 1.5),
        ("ü\u2028", "ü\u2028"),
        ([1, [2, {"a": []}]], [1, [2, {"a": []}]]),
        ({"a": 1, 2: 3, None: 4, True: 5}, {"a": 1, "2": 3, "null": 4, "true": 5}),
        ((1, (2,)), [1, [2]]),
        ({3}, [3]),
        (frozenset([3]), [3]),
        ({"a": 1}.keys(), ["a"]),
        (range(3), [0, 1, 2]),
        (collections.deque([1, 2]), [1, 2]),
        (collections.OrderedDict(a=1), {"a": 1}),
        (Point(1, Point(2)), {"x": 1, "y": {"x": 2, "y": None}}),
        (Pair(1, 2), [1, 2]),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ({Colour.RED: 1}, {"red": 1}),
        (Text("x"), "x"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC), "2026-01-02T03:04:00Z"),
        (dt.time(3, 4), "03:04:00"),
        (dt.timedelta(minutes=1), "PT1M"),
        ({dt.date(2026, 1, 2): 1}, {"2026-01-02": 1}),
        (decimal.Decimal("1.10"), "1.10"),
        (fractions.Fraction(1, 3), "1/3"),
        (uuid.UUID(int=0), "00000000-0000-0000-0000-000000000000"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
    ],
)
def test_values_have_the_form_that_one_expects(value: Any, expected: Any) -> None:
    """JSON itself, and what everybody would write for it."""
    assert json.loads(to_text(value)) == expected
    assert json.loads(to_text({"inside": [value]})) == {"inside": [expected]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (object(), "the value at its root is of type object, which is not JSON; use dicts, lists, text and numbers"),
        ({"a": [1, b"\xff"]}, "the value at /a/1 is of type bytes, which is not JSON; use base64, as it is not UTF-8"),
        ({"a": float("nan")}, "the value at /a is nan, which JSON does not have"),
        (float("-inf"), "the value at its root is -inf"),
        ({(1, 2): 3}, "a key of the value at its root is of type tuple; use text"),
        (Point, "the value at its root is of type type"),
    ],
)
def test_what_is_no_json_is_refused(value: Any, text: str) -> None:
    """The error says where it is, and what to do."""
    with pytest.raises(NotJSONError, match=text.replace("/", "/")) as caught:
        to_text(value)
    assert isinstance(caught.value, TypeError)


def test_a_value_that_contains_itself() -> None:
    """Is refused as one that is nested too deep."""
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(NotJSONError, match="more than 120 levels, or contains itself"):
        to_text(ring)


def test_the_error_names_what_it_is_about() -> None:
    """The value, or an argument."""
    with pytest.raises(NotJSONError, match="an argument at its root"):
        to_text(object(), "an argument")


def test_a_value_can_stand_for_another() -> None:
    """As the results of calls do that are still on their way."""

    class Later:
        def __toolexec_value__(self) -> Any:
            return {"there": 1}

    assert json.loads(to_text([Later()])) == [{"there": 1}]


def test_what_goes_wrong_is_the_values_own() -> None:
    """An exception that reading a value raises comes out as it is, with nothing of the first try in its way."""

    class Broken(dict[str, Any]):
        def items(self) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        to_text({"a": Broken(b=object())})
    assert caught.value.__context__ is None


def test_reading() -> None:
    """Exactly one value."""
    assert from_text('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
