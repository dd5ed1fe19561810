"""Which key of a value a name that it has not stands for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from toolexec.model.json_value import JSONValue

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_DEPTH: Final = 4
_MOST: Final = 200
_UNITS: Final = frozenset(
    {"at", "c", "cent", "celsiu", "eur", "f", "g", "gram", "hour", "iso", "kg", "km", "kmh", "m", "mb", "meter"}
    | {"minor", "minute", "mm", "pct", "percent", "sec", "second", "usd", "utc"}
    | {"kw", "kwh", "w", "watt", "wh"}
)
"""Words that say the unit of a value, and not what it is, without the s of several."""


def fold(name: str) -> str:
    """Return a name without its case and what stands between its words."""
    return re.sub(r"[\W_]", "", name).lower()


def alike(name: str, keys: Sequence[str]) -> str:
    """Return the one key that means what a name does: with all of its words, or all but a unit; with the beginning of
    one; with another word for the same; else nearly the same one. "" where there is none, or several."""
    words = {singular(each) for each in words_of(name)}
    having = {key: {singular(each) for each in words_of(key)} for key in keys}
    ways: tuple[Callable[[set[str]], bool], ...] = (
        lambda own: words == own or (words - _UNITS == own - _UNITS and not words <= _UNITS),
        lambda own: words <= own or words >= own,
        lambda own: any(_begins(a, b) for a in words for b in own),
        lambda own: any(is_other_word(a, b) for a in words for b in own),
    )
    for way in ways:
        found = [key for key, own in having.items() if own and way(own)]
        if len(found) == 1:
            return found[0]
        if found:
            return ""
    if words and words <= _UNITS and "value" in keys:
        return "value"
    close = difflib.get_close_matches(name, keys, 1, cutoff=0.75)
    return close[0] if close else ""


def part_of(name: str, near: str, keys: Sequence[str]) -> str:
    """Return the one key of an object, whose own name is near to this one, that is meant by the words which that has
    not: `first_name` may be the `given` of `name`. "" where there is none, or several."""
    words = [each for each in words_of(name) if each not in words_of(near)]
    return alike("_".join(words), keys) if words else ""


def is_item_of(name: str, array: str) -> bool:
    """Return whether a name is the singular of the last word by which a list is read: `sku` of `page["skus"]`."""
    last = re.findall(r"[A-Za-z_]\w*", array)[-1:]
    return bool(last) and name != last[0] and singular(name) == singular(last[0])


def is_other_word(a: str, b: str) -> bool:
    """Return whether two words are used by APIs for one thing."""
    return any(a in same and b in same for same in _ALIASES)


def path_to(name: str, values: Sequence[Mapping[str, JSONValue]]) -> tuple[str, ...]:
    """Return the keys that lead to the only place inside of these objects with such a name, else of one that is
    spelled otherwise; () where there is none, or several."""
    inside = [*islice(_paths(values[0], ()), _MOST)] if values else []
    for found in (
        [path for path in inside if path[-1] == name],
        [path for path in inside if fold(path[-1]) == fold(name)],
    ):
        if len(found) == 1 and all(_has(each, found[0]) for each in values):
            return found[0]
        if found:
            return ()
    return ()


def _paths(value: Mapping[str, JSONValue], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, part in value.items():
        yield (*above, key)
        if isinstance(part, dict) and len(above) < _DEPTH:
            yield from _paths(part, (*above, key))


def _has(value: JSONValue, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


def _begins(a: str, b: str) -> bool:
    """Return whether a word is another one, cut, as `ref` is `reference`."""
    return len(a) > 2 < len(b) and (a.startswith(b) or b.startswith(a))


def singular(word: str) -> str:
    """Return a word in lower case, without the s of several."""
    return word.lower().removesuffix("s")


def words_of(name: str) -> list[str]:
    """Return the words of a name, as `orderId` and `order_id` have two."""
    return [word.lower() for word in _WORD.findall(name)]


_ALIASES: Final = tuple(
    frozenset(singular(word) for word in each.split())
    for each in (
        "name title label subject",
        "count quantity qty amount stock number total units",
        "price cost fee rate amount cent",
        "total sum amount",
        "location place city town site",
        "temperature temp",
        "url link href uri",
        "description desc summary details text",
        "author owner user creator by assignee",
        "status state",
        "type kind category",
        "id key code ref reference sku number uid slug",
        "latitude lat",
        "longitude lon lng",
        "phone tel telephone mobile",
        "email mail address",
        "date day when time timestamp at ts",
        "first given forename",
        "last family surname",
        "cursor token last",
        "begin start from",
        "end finish until to",
        "duration length minutes",
        "score rating grade points",
        "message msg text body content",
    )
)
"""Words that APIs have for one thing, without the s of several."""
