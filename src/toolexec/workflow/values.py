"""The values of a workflow, which are those of JSON, and what its operators make of them.

No value is ever changed: an assignment to a part of one makes another. Each value that is made is bounded, so that a
short program cannot fill the memory; what takes time in proportion to a value spends it from a budget.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import shorten
from toolexec.model.tree_size import is_too_large
from toolexec.run.large import COMPACT, Budget, is_small, json_pieces

Value: TypeAlias = Any
"""null, true, false, an integer, a float, a string, a list or an object; as plain Python values."""

MAX_STRING: Final = 8 << 20
"""The most characters of a string that an operation makes."""

MAX_ENTRIES: Final = 1_000_000
"""The most items or members of a list or an object that an operation makes."""

MAX_BITS: Final = 4096
"""The most bits of an integer that an operation makes."""

MAX_NESTING: Final = 100
"""The most lists and objects inside of each other."""

_LOOKED_AT: Final = 400
_NUMBERS: Final = frozenset({int, float})
_NAMES: Final = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "list",
    dict: "object",
}
_LENGTHS: Final = frozenset({"length", "len", "size", "count"})
_INSTEAD: Final = {
    "push": "xs = append(xs, item)",
    "append": "xs = append(xs, item)",
    "toUpperCase": "upper(text)",
    "upper": "upper(text)",
    "toLowerCase": "lower(text)",
    "lower": "lower(text)",
    "strip": "trim(text)",
    "trim": "trim(text)",
    "includes": "item in xs",
    "keys": "keys(object)",
    "values": "values(object)",
    "items": "entries(object)",
    "map": "collect x in xs { ... }",
    "filter": "collect x in xs where condition { x }",
    "forEach": "for x in xs { ... }",
    "join": 'join(xs, ", ")',
    "split": 'split(text, ",")',
}
_compact: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class OperationError(Exception):
    """An operation that is not possible with these values; `kind` says in a word why."""

    def __init__(self, message: str, kind: str = "type") -> None:
        super().__init__(message)
        self.message: str = message
        self.kind: str = kind


class TooLargeError(OperationError):
    """The value that an operation would make is larger than one may be."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "limit")


def type_name(value: Value) -> str:
    """Return `null`, `boolean`, `integer`, `number`, `string`, `list` or `object`."""
    return _NAMES.get(type(value), type(value).__name__)


def is_number(value: Value) -> bool:
    """Return whether the value is an integer or a float; true and false are not."""
    return type(value) in _NUMBERS


def described(value: Value) -> str:
    """Return the type of the value, and the value itself where it is short: `the string "a"`, `a list`."""
    kind = type_name(value)
    if kind in ("list", "object"):
        return f"{'an' if kind == 'object' else 'a'} {kind}"
    if value is None or kind == "boolean":
        return text_of(value)
    return f"the {kind} {shorten(json_text(value) if len(str(value)) < 100 else repr(value), 60)}"


# -- bounds -----------------------------------------------------------------------------------------------------


def number(value: float) -> int | float:
    """Return a number that was computed, if it is one that a workflow can hold; raises OperationError otherwise."""
    if type(value) is int:
        if value.bit_length() > MAX_BITS:
            raise TooLargeError(f"the integer has more than {MAX_BITS:,} bits")
    elif not math.isfinite(value):
        raise OperationError("the number is too large for a float", "number")
    return value


def bounded(size: int, what: str = "list") -> None:
    """Raise TooLargeError where something to be made is larger than a `string`, `list` or `object` may be."""
    if what == "string":
        if size > MAX_STRING:
            raise TooLargeError(f"the string would have {size:,} characters; one may have {MAX_STRING:,}")
    elif size > MAX_ENTRIES:
        raise TooLargeError(f"the {what} would have {size:,} entries; one may have {MAX_ENTRIES:,}")


def listed(made: Value) -> Value:
    """Return a list or an object that was made of other values, if it is not too large and not nested too deep.

    Of its parts only some are looked at: enough to stop a loop that puts a list into a list. What leaves the workflow
    is looked at as a whole.
    """
    bounded(len(made), type_name(made))
    level: list[tuple[Value, int]] = [(made, 1)]
    for _ in range(_LOOKED_AT):
        if not level:
            break
        holder, depth = level.pop()
        if depth > MAX_NESTING:
            raise TooLargeError(f"lists and objects may be nested {MAX_NESTING} deep")
        items: Sequence[Value] = holder if type(holder) is list else [*holder.values()]
        level += [(item, depth + 1) for item in items[-_LOOKED_AT:] if type(item) is list or type(item) is dict]
    return made


# -- text -------------------------------------------------------------------------------------------------------


