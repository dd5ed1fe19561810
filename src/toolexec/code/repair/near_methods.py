"""Methods that a value has not, but for one letter or their case: the nearest that values of its kind have."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.near_keys import fold
from toolexec.code.repair.source import instead

_NO_METHOD: Final = re.compile(r"AttributeError: '(?:\w+\.)*(\w+)' object has no attribute '(\w+)'")
_NOT_FUNCTION: Final = re.compile(r"TypeError: .*not a function")
_KINDS: Final[Mapping[str, type]] = {
    each.__name__: each
    for each in (
        *(str, list, dict, set, tuple, int, float, bytes, frozenset, Decimal, re.Match, re.Pattern),
        *(dt.datetime, dt.date, dt.time, dt.timedelta),
    )
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OF_JAVASCRIPT: Final = _names(
    "at concat copyWithin entries every fill filter find findIndex findLast findLastIndex flat flatMap forEach "
    "includes indexOf join keys lastIndexOf map pop push reduce reduceRight reverse shift slice some sort splice "
    "toReversed toSorted toSpliced unshift values with charAt charCodeAt codePointAt endsWith localeCompare match "
    "matchAll normalize padEnd padStart repeat replace replaceAll search split startsWith substring toLowerCase "
    "toUpperCase trim trimEnd trimStart add clear delete get has set toFixed toPrecision toString toISOString "
    "getTime getDate getDay getFullYear getHours getMinutes getMonth getSeconds setDate setHours setMinutes then "
    "catch finally hasOwnProperty exec test call apply bind"
)
"""Methods of arrays, strings, maps, numbers, times, promises and functions."""

_CALLED: Final = re.compile(r"\.([A-Za-z_]\w*)\(")


def about_near_methods(failure: Failure, *, is_same: bool = False) -> str:
    """Return the method to call instead; "" where none is near. With *is_same* it has the same letters."""
    if failure.language == "python":
        found = _NO_METHOD.match(failure.message)
        kind = _KINDS.get(found[1]) if found is not None else None
        if found is None or kind is None or f".{found[2]}" not in failure.source:
            return ""
        near = _near(found[2], [each for each in dir(kind) if not each.startswith("_")], 1 if is_same else 0.8)
        return f"a {found[1]} has no `{found[2]}`: {instead(f'.{found[2]}', f'.{near}')}" if near else ""
    if failure.language != "javascript" or not _NOT_FUNCTION.match(failure.message):
        return ""
    for name in _CALLED.findall(failure.source):
        near = "" if name in _OF_JAVASCRIPT else _near(name, _OF_JAVASCRIPT, 1 if is_same else 0.8)
        if near:
            return f"there is no `{name}`: {instead(f'.{name}(', f'.{near}(')}"
    return ""


def _near(name: str, known: Iterable[str], cutoff: float) -> str:
    folded = {fold(each): each for each in known}
    close = difflib.get_close_matches(fold(name)[:50], [*folded], 1, cutoff=cutoff)
    return folded[close[0]] if close else ""
