"""Rows whose items have no names: where each is, by the columns that a result has beside them, or by its first row."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from toolexec.code.repair.near_keys import fold
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_MOST: Final = 200
_FEW: Final = 10
_MOST_PARTS: Final = 2_000


def place_of(name: str, rows: Sequence[JSONValue], tools: Tools) -> int:
    """Return the place of a column in these rows; -1 where it is not known, or several are called so."""
    widths = {len(row) for row in rows if isinstance(row, list) and row}
    if len(widths) != 1 or not all(isinstance(row, list) for row in rows):
        return -1
    width = widths.pop()
    results = [call.value for call in tools.tool_calls()[:_MOST] if call.error is None and not call.is_open]
    places = {
        columns.index(fold(name))
        for columns in map(_columns, parts_of([*rows[:1], *results]))
        if len(columns) == width and columns.count(fold(name)) == 1
    }
    return places.pop() if len(places) == 1 else -1


def parts_of(values: Sequence[JSONValue]) -> Iterator[JSONValue]:
    """Yield these values and what is in them, the outer before the inner: not all of large ones."""
    pending = deque(values[:_MOST])
    for _ in range(_MOST_PARTS):
        if not pending:
            return
        value = pending.popleft()
        yield value
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        pending.extend(islice(inner, _MOST if isinstance(value, dict) else _FEW))


def _columns(value: JSONValue) -> list[str]:
    """Return the names that a list has: of strings, or of objects with a name; none of any other."""
    items = value[:_MOST] if isinstance(value, list) else []
    named = [each.get("name") if isinstance(each, dict) else each for each in items]
    names = [fold(each) for each in named if isinstance(each, str)]
    return names if len(names) == len(named) else []