def json_text(value: Value, budget: Budget | None = None) -> str:
    """Return the value as compact JSON; raises TooLargeError where that is longer than a string may be."""
    if budget is None or is_small(value):
        try:
            return _compact(value)
        except RecursionError:
            raise TooLargeError(f"lists and objects may be nested {MAX_NESTING} deep") from None
    if is_too_large(value):
        raise TooLargeError(f"the JSON text would have more than {MAX_STRING:,} characters")
    pieces: list[str] = []
    room = MAX_STRING
    try:
        for piece in json_pieces(value, budget, encode=COMPACT):
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                raise TooLargeError(f"the JSON text would have more than {MAX_STRING:,} characters")
    except RecursionError:
        raise TooLargeError(f"lists and objects may be nested {MAX_NESTING} deep") from None
    return "".join(pieces)


def text_of(value: Value, budget: Budget | None = None) -> str:
    """Return the value as it is in an interpolated string and in print: a string as it is, all else as JSON."""
    return value if type(value) is str else json_text(value, budget)


# -- operators --------------------------------------------------------------------------------------------------


def add(left: Value, right: Value) -> Value:
    """Return the sum of two numbers, or two strings or lists one after the other."""
    kinds = type(left), type(right)
    if kinds[0] in _NUMBERS and kinds[1] in _NUMBERS:
        return _computed(lambda: left + right)
    if kinds == (str, str):
        bounded(len(left) + len(right), "string")
        return left + right
    if kinds == (list, list):
        bounded(len(left) + len(right))
        return left + right
    if str in kinds:
        raise OperationError(
            f"+ takes two strings, not {described(left)} and {described(right)}; "
            'write "${a} ${b}", or string(x), to make a string of any value'
        )
    if list in kinds:
        raise OperationError(
            f"+ takes two lists, not {described(left)} and {described(right)}; write append(xs, item) to add one item"
        )
    if kinds == (dict, dict):
        raise OperationError("+ does not join objects; write merge(a, b) or {...a, ...b}")
    raise OperationError(f"+ takes two numbers, strings or lists, not {described(left)} and {described(right)}")


def _computed(compute: Callable[[], int | float]) -> int | float:
    try:
        return number(compute())
    except OverflowError:
        raise OperationError("the number is too large for a float", "number") from None


def _numbers(operator: str, left: Value, right: Value) -> None:
    if type(left) not in _NUMBERS or type(right) not in _NUMBERS:
        raise OperationError(f"{operator} takes two numbers, not {described(left)} and {described(right)}")


def _subtract(left: Value, right: Value) -> Value:
    _numbers("-", left, right)
    return _computed(lambda: left - right)


def _multiply(left: Value, right: Value) -> Value:
    _numbers("*", left, right)
    return _computed(lambda: left * right)


def _divide(left: Value, right: Value) -> Value:
    _numbers("/", left, right)
    if right == 0:
        raise OperationError("division by zero", "number")
    if type(left) is int and type(right) is int and left % right == 0:
        return left // right
    return _computed(lambda: left / right)


def _remainder(left: Value, right: Value) -> Value:
    _numbers("%", left, right)
    if right == 0:
        raise OperationError("division by zero", "number")
    return _computed(lambda: left % right)


def negative(value: Value) -> Value:
    """Return the number with the other sign."""
    if type(value) not in _NUMBERS:
        raise OperationError(f"- takes a number, not {described(value)}")
    return -value


def equal(left: Value, right: Value, budget: Budget | None = None) -> bool:
    """Return whether two values are the same: numbers by value, lists and objects by what is in them. True is not 1.

    What is compared once is not compared again, so it takes no longer for what is shared.
    """
    kind = type(left)
    if kind is not list and kind is not dict:
        return _same(left, right)
    pairs = [(left, right)]
    seen: set[tuple[int, int]] = set()
    while pairs:
        one, other = pairs.pop()
        if budget is not None:
            budget.spend()
        kind = type(one)
        if kind is not list and kind is not dict:
            if not _same(one, other):
                return False
            continue
        mark = id(one), id(other)
        if one is other or mark in seen:
            continue
        seen.add(mark)
        if kind is not type(other) or len(one) != len(other):
            return False
        if kind is list:
            pairs += zip(one, other, strict=True)
        elif one.keys() != other.keys():
            return False
        else:
            pairs += [(item, other[key]) for key, item in one.items()]
    return True


def _same(left: Value, right: Value) -> bool:
    return (type(left) is bool) is (type(right) is bool) and left == right


def is_in(item: Value, values: Value, budget: Budget | None = None) -> bool:
    """Return whether a list has the item, an object the key, or a string the string in it."""
    kind = type(values)
    if kind is dict and type(item) is str:
        return item in values
    if kind is str and type(item) is str:
        return item in values
    if kind is list:
        if type(item) is str:
            return item in values
        return any(equal(item, other, budget) for other in values)
    if kind is dict or kind is str:
        raise OperationError(f"in takes a string on the left of {described(values)}, not {described(item)}")
    raise OperationError(f"in takes a list, an object or a string on its right, not {described(values)}")


