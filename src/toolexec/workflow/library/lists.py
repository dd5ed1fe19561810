"""Functions of lists, and of what has a length or an order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

from toolexec.model.json_value import JSONValue
from toolexec.workflow.library.function import Context, Library
from toolexec.workflow.library.numbers import all_comparable
from toolexec.workflow.library.objects import at_path
from toolexec.workflow.values import (
    OperationError,
    Value,
    add,
    bounded,
    described,
    equal,
    is_number,
    listed,
    part,
    text_of,
)

LISTS: Final = Library("lists")
_SORTED_AT_ONCE: Final = 10_000


@LISTS.function("len(value: string | list | object) -> integer", "len([1, 2])", 2)
def _len(value: Value) -> int:
    """Return how many characters a string has, items a list, or members an object."""
    return len(value)


@LISTS.function("range(start: integer, stop?: integer, step?: integer) -> list", "range(1, 4)", [1, 2, 3])
def _range(start: int, stop: int | None = None, step: int | None = None) -> list[int]:
    """Return the integers from *start* up to *stop*, which is left out; `range(n)` those from 0 on."""
    return [*range_of(start, stop, step)]


def range_of(start: int, stop: int | None = None, step: int | None = None) -> range:
    """Return the integers that `range` gives, without a list of them; raises OperationError."""
    if step == 0:
        raise OperationError("range takes a step that is not 0", "value")
    values = range(start, stop, step or 1) if stop is not None else range(start)
    try:
        bounded(len(values))
    except OverflowError:
        bounded(1 << 62)
    return values


@LISTS.function("first(values: list | string) -> any", "first([1, 2])", 1)
def _first(values: Value) -> Value:
    """Return the first item of a list, or character of a string; null where there is none."""
    return values[0] if values else None


@LISTS.function("last(values: list | string) -> any", "last([1, 2])", 2)
def _last(values: Value) -> Value:
    """Return the last item of a list, or character of a string; null where there is none."""
    return values[-1] if values else None


@LISTS.function("slice(values: list | string, start: integer, stop?: integer) -> any", "slice([1, 2, 3], 1)", [2, 3])
def _slice(values: Value, start: int, stop: int | None = None) -> Value:
    """Return the part of a list or a string from *start* up to *stop*; the same as `values[start:stop]`."""
    return part(values, start, stop)


@LISTS.function("take(values: list | string, count: integer) -> any", "take([1, 2, 3], 2)", [1, 2])
def _take(values: Value, count: int) -> Value:
    """Return the first so many items of a list, or characters of a string."""
    return values[: max(count, 0)]


@LISTS.function("drop(values: list | string, count: integer) -> any", "drop([1, 2, 3], 2)", [3])
def _drop(values: Value, count: int) -> Value:
    """Return a list or a string without its first so many items or characters."""
    return values[max(count, 0) :]


@LISTS.function("sort(values: list, key?: string) -> list", "sort([3, 1, 2])", [1, 2, 3])
def _sort(values: list[Value], key: str | None = None) -> list[Value]:
    """Return the list in rising order: numbers, strings, or objects by what is at the path *key* in each."""
    keys = all_comparable("sort", values if key is None else _at_keys("sort", values, key))
    places = _sorted_places(keys)
    return [values[place] for place in places]


def _sorted_places(keys: list[Value]) -> list[int]:
    """Return the places of the keys in rising order; in pieces, as one long sort would hold the interpreter."""
    get: Callable[[int], JSONValue] = keys.__getitem__
    if len(keys) <= _SORTED_AT_ONCE:
        return sorted(range(len(keys)), key=get)
    starts = range(0, len(keys), _SORTED_AT_ONCE)
    pieces = (sorted(range(at, min(at + _SORTED_AT_ONCE, len(keys))), key=get) for at in starts)
    return [*heapq.merge(*pieces, key=get)]


def _at_keys(name: str, values: list[Value], key: str) -> list[Value]:
    found: list[Value] = []
    for place, value in enumerate(values):
        there, item = at_path(value, key)
        if not there:
            raise OperationError(f"{name}: there is no {key} in item {place}", "missing")
        found.append(item)
    return found


@LISTS.function("reverse(values: list | string) -> any", "reverse([1, 2])", [2, 1])
def _reverse(values: Value) -> Value:
    """Return a list or a string from its end to its beginning."""
    return values[::-1]


@LISTS.function("unique(values: list, key?: string) -> list", "unique([1, 2, 1])", [1, 2], deep=True)
def _unique(context: Context, values: list[Value], key: str | None = None) -> list[Value]:
    """Return the list without repetitions: of equal items, or those with the same at the path *key*, the first."""
    seen: set[JSONValue] = set()
    found: list[Value] = []
    for value in values:
        mark = _mark(value if key is None else at_path(value, key)[1], context)
        if mark not in seen:
            seen.add(mark)
            found.append(value)
    return found


def _mark(value: Value, context: Context) -> Any:
    """Return something that is the same for equal values, and can be put into a set."""
    context.spend()
    kind = type(value)
    if kind is list:
        return "list", tuple(_mark(item, context) for item in value)
    if kind is dict:
        return "object", frozenset((name, _mark(item, context)) for name, item in value.items())
    return kind is bool, value


@LISTS.function("flatten(values: list) -> list", "flatten([[1], [2, 3], 4])", [1, 2, 3, 4])
def _flatten(values: list[Value]) -> list[Value]:
    """Return the items of the lists in a list, one level deep, and what is not a list as it is."""
    found: list[Value] = []
    for value in values:
        if type(value) is list:
            bounded(len(found) + len(value))
            found += value
        else:
            found.append(value)
    bounded(len(found))
    return found


@LISTS.function("zip(values: list, ...more: list) -> list", 'zip([1, 2], ["a", "b"])', [[1, "a"], [2, "b"]])
def _zip(values: list[Value], *more: list[Value]) -> list[Value]:
    """Return lists of the first items of all, the second ones, and so on, up to the end of the shortest."""
    return [[*items] for items in zip(values, *more, strict=False)]


@LISTS.function("enumerate(values: list) -> list", 'enumerate(["a", "b"])', [[0, "a"], [1, "b"]])
def _enumerate(values: list[Value]) -> list[Value]:
    """Return each item with its index before it."""
    return [[place, value] for place, value in enumerate(values)]


@LISTS.function("count(values: list | string, item: any) -> integer", "count([1, 2, 1], 1)", 2, deep=True)
def _count(context: Context, values: Value, item: Value) -> int:
    """Return how often the item is in a list, or a text in a string."""
    if type(values) is list:
        return sum(equal(value, item, context.budget) for value in values)
    if type(item) is not str or not item:
        raise OperationError(f"count in a string takes a string that is not empty, not {described(item)}")
    return values.count(item)


@LISTS.function(
    "group_by(values: list, key: string) -> object",
    'group_by([{k: "a", n: 1}, {k: "b", n: 2}, {k: "a", n: 3}], "k").a',
    [{"k": "a", "n": 1}, {"k": "a", "n": 3}],
)
def _group_by(values: list[Value], key: str) -> dict[str, Value]:
    """Return an object of lists: the items by what is at the path *key* in each, as text."""
    groups: dict[str, list[Value]] = {}
    for item, value in zip(_at_keys("group_by", values, key), values, strict=True):
        if type(item) is list or type(item) is dict:
            raise OperationError(f"group_by takes strings, numbers, booleans or null at {key}, not {described(item)}")
        groups.setdefault(text_of(item), []).append(value)
    return groups


@LISTS.function("sum(values: list, key?: string) -> number", "sum([1, 2, 3.5])", 6.5)
def _sum(values: list[Value], key: str | None = None) -> Value:
    """Return the sum of the numbers of a list, or of those at the path *key* in each item."""
    total: Value = 0
    for value in values if key is None else _at_keys("sum", values, key):
        if not is_number(value):
            raise OperationError(f"sum takes numbers, not {described(value)}")
        total = add(total, value)
    return total


@LISTS.function("pluck(values: list, key: string) -> list", 'pluck([{id: 1}, {id: 2}], "id")', [1, 2])
def _pluck(values: list[Value], key: str) -> list[Value]:
    """Return what is at the path *key* in each item; null where there is nothing."""
    return [at_path(value, key)[1] for value in values]


@LISTS.function("index_of(values: list | string, item: any) -> integer", 'index_of(["a", "b"], "b")', 1, deep=True)
def _index_of(context: Context, values: Value, item: Value) -> int:
    """Return the index of the first such item of a list, or of a text in a string; -1 where it is not in there."""
    if type(values) is list:
        return next((place for place, value in enumerate(values) if equal(value, item, context.budget)), -1)
    if type(item) is not str:
        raise OperationError(f"index_of in a string takes a string, not {described(item)}")
    return values.find(item)


@LISTS.function("append(values: list, ...items: any) -> list", "append([1], 2)", [1, 2])
def _append(values: list[Value], *items: Value) -> list[Value]:
    """Return the list with the items after its own."""
    return listed([*values, *items])


@LISTS.function("concat(values: list, ...more: list) -> list", "concat([1], [2, 3])", [1, 2, 3])
def _concat(values: list[Value], *more: list[Value]) -> list[Value]:
    """Return one list of the items of all."""
    bounded(len(values) + sum(map(len, more)))
    return [item for items in (values, *more) for item in items]


@LISTS.function("chunk(values: list, size: integer) -> list", "chunk([1, 2, 3], 2)", [[1, 2], [3]])
def _chunk(values: list[Value], size: int) -> list[Value]:
    """Return lists of so many items each; the last one may be shorter."""
    if size < 1:
        raise OperationError(f"chunk takes a size of 1 or more, not {size}", "value")
    return [values[at : at + size] for at in range(0, len(values), size)]
