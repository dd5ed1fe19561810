"""The rows of the context: how many tokens a model reads and writes for a task."""

from __future__ import annotations

from benchmarks.rows import Row

__all__ = ["CONTEXT_GROUPS", "CONTEXT_NAMES"]

_SHOWN = {"direct": "all tools listed", "meta": "`--expose meta`", "code": "`--expose code`"}
_FIXED = {"meta": 800, "code": 450}
_BARS = {
    ("few", "queries"): (2_500, 6_700),
    ("few", "task"): (3_100, 8_400),
    ("all", "queries"): (2_900, 7_900),
}
CONTEXT_NAMES: dict[str, str] = {}


def _rows(size: str) -> tuple[Row, ...]:
    rows: list[Row] = []
    for expose, shown in _SHOWN.items():
        key = f"context.{size}.{expose}"
        rows.append(
            Row(
                key=f"{key}.task.fixed",
                what=f"{shown}: the list and the instructions",
                unit="count",
                bar=_FIXED.get(expose),
            )
        )
        for first in ("queries", "task") if expose != "direct" else ("task",):
            bars = _BARS.get((size, first), (None, None)) if expose == "code" else (None, None)
            how = {"queries": ", a query for each step", "task": ", the first search by the task"}[first]
            how = "" if expose == "direct" else how
            rows += [
                Row(key=f"{key}.{first}.context", what=f"{shown}{how}: tokens, each once", unit="count", bar=bars[0]),
                Row(key=f"{key}.{first}.billed", what="input over all turns", unit="count", bar=bars[1]),
                Row(
                    key=f"{key}.{first}.turns", what="turns, median", unit="count", bar=4 if expose == "code" else None
                ),
            ]
    return tuple(rows)


CONTEXT_GROUPS = {
    "Tokens of context for a task, 227 tools": _rows("few"),
    "Tokens of context for a task, 1,160 tools": _rows("all"),
}
"""The tables, in order."""