def _ordered(operator: str, compare: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool]:
    def run(left: Value, right: Value) -> bool:
        kind, other = type(left), type(right)
        if (kind in _NUMBERS and other in _NUMBERS) or (kind is str and other is str):
            return compare(left, right)
        raise OperationError(
            f"{operator} takes two numbers or two strings, not {described(left)} and {described(right)}"
        )

    return run


OPERATORS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "+": add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
    "<": _ordered("<", lambda left, right: left < right),
    "<=": _ordered("<=", lambda left, right: left <= right),
    ">": _ordered(">", lambda left, right: left > right),
    ">=": _ordered(">=", lambda left, right: left >= right),
}
"""The binary operators that look at nothing but two values of bounded cost."""


# -- parts ------------------------------------------------------------------------------------------------------


def member(value: Value, name: str, *, safe: bool = False) -> Value:
    """Return `value.name`; with *safe* null where there is none, or the value is null. Raises OperationError."""
    if type(value) is dict:
        if name in value:
            return value[name]
        if safe:
            return None
        raise OperationError(_no_member(value, name), "missing")
    if value is None:
        if safe:
            return None
        raise OperationError(f"null has no member {name}; write ?.{name} where the value may be null", "missing")
    if name in _LENGTHS:
        raise OperationError(f"{described(value)} has no member {name}; write len(x)")
    if name in _INSTEAD:
        raise OperationError(f"there are no methods; write {_INSTEAD[name]} in place of .{name}")
    raise OperationError(f"{described(value)} has no members, so no {name}")


def _no_member(value: dict[str, Value], name: str) -> str:
    if name in _LENGTHS:
        return f"the object has no member {name}; len(x) gives the number of its members"
    if not value:
        return f"the object has no member {name}: it is empty"
    hint = did_you_mean(name, [*value][:200])
    return f"the object has no member {name}; {hint}; write ?.{name} where it may be missing"


def index(value: Value, at: Value, *, safe: bool = False) -> Value:
    """Return `value[at]` of a list, a string or an object; with *safe* null where there is none, or value is null."""
    kind = type(value)
    if kind is dict:
        if type(at) is not str:
            raise OperationError(f"an object takes a string in [ ], not {described(at)}")
        return member(value, at, safe=safe)
    if kind is list or kind is str:
        place = whole(at)
        if place is None:
            raise OperationError(f"a {type_name(value)} takes an integer in [ ], not {described(at)}")
        if -len(value) <= place < len(value):
            return value[place]
        if safe:
            return None
        raise OperationError(f"there is no index {at}: the {type_name(value)} has {len(value)} entries", "missing")
    if value is None:
        if safe:
            return None
        raise OperationError("null has no parts; write ?[ ] where the value may be null", "missing")
    raise OperationError(f"{described(value)} has no parts, so no [ ]")


def whole(value: Value) -> int | None:
    """Return the integer that a number is, also where it is written as a float; None for all else."""
    if type(value) is int:
        return value
    return int(value) if type(value) is float and value.is_integer() else None


def part(value: Value, start: Value, stop: Value) -> Value:
    """Return `value[start:stop]` of a list or a string; null stands for its beginning or its end."""
    if type(value) is not list and type(value) is not str:
        raise OperationError(f"only a list or a string has a part from : to, not {described(value)}")
    for bound in (start, stop):
        if bound is not None and whole(bound) is None:
            raise OperationError(f"[a:b] takes integers, not {described(bound)}")
    return value[whole(start) : whole(stop)]


def replaced(value: Value, path: Sequence[Value], new: Value) -> Value:
    """Return a copy of the value with another one at the path of keys and indexes; raises OperationError."""
    holders: list[Value] = []
    for at in path[:-1]:
        holders.append(value)
        value = index(value, at)
    holders.append(value)
    for holder, at in zip(reversed(holders), reversed(path), strict=True):
        new = _with(holder, at, new)
    return new


def _with(holder: Value, at: Value, new: Value) -> Value:
    if type(holder) is dict:
        if type(at) is not str:
            raise OperationError(f"an object takes a string in [ ], not {described(at)}")
        return listed({**holder, at: new})
    if type(holder) is list:
        index(holder, at)
        copied = holder.copy()
        copied[whole(at) or 0] = new
        return listed(copied)
    raise OperationError(f"only parts of a list or an object can be assigned to, not of {described(holder)}")


def extended(items: list[Value], more: Value) -> None:
    """Put all that a list holds after *items*, which is being made."""
    if type(more) is not list:
        raise OperationError(f"... in a list takes a list, not {described(more)}")
    bounded(len(items) + len(more))
    items += more
