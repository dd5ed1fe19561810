"""The rows of the context: how many tokens a model reads and writes for a task."""

from __future__ import annotations

from benchmarks.rows import Row

_SHOWN = {"direct": "all tools listed", "meta": "`--expose meta`", "code": "`--expose code`"}
_FIXED = {"meta": 800, "code": 450}
_BARS = {
    ("few", "queries"): (2_500, 6_700),
    ("few", "task"): (3_100, 8_400),
    ("all", "queries"): (2_900, 7_900),
}
_PEERS = {"plain": "FastMCP", "search": "FastMCP's BM25 search", "code": "FastMCP's code mode"}
CONTEXT_NAMES: dict[str, str] = {
    f"context_peers.{size}.{kind}.{figure}": name
    for size in ("few", "all")
    for kind, name in _PEERS.items()
    for figure in ("fixed", "context", "billed", "turns")
}


def _beside(size: str, figure: str) -> tuple[str, ...]:
    return tuple(f"context_peers.{size}.{kind}.{figure}" for kind in _PEERS)


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
            is_code = expose == "code"
            bars = (*_BARS.get((size, first), (None, None)), 4) if is_code else (None, None, None)
            how = {"queries": ", a query for each step", "task": ", the first search by the task"}[first]
            how = "" if expose == "direct" else how
            figures = (("context", f"{shown}{how}: tokens, each once"), ("billed", "input over all turns"))
            for (figure, what), bar in zip((*figures, ("turns", "turns, median")), bars, strict=True):
                beside = _beside(size, figure) if is_code and first == "task" else ()
                rows.append(Row(key=f"{key}.{first}.{figure}", what=what, unit="count", bar=bar, beside=beside))
    return tuple(rows)


CONTEXT_GROUPS = {
    "Tokens of context for a task, 227 tools": _rows("few"),
    "Tokens of context for a task, 1,160 tools": _rows("all"),
}
"""The tables, in order."""
