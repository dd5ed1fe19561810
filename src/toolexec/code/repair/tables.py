"""Rows whose items have no names: where each is, by the columns that a result has beside them, or by its first row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from toolexec.code.repair.near_keys import fold
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

__all__ = ["place_of"]

_DEPTH: Final = 4
_MOST: Final = 200


def place_of(name: str, rows: Sequence[JSONValue], tools: Tools) -> int:
    """Return the place of a column in these rows; -1 where it is not known, or several are called so."""
    widths = {len(row) for row in rows if isinstance(row, list) and row}
    if len(widths) != 1 or not all(isinstance(row, list) for row in rows):
        return -1
    width = widths.pop()
    results = [call.value for call in tools.tool_calls()[:_MOST] if call.error is None and not call.is_open]
    places = {
        columns.index(fold(name))
        for value in (*rows[:1], *results)
        for columns in islice(_columns(value, 0), _MOST)
        if len(columns) == width and columns.count(fold(name)) == 1
    }
    return places.pop() if len(places) == 1 else -1


def _columns(value: JSONValue, depth: int) -> Iterator[list[str]]:
    """Yield the lists of names in a value: of strings, or of objects with a name."""
    if isinstance(value, list):
        named = [each.get("name") if isinstance(each, dict) else each for each in value[:_MOST]]
        names = [fold(each) for each in named if isinstance(each, str)]
        if len(names) == len(named):
            yield names
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in islice(parts, _MOST) if depth < _DEPTH else ():
        yield from _columns(part, depth + 1)
