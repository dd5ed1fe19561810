"""The rows of the search: how often it finds the right tool, how long it takes, and what it holds in memory."""

from __future__ import annotations

from benchmarks.ranking.labelled import KINDS
from benchmarks.rows import Row

_US = 1e-6
_MS = 1e-3
_SIZES = (1_000, 10_000, 100_000)
_ENGINES = {
    "toolexec_hybrid": "with embeddings",
    "toolexec_lexical": "our substring search",
    "bm25s": "bm25s",
    "bm25s_stemmed": "bm25s with a stemmer",
    "bm25s_stemmed_split": "the same on split names",
    "fts5": "SQLite FTS5, stemmed",
    "tantivy": "tantivy",
    "fastmcp": "FastMCP's BM25",
}
_PEERS = {"bm25s": "bm25s", "tantivy": "tantivy", "fts5": "SQLite FTS5", "fastmcp": "FastMCP's BM25"}
_FIGURES = (
    *("mean", "p50", "p95", "cold", "others", "build", "add.median", "add.p95", "precision"),
    *("once.mean", "once.p95", "once.max"),
)
_METRICS = {"recall1": "the first", "recall5": "the first five", "recall20": "the first twenty"}
_MEANS = {1_000: (0.1 * _MS, 0.2 * _MS), 10_000: (0.3 * _MS, 0.6 * _MS), 100_000: (1.0 * _MS, 3 * _MS)}


def _found() -> tuple[Row, ...]:
    asked = [("all", metric, "test") for metric in _METRICS]
    asked += [(kind, "recall5", "test") for kind in KINDS]
    asked += [("all", "recall5", "dev"), ("all", "mrr", "test")]
    rows: list[Row] = []
    for kind, metric, half in asked:
        what = "mean reciprocal rank" if metric == "mrr" else f"a right tool is among {_METRICS[metric]}"
        what += "" if kind == "all" else f", *{kind}*"
        what += ", in the half that we tuned with" if half == "dev" else ""
        beside = tuple(f"ranking.{engine}.{half}.{kind}.{metric}" for engine in _ENGINES)
        rows.append(Row(key=f"ranking.toolexec.{half}.{kind}.{metric}", what=what, unit="share", beside=beside))
    return tuple(rows)


def _speed(size: int) -> tuple[Row, ...]:
    mean, at_most = _MEANS[size]
    largest = size == max(_SIZES)
    key = f"search.{size}."

    def others(figure: str) -> tuple[str, ...]:
        return tuple(f"search_peers.{size}.{name}.{figure}" for name in _PEERS)

    return (
        Row(
            key=f"{key}once.mean",
            what="500 different queries, each asked once, summaries",
            bar=mean,
            limit=at_most,
            beside=others("once.mean"),
        ),
        Row(key=f"{key}once.p95", what="95th percentile", bar=3 * _MS, limit=8 * _MS, beside=others("once.p95")),
        Row(key=f"{key}once.max", what="the longest", beside=others("once.max")),
        Row(key=f"{key}opened", what="first query after a stored catalogue was opened", bar=5 * _MS),
        Row(
            key=f"{key}ids.mean",
            what="the same twenty over and over, IDs",
            bar=mean,
            limit=at_most,
            beside=others("mean"),
        ),
        Row(key=f"{key}ids.p50", what="median", beside=others("p50")),
        Row(
            key=f"{key}ids.p95",
            what="95th percentile",
            bar=3 * _MS if largest else None,
            limit=6 * _MS if largest else None,
            beside=others("p95"),
        ),
        Row(key=f"{key}ids.cold", what="queries that are asked for the first time, twenty", beside=others("cold")),
        Row(key=f"{key}ids.others", what="the same, hundreds of others after them", beside=others("others")),
        Row(key=f"{key}index.mean", what="the same twenty over and over, summaries", bar=at_most),
        Row(key=f"{key}index.p95", what="95th percentile"),
        Row(
            key=f"{key}build",
            what="from tools to the first answer, a tool",
            bar=20 * _US,
            limit=30 * _US,
            beside=others("build"),
        ),
        Row(key=f"{key}build_from_data", what="from JSON data to the first answer, a tool"),
        Row(
            key=f"{key}add.median",
            what="add a tool and search",
            bar=0.5 * _MS,
            limit=2 * _MS,
            beside=others("add.median"),
        ),
        Row(key=f"{key}add.p95", what="95th percentile", beside=others("add.p95")),
        Row(key=f"{key}add.max", what="the longest of two hundred"),
        Row(key=f"{key}remove.median", what="remove a tool and search"),
        Row(key=f"{key}threads", what="eight threads search, a ninth adds and removes: time for each search"),
        Row(
            key=f"{key}ids.precision",
            what="of the first ten, what was asked for",
            unit="share",
            bar=0.53 if largest else None,
            limit=0.50 if largest else None,
            beside=others("precision"),
        ),
    )


def _memory() -> tuple[Row, ...]:
    rows: list[Row] = []
    for size in _SIZES[1:]:
        beside = tuple(f"search_memory_peers.{size}.{name}" for name in _PEERS)
        largest = size == max(_SIZES)
        rows += [
            Row(
                key=f"search_memory.{size}.all",
                what=f"catalogue and index, {size:,} tools",
                unit="bytes",
                bar=2500 if largest else None,
                limit=4000 if largest else None,
                beside=beside,
            ),
            Row(key=f"search_memory.{size}.catalogue", what="the catalogue, before the first search", unit="bytes"),
        ]
    return tuple(rows)


_FIRST = (
    Row(
        key="first_search.index",
        what="from `Exec()` with an index of 1,000 tools to the first answer, imports included",
        bar=35 * _MS,
        beside=("search_peers.1000.tantivy.first",),
    ),
    Row(key="first_search.add", what="the same with `Exec.add` for each tool, which compiles their schemas"),
)


SEARCH_GROUPS: dict[str, tuple[Row, ...]] = {
    "Finding the right tool: labelled queries over a thousand tools": _found(),
    **{f"A catalogue of {size:,} tools: search": _speed(size) for size in _SIZES},
    "The first search of a process": _FIRST,
    "Memory of a tool": _memory(),
}
SEARCH_NAMES = {
    **{row.beside[place]: name for row in _found() for place, name in enumerate(_ENGINES.values())},
    **{
        f"search_peers.{size}.{engine}.{figure}": name
        for size in _SIZES
        for engine, name in _PEERS.items()
        for figure in _FIGURES
    },
    "search_peers.1000.tantivy.first": "tantivy, from tools to the first answer in a process that has imported it",
    **{
        f"search_memory_peers.{size}.{engine}": name if engine == "fastmcp" else f"{name}, the index alone"
        for size in _SIZES[1:]
        for engine, name in _PEERS.items()
    },
}
"""What a row can be compared with."""
