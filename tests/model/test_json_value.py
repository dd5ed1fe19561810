"""What is JSON, and what other values become."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import json
import math
import pathlib
import types
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pydantic
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from toolexec import Exec
from toolexec.errors import InputValidationError, Violation
from toolexec.model import json_value
from toolexec.model.declare import declare
from toolexec.model.json_value import NotJSONError, own_args, pointer, shorten, to_json, to_json_lossy
from toolexec.model.schema import Schema
from toolexec.model.tree_size import MAX_DEPTH


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


class Table(dict[Any, Any]):
    pass


class Row(list[Any]):
    pass


class Pair(NamedTuple):
    a: Any
    b: Any


class Color(enum.Enum):
    RED = "red"
    MIX = (1, 2)
    NONE = float("nan")


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass
class Point:
    x: Any
    y: Any


class Order(pydantic.BaseModel):
    number: int = pydantic.Field(alias="no")
    due: dt.date
    extra: Any = None


class Broken(Mapping[str, Any]):
    """A mapping whose own code fails."""

    def __getitem__(self, key: str) -> Any:
        raise ZeroDivisionError("oops")

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Any:
        yield "a"


strings = st.text() | st.text().map(Text) | st.text().map(np.str_)
integers = st.integers() | st.integers().map(Whole) | st.just(Level.LOW)
floats = st.floats() | st.floats().map(Real) | st.floats().map(np.float64)
scalars = st.none() | st.booleans() | integers | floats | strings | st.just(Word.YES)
keys = strings | integers | floats | st.booleans() | st.none()


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(children, max_size=4)
    tables = st.dictionaries(keys, children, max_size=4)
    return (
        lists
        | lists.map(tuple)
        | lists.map(Row)
        | st.tuples(children, children).map(lambda two: Pair(*two))
        | tables
        | tables.map(Table)
        | tables.map(collections.OrderedDict)
    )


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, containers, max_leaves=20)


def parts(value: Any) -> Any:
    """Every dict and list in a value."""
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from parts(item)


def is_plain(value: Any) -> bool:
    """Return whether a value is of nothing but the exact types that `json.loads` gives."""
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


def nested(levels: int, *, lists: bool = False) -> Any:
    """A value of so many levels."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if lists else {"a": value}
    return value


def has_same_keys(value: Any) -> bool:
    """Return whether two keys somewhere become the same: `json.dumps` writes both, which loses one."""
    if isinstance(value, dict):
        names = [json.dumps({key: 0}) for key in value]
        return len(set(names)) < len(names) or any(map(has_same_keys, value.values()))
    return isinstance(value, list | tuple) and any(map(has_same_keys, value))


