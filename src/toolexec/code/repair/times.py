"""Times as results have them, as text or as a number, and what makes a time of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from toolexec.model.json_value import JSONValue

_SECONDS: Final = range(1_000_000_000, 10_000_000_000)
_MILLISECONDS: Final = range(1_000_000_000_000, 10_000_000_000_000)
"""Numbers that are times between 2001 and 2286."""
_PARTS: Final = re.compile(r"\d{4}-\d\d-\d\d([T ])(\d\d:\d\d)(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")


def of_a_time(key: str) -> bool:
    """Return whether dates and times have this, in Python or JavaScript, and strings have not."""
    in_python = hasattr(datetime, key) and not hasattr(str, key)
    return (
        in_python
        or re.fullmatch(r"get(?:UTC)?(?:Time|FullYear|Month|Date|Day|Hours|Minutes)|toISOString", key) is not None
    )


def time_as_text(values: Iterable[JSONValue]) -> bool:
    """Return whether all of these are a date or a time as text."""
    found = list(values)
    return bool(found) and all(isinstance(each, str) and _TIME.fullmatch(each) for each in found)


def time_of_number(text: str, value: JSONValue, *, is_python: bool) -> str:
    """Return what makes a time of a number of seconds or milliseconds since 1970; "" of any other value."""
    if type(value) is not int or (value not in _MILLISECONDS and value not in _SECONDS):
        return ""
    if is_python:
        return f"datetime.fromtimestamp({text}{' / 1000' if value in _MILLISECONDS else ''}, timezone.utc)"
    return f"new Date({text}{'' if value in _MILLISECONDS else ' * 1000'})"


def format_of(text: str) -> str:
    """Return how `strptime` reads a time as ISO has it; "" for any other text."""
    found = _PARTS.fullmatch(text)
    if found is None:
        return ""
    zone = found[5] and ("Z" if found[5] == "Z" else "%z")
    return f"%Y-%m-%d{found[1]}%H:%M{':%S' if found[3] else ''}{'.%f' if found[4] else ''}{zone or ''}"
