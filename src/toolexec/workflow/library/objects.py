"""Functions of objects."""

from __future__ import annotations

from typing import Final

from toolexec.workflow.library.function import Library
from toolexec.workflow.values import OperationError, Value, described, listed

OBJECTS: Final = Library("objects")


def at_path(value: Value, path: str) -> tuple[bool, Value]:
    """Return whether there is something at a path such as `items.0.name`, and what; a key with dots in it comes
    first."""
    if type(value) is dict and path in value:
        return True, value[path]
    for step in path.split("."):
        if type(value) is dict and step in value:
            value = value[step]
        elif type(value) is list and step.isascii() and step.isdigit() and len(step) < 9 and int(step) < len(value):
            value = value[int(step)]
        else:
            return False, None
    return True, value


@OBJECTS.function("keys(value: object) -> list", "keys({a: 1, b: 2})", ["a", "b"])
def _keys(value: dict[str, Value]) -> list[str]:
    """Return the keys in their order."""
    return [*value]


@OBJECTS.function("values(value: object) -> list", "values({a: 1, b: 2})", [1, 2])
def _values(value: dict[str, Value]) -> list[Value]:
    """Return the values in the order of their keys."""
    return [*value.values()]


@OBJECTS.function("entries(value: object) -> list", "entries({a: 1})", [["a", 1]])
def _entries(value: dict[str, Value]) -> list[Value]:
    """Return a list of key and value for each member."""
    return [[key, item] for key, item in value.items()]


@OBJECTS.function("from_entries(values: list) -> object", 'from_entries([["a", 1]])', {"a": 1})
def _from_entries(values: list[Value]) -> dict[str, Value]:
    """Return an object made of lists of key and value; of several with one key the last counts."""
    made: dict[str, Value] = {}
    for value in values:
        if type(value) is not list or len(value) != 2 or type(value[0]) is not str:
            raise OperationError(f"from_entries takes lists of a string and a value, not {described(value)}")
        made[value[0]] = value[1]
    return made


@OBJECTS.function("has(value: any, path: string) -> boolean", 'has({a: {b: null}}, "a.b")', True)
def _has(value: Value, path: str) -> bool:
    """Return whether there is something at a path of keys and indexes, be it null."""
    return at_path(value, path)[0]


@OBJECTS.function("get(value: any, path: string, default?: any) -> any", 'get({a: [5]}, "a.0")', 5)
def _get(value: Value, path: str, default: Value = None) -> Value:
    """Return what is at a path of keys and indexes, else the default, else null."""
    there, found = at_path(value, path)
    return found if there else default


@OBJECTS.function("merge(value: object, ...more: object) -> object", "merge({a: 1}, {b: 2})", {"a": 1, "b": 2})
def _merge(value: dict[str, Value], *more: dict[str, Value]) -> dict[str, Value]:
    """Return one object with the members of all; of several with one key the last counts."""
    made = dict(value)
    for other in more:
        made |= other
    return listed(made)


@OBJECTS.function("pick(value: object, keys: list) -> object", 'pick({a: 1, b: 2}, ["a"])', {"a": 1})
def _pick(value: dict[str, Value], keys: list[Value]) -> dict[str, Value]:
    """Return the object with those keys only; what is not there is left out."""
    wanted = _names("pick", keys)
    return {key: item for key, item in value.items() if key in wanted}


@OBJECTS.function("omit(value: object, keys: list) -> object", 'omit({a: 1, b: 2}, ["a"])', {"b": 2})
def _omit(value: dict[str, Value], keys: list[Value]) -> dict[str, Value]:
    """Return the object without those keys."""
    unwanted = _names("omit", keys)
    return {key: item for key, item in value.items() if key not in unwanted}


def _names(function: str, keys: list[Value]) -> frozenset[str]:
    for key in keys:
        if type(key) is not str:
            raise OperationError(f"{function} takes a list of strings, not of {described(key)}")
    return frozenset(keys)