@settings(max_examples=150)
@given(trees(scalars))
@example({1: "a", None: "b", False: "c", 1.5: "d"})
@example([Text("x"), Whole(3), Real(1.5), Pair(1, 2), np.float64(2.5), Level.LOW, Word.YES])
@example({"a": (1, (2, [3]))})
def test_what_json_dumps_writes_is_what_it_becomes(value: Any) -> None:
    """Of everything that `json.dumps` can write, `to_json` makes what `json.loads` reads back, of exact types."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except ValueError:
        with pytest.raises(NotJSONError) as caught:
            to_json(value)
        assert all(violation.path == "" or violation.path[0] == "/" for violation in caught.value.violations)
        return
    assume(not has_same_keys(value))
    plain = to_json(value)
    assert plain == json.loads(text)
    assert is_plain(plain)
    assert json.dumps(plain, ensure_ascii=False) == text
    assert to_json_lossy(value) == plain


others = st.one_of(
    st.dates(),
    st.times(),
    st.datetimes(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(),
    st.fractions(),
    st.complex_numbers(),
    st.binary(max_size=5),
    st.sampled_from(
        [*Color, Level.LOW, Word.YES, object(), int, print, Broken(), Point(1, Pair(2, 3)), pathlib.Path("/x")]
    ),
    st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.floats(width=32).map(np.float32),
    st.booleans().map(np.bool_),
    st.lists(st.integers(0, 9)).map(np.array),
    st.frozensets(st.integers(), max_size=3),
    st.characters(categories=["Cs"]),
    st.just(5000).map(lambda digits: 10**digits),
    st.just(nested(MAX_DEPTH + 1)),
)


@pytest.mark.full
@settings(max_examples=150)
@given(trees(scalars | others))
def test_any_value_at_all(value: Any) -> None:
    """Whatever comes, it becomes JSON that `json.dumps` writes and that shares nothing, or is refused with its place;
    for records it always becomes JSON."""
    lossy = to_json_lossy(value)
    assert is_plain(lossy)
    json.dumps(lossy, allow_nan=False, ensure_ascii=False).encode()
    problems: tuple[Violation, ...] = ()
    plain: Any = None
    try:
        plain = to_json(value)
    except NotJSONError as error:
        problems = error.violations
    assert len(problems) <= 20
    assert all(problem.keyword == "json" and problem.message for problem in problems)
    if problems:
        return
    assert is_plain(plain)
    assert plain == json.loads(json.dumps(plain, allow_nan=False)) == lossy
    assert to_json(plain) == plain
    theirs = {id(part) for part in parts(value)}
    assert not theirs & {id(part) for part in parts(plain)}


@pytest.mark.full
@given(trees(scalars | others))
def test_arguments_share_no_nested_part(value: Any) -> None:
    """A flat dict is given as it is; of all others nothing nested is shared."""
    args = {"a": value, "b": 1}
    try:
        own = own_args(args)
    except NotJSONError:
        return
    assert is_plain(own)
    if own is args:
        assert type(value) in (str, int, float, bool, type(None))
    assert not {id(part) for part in parts(value)} & {id(part) for part in parts(own["a"])}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (10**400, 10**400),
        (-0.0, -0.0),
        (Color.RED, "red"),
        ([Color.MIX], [[1, 2]]),
        ({Color.RED: Level.LOW}, {"red": 1}),
        (Point(1, dt.date(2026, 1, 31)), {"x": 1, "y": "2026-01-31"}),
        (Order(no=1, due=dt.date(2026, 1, 31)), {"no": 1, "due": "2026-01-31", "extra": None}),
        (
            [Order(no=1, due=dt.date(2026, 1, 31), extra=Point(np.int64(1), Color.RED))],
            [{"no": 1, "due": "2026-01-31", "extra": {"x": 1, "y": "red"}}],
        ),
        (dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), "2026-01-31T12:00:00Z"),
        (dt.time(12, 30), "12:30:00"),
        (dt.timedelta(days=1, seconds=3), "P1DT3S"),
        (decimal.Decimal("1.10"), "1.10"),
        ({"price": decimal.Decimal("0.1")}, {"price": "0.1"}),
        (fractions.Fraction(1, 3), "1/3"),
        (uuid.UUID(int=3), "00000000-0000-0000-0000-000000000003"),
        (pathlib.PurePosixPath("/x"), "/x"),
        (ipaddress.ip_address("10.0.0.1"), "10.0.0.1"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.bool_(True), True),
        (np.float32(0.5), 0.5),
        ({np.int64(4): 1}, {"4": 1}),
        ({dt.date(2026, 1, 31): 1}, {"2026-01-31": 1}),
        (frozenset([1]), [1]),
        (collections.deque([1]), [1]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.items(), [["a", 1]]),
        (types.MappingProxyType({"a": (1,)}), {"a": [1]}),
        (b"text", "text"),
    ],
)
def test_what_values_become(value: Any, plain: Any) -> None:
    """Each kind of value has one JSON form, wherever it is."""
    for given_value, expected in ((value, plain), ([value], [plain]), ({"k": (value,)}, {"k": [plain]})):
        made = to_json(given_value)
        assert made == expected
        assert is_plain(made)


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        (float("nan"), "", "nan is not a JSON number"),
        ([1, float("inf")], "/1", "inf is not a JSON number"),
        ({"a": {"b/c~d": -float("inf")}}, "/a/b~1c~0d", "-inf is not a JSON number"),
        ([np.float64("nan")], "/0", "nan is not a JSON number"),
        ([Color.NONE], "/0", "nan is not a JSON number"),
        ("\ud800", "", "lone surrogate"),
        ({"a": ["x\udfff"]}, "/a/0", "lone surrogate"),
        ({"\ud800": 1}, "", "lone surrogate"),
        ({(1, 2): 2}, "", "the key (1, 2) is not text"),
        ({"a": {b"x": 2}}, "/a", "the key b'x' is not text"),
        ({"a": {1: 2, "1": 3}}, "/a", "two keys become '1'"),
        ({float("nan"): 1}, "", "the key nan is not text"),
        ([b"\xff"], "/0", "use base64"),
        ([object()], "/0", "object is not a JSON type"),
        (1j, "", "complex is not a JSON type"),
        ([np.array([1, 1j])], "/0/0", "complex is not a JSON type"),
        (Point(1, [2, print]), "/y/1", "is not a JSON type"),
        ([Order(no=1, due=dt.date(2026, 1, 31), extra=[print])], "/0/extra/0", "is not a JSON type"),
        ((n for n in [1]), "", "make a list of it"),
        ({"a": Broken()}, "/a", "Broken cannot be read: ZeroDivisionError"),
        ([10**5000], "/0", "more than 4300 digits"),
        (int, "", "type is not a JSON type"),
    ],
)
def test_what_has_no_json_form(value: Any, path: str, message: str) -> None:
    """The place and the reason are told."""
    with pytest.raises(NotJSONError) as caught:
        to_json(value)
    violation = caught.value.violations[0]
    assert violation.path == path
    assert violation.keyword == "json"
    assert message in violation.message
    assert message in str(caught.value)


def test_all_places_are_listed() -> None:
    """Every bad place is told, but no more than 20."""
    with pytest.raises(NotJSONError) as caught:
        to_json({"a": 1j, "b": 1, "c": [float("nan")]})
    assert [violation.path for violation in caught.value.violations] == ["/a", "/c/0"]
    with pytest.raises(NotJSONError) as caught:
        to_json([1j] * 1000)
    assert len(caught.value.violations) == 20


@pytest.mark.parametrize("lists", [True, False])
def test_depth_limit(lists: bool) -> None:
    """120 levels are fine, one more is not, and 100,000 do not crash the process."""
    assert to_json(nested(MAX_DEPTH, lists=lists)) == nested(MAX_DEPTH, lists=lists)
    for levels in (MAX_DEPTH + 1, 20_000):
        with pytest.raises(NotJSONError) as caught:
            to_json(nested(levels, lists=lists))
        (violation,) = caught.value.violations
        assert "more than 120 levels" in violation.message
        assert len(violation.path) <= 250
        json.dumps(to_json_lossy(nested(levels, lists=lists)))


def test_levels_of_other_kinds_count_too() -> None:
    """Dataclasses, models and tuples inside of each other end as dicts and lists do."""
    deep: Any = 1
    for _ in range(2000):
        deep = Point(deep, (deep,)) if isinstance(deep, int) else Point(0, (deep,))
    with pytest.raises(NotJSONError, match="more than 120 levels"):
        to_json(deep)


def test_values_that_contain_themselves() -> None:
    """Endless values end, narrow and wide ones."""
    narrow: list[Any] = []
    narrow.append(narrow)
    wide: dict[str, Any] = {}
    wide |= dict.fromkeys("abcdefgh", wide)
    point = Point(1, None)
    point.y = [point] * 3
    for value in (narrow, wide, point):
        with pytest.raises(NotJSONError, match="contains itself"):
            to_json(value)
        json.dumps(to_json_lossy(value))


def test_ten_megabytes() -> None:
    """Large values are no problem."""
    value = {"text": "x" * 10_000_000, "list": list(range(100_000))}
    assert to_json(value) == value


def test_text_for_records() -> None:
    """A value without a JSON form becomes a string that describes it."""
    nan = float("nan")
    value = {"a": nan, "b": [math.inf, -math.inf], (1, 2): "\ud800", "c": Broken(), "d": b"\xff"}
    assert to_json_lossy(value) == {
        "a": "NaN",
        "b": ["Infinity", "-Infinity"],
        "(1, 2)": "?",
        "c": to_json_lossy(value["c"]),
        "d": "b'\\xff'",
    }


def test_small_helpers() -> None:
    """Pointers escape their two special characters; long text ends in dots."""
    assert [pointer(step) for step in ("a/b", "~", 3)] == ["a~1b", "~0", "3"]
    assert shorten("x" * 100) == "x" * 100
    assert shorten("x" * 101) == "x" * 97 + "..."


class Anything(pydantic.BaseModel):
    """A model that holds anything."""

    inside: Any


class Doubles(enum.Enum):
    """A member whose value has 2**40 values in it."""

    MANY = [1]


def doubled(levels: int, inner: Any = 1) -> Any:
    """A value of few objects that has 2**levels values in it."""
    value = inner
    for _ in range(levels):
        value = [value, value]
    return value


Doubles.MANY.value.append(doubled(40))


@pytest.mark.parametrize(
    "make",
    [
        lambda: doubled(30),
        lambda: doubled(100),
        lambda: {"a": {"b": (doubled(40),)}},
        lambda: doubled(30, {1}),
        lambda: doubled(30, object()),
        lambda: doubled(30, {}),
        lambda: [Doubles.MANY],
        lambda: Anything.model_construct(inside=doubled(40)),
        lambda: [Anything.model_construct(inside=doubled(40))],
        lambda: collections.deque([doubled(40)]),
        lambda: collections.OrderedDict(a=doubled(40)),
        lambda: Pair(doubled(40), 1),
        lambda: Point(doubled(40), 1),
        lambda: [[*range(4000)]] * 4000,
    ],
)
def test_what_is_shared_counts_in_each_place(make: Callable[[], Any]) -> None:
    """A small value of Python can be a huge one of JSON: it is refused at once, and before anything walks it."""
    value = make()
    with pytest.raises(NotJSONError, match="more than 10,000,000 values in it") as caught:
        to_json(value)
    assert caught.value.violations[0].expected == "at most 10,000,000 values"
    assert "10,000,000" in to_json_lossy(value)
    assert not Schema.of({}).accepts(value)
    assert Schema.of({}).violations(value) == caught.value.violations


def test_values_of_other_classes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only a walk finds what is in them."""
    monkeypatch.setattr(json_value, "MAX_NODES", 1000)
    value: Any = 1
    for _ in range(30):
        value = collections.UserList([value, value])
    with pytest.raises(NotJSONError, match="values in it"):
        to_json(value)
    assert len(json.dumps(to_json_lossy(value))) < 100_000


