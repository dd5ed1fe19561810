"""How many values a value has in it as a tree: what is in several places counts in each of them.

A few lists of Python, each twice in the next one, are soon more than can be written down, and everything that walks
a value walks the tree. So its size is computed first, in the time that its distinct parts take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from enum import Enum
from itertools import chain
from typing import Any, Final

MAX_DEPTH: Final = 120
"""The most levels of dicts and lists that a value may have."""

MAX_NODES: Final = 10_000_000
"""The most values that one may have in it, itself included; what is in several places counts in each of them."""

MAX_REPEATED: Final = 100_000
"""How many more lists and objects a value may have as a tree than there are different ones in it."""

MAX_REPEATED_NODES: Final = 1_000_000
"""How many more values one may have as a tree than there are in its different lists and objects."""

MANY: Final = 10_000
"""How many values are many: to walk more of them takes milliseconds, which an event loop has not."""

FLAT: Final = frozenset({str, int, float, bool, type(None)})
"""The types of the values that have no others in them."""


_AT_ONCE: Final = 1000
_WIDE: Final = 200
_PLAIN: Final = frozenset({dict, list})


class Excess(Enum):
    """Why a value is too much to be walked; the value of each says what it has."""

    MANY = f"more than {MAX_NODES:,} values in it, where what is in several places counts in each, or contains itself"
    REPEATED = (
        f"the same lists or objects in it too often: written out, more than {MAX_REPEATED:,} of them, or "
        f"{MAX_REPEATED_NODES:,} values, are copies"
    )
    DEEP = f"more than {MAX_DEPTH} levels, or contains itself"

    @property
    def limit(self) -> str:
        """What is allowed."""
        return _LIMITS[self]


_LIMITS: Final = {
    Excess.MANY: f"at most {MAX_NODES:,} values",
    Excess.REPEATED: f"at most {MAX_REPEATED:,} copies of lists and objects, and {MAX_REPEATED_NODES:,} values in them",
    Excess.DEEP: f"at most {MAX_DEPTH} levels",
}


def is_flat(value: dict[Any, Any]) -> bool:
    """Return whether a dict has nothing but strings, numbers, booleans and None in it, of exactly these types, and no
    more than `MANY` of them."""
    if len(value) > MANY:
        return False
    for item in value.values():  # noqa: SIM110 - in the way of every call: a generator takes twice as long
        if type(item) not in FLAT:
            return False
    return True


def is_named(value: dict[Any, Any]) -> bool:
    """Return whether a dict is flat (see `is_flat`), and all its keys are strings, of exactly this type."""
    if len(value) > MANY:
        return False
    for key, item in value.items():  # noqa: SIM110 - see `is_flat`
        if type(key) is not str or type(item) not in FLAT:
            return False
    return True


def has_many(value: object) -> bool:
    """Return whether there are more than `MANY` values in dicts and lists, where what is in several places counts in
    each. Looks at hardly more than that many, so that it is quick for any value."""
    if type(value) is not dict and type(value) is not list:
        return False
    top: Any = value
    for item in top if type(top) is list else top.values():
        if type(item) in _PLAIN:
            break
    else:
        return len(top) > MANY
    level: list[Any] = [top]
    count = 0
    for _ in range(MAX_DEPTH):
        inside = [part.values() if type(part) is dict else part for part in level if type(part) in _PLAIN]
        count += sum(map(len, inside))
        if count > MANY:
            return True
        level = [item for items in inside for item in items if type(item) in _PLAIN]
        if not level:
            return False
    return False


def excess_of(value: object) -> Excess | None:
    """Return why *value* is too much to be walked; None for nearly all values."""
    if type(value) in FLAT:
        return None
    return _Count().excess_of(value)


def is_too_large(value: object) -> bool:
    """Return whether *value* has more than `MAX_NODES` values in it, however few of them are different."""
    if type(value) in FLAT:
        return False
    return _Count().excess_of(value) is Excess.MANY


def _is_wide(level: dict[int, tuple[Any, int]]) -> bool:
    """Return whether much stands on a level, or right below it."""
    return len(level) > _WIDE or any(type(part) in _PLAIN and len(part) > _WIDE for part, _ in level.values())


def _is_plain_tree(value: object) -> bool:
    """Return whether *value* is of dicts and lists, each in one place, and within all limits: what JSON is read as.

    Loops in C take a tenth of the time that a look at each part does; large arguments wait for it. Each goes over a few
    parts only, as no other thread runs during one.
    """
    parts: list[Any] = [value]
    if type(value) not in _PLAIN:
        return False
    seen: set[int] = set()
    places, values = 0, 1
    for _ in range(MAX_DEPTH):
        places += len(parts)
        deeper: list[Any] = []
        for at in range(0, len(parts), _AT_ONCE):
            batch = parts[at : at + _AT_ONCE]
            seen.update(map(id, batch))
            items = list(chain.from_iterable([part.values() if type(part) is dict else part for part in batch]))
            values += len(items)
            kinds = set(map(type, items)) - FLAT
            if values > MAX_NODES or not kinds <= _PLAIN:
                return False
            if kinds:
                deeper += [item for item in items if type(item) in _PLAIN]
        if len(seen) != places:
            return False
        if not deeper:
            return True
        parts = deeper
    return False


class _Count:
    """Counts the values in one value level by level: each part once for a level, times the places that it is in."""

    def __init__(self) -> None:
        self._values = 1
        self._repeated = 0
        self._repeated_values = 0
        self._seen: set[int] = set()

    def excess_of(self, value: object) -> Excess | None:
        if type(value) is list and FLAT.issuperset(map(type, value)):  # pyright: ignore[reportUnknownArgumentType]
            return Excess.MANY if len(value) >= MAX_NODES else None  # pyright: ignore[reportUnknownArgumentType]
        level: dict[int, tuple[Any, int]] = {id(value): (value, 1)}
        was_wide = False
        for _ in range(MAX_DEPTH + 1):
            if not was_wide and _is_wide(level):
                was_wide = True
                if _is_plain_tree(value):
                    return None
            level = self._below(level)
            if self._values > MAX_NODES:
                return Excess.MANY
            if not level:
                break
        if self._repeated > MAX_REPEATED or self._repeated_values > MAX_REPEATED_NODES:
            return Excess.REPEATED
        return Excess.DEEP if level else None

    def _below(self, level: dict[int, tuple[Any, int]]) -> dict[int, tuple[Any, int]]:
        """Count a level of parts, by their IDs and with the number of their places; return the next one."""
        deeper: dict[int, tuple[Any, int]] = {}
        for key, (part, places) in level.items():
            items = _items_of(part)
            size = len(items)
            self._values += places * size
            if size == 1 and isinstance(part, Enum) and FLAT.issuperset(map(type, items)):
                continue  # there is one of each, and it is no more than its value
            if size or isinstance(part, dict | list | tuple):
                copies = places if key in self._seen else places - 1
                self._repeated += copies
                self._repeated_values += copies * size
                self._seen.add(key)
            if not FLAT.issuperset(map(type, items)):
                for item in items:
                    if type(item) not in FLAT:
                        number = id(item)
                        deeper[number] = (item, places + (deeper[number][1] if number in deeper else 0))
        return deeper


def _items_of(value: Any) -> Collection[Any]:
    """Return what is in a value that JSON is made of without a look at each item; nothing for all others."""
    kind: type[Any] = type(value)
    if kind is dict:
        return value.values()
    if kind is list or kind is tuple:
        return value
    if isinstance(value, dict):
        return dict.values(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if isinstance(value, list):
        return list.copy(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if isinstance(value, tuple):
        return tuple.__getitem__(value, slice(None))  # pyright: ignore[reportUnknownVariableType]
    if issubclass(kind, Enum):
        return (value._value_,)
    if isinstance(value, deque):
        return deque.copy(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    has_fields = hasattr(kind, "__pydantic_serializer__") or hasattr(kind, "__dataclass_fields__")
    return vars(value).values() if has_fields and hasattr(value, "__dict__") else ()
