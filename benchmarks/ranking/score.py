"""How good a ranking is: recall and reciprocal rank, by kind of query and half of the set. Standard library only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import TypeAlias

from benchmarks.ranking.labelled import HALVES, KINDS, Half, Labelled, queries

DEPTH = 20
METRICS = ("recall1", "recall5", "recall20", "mrr")
Rank: TypeAlias = Callable[[str], Sequence[str]]
"""A search: the IDs of the best twenty tools for a query, best first."""
Scores: TypeAlias = dict[tuple[Half, str], dict[str, float]]


def judge(rank: Rank, asked: Iterable[Labelled] | None = None) -> Scores:
    """Means by half and kind, and over all kinds as `all`. The tools of a query are alternatives, so recall at k is 1
    when any of them is among the first k, else 0; the reciprocal rank is that of the first of them, 0 beyond twenty."""
    taken: defaultdict[tuple[Half, str], list[dict[str, float]]] = defaultdict(list)
    for query in queries() if asked is None else asked:
        measured = _measure(rank(query.text), query.relevant)
        taken[query.half, query.kind].append(measured)
        taken[query.half, "all"].append(measured)
    return {key: {name: fmean(one[name] for one in rows) for name in METRICS} for key, rows in taken.items()}


def figures(engine: str, scores: Scores) -> dict[str, list[float]]:
    """The scores as samples, such as `ranking.bm25s.test.goal.recall5`."""
    return {
        f"ranking.{engine}.{half}.{kind}.{name}": [value]
        for (half, kind), row in scores.items()
        for name, value in row.items()
    }


def missed(rank: Rank, kind: str) -> list[tuple[str, list[str], list[str]]]:
    """The queries of the tuning half for which no right tool is among the first five: text, right ones, found."""
    out: list[tuple[str, list[str], list[str]]] = []
    for query in queries():
        if query.half == "dev" and query.kind == kind:
            found = list(rank(query.text))[:5]
            if not query.relevant & set(found):
                out.append((query.text, sorted(query.relevant), found))
    return out


def table(samples: dict[str, list[float]]) -> str:
    """Samples that `figures` made, as lines to read."""
    engines = list(dict.fromkeys(key.split(".")[1] for key in samples if key.startswith("ranking.")))
    lines: list[str] = []
    for half in HALVES:
        lines.append(f"{half:28}" + "".join(f"{kind:>24}" for kind in (*KINDS, "all")))
        lines.append(f"{'':28}" + f"{'r@1  r@5  r@20 mrr':>24}" * (len(KINDS) + 1))
        for engine in engines:
            cells = [
                " ".join(f"{samples[f'ranking.{engine}.{half}.{kind}.{name}'][0]:.2f}" for name in METRICS)
                for kind in (*KINDS, "all")
            ]
            lines.append(f"{engine:28}" + "".join(f"{cell:>24}" for cell in cells))
        lines.append("")
    return "\n".join(lines)


def _measure(found: Sequence[str], relevant: frozenset[str]) -> dict[str, float]:
    first = next((place for place, tool_id in enumerate(found[:DEPTH], 1) if tool_id in relevant), 0)
    recall = {f"recall{depth}": float(0 < first <= depth) for depth in (1, 5, DEPTH)}
    return recall | {"mrr": 1 / first if first else 0.0}