def test_large_values_that_are_honest_pass() -> None:
    """A million values are fine, shared or not; so is what is nested as deep as may be."""
    for value in (
        [[*range(1000)] for _ in range(1000)],
        [[*range(1000)]] * 1000,
        [{"id": 1, "at": [1]}] * 50_000,
        doubled(12),
    ):
        assert to_json(value) == value
    deep: Any = 1
    for _ in range(json_value.MAX_DEPTH):
        deep = [deep]
    assert to_json(deep) == deep


async def test_a_shared_value_is_refused_at_the_door_and_as_a_result() -> None:
    """As an argument, and as what a handler gives, with a type and without."""
    async with Exec() as ex:

        async def take(value: Any) -> int:
            """Take anything."""
            return 1

        async def give() -> Any:
            """Give anything."""
            return doubled(30)

        async def typed() -> list[Any]:
            """Give a list."""
            return doubled(30)

        for function in (take, give, typed):
            ex.add(declare(function, f"kit:{function.__name__}"))
        with pytest.raises(InputValidationError, match="more than 10,000,000 values"):
            await ex.run_tool("kit:take", {"value": doubled(30)})
        for name in ("kit:give", "kit:typed"):
            result = await ex.run_tool(name)
            assert "more than 10,000,000 values" in str(result.error)
