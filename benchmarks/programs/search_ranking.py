"""How often a search finds the right tool: ours, and SQLite's full-text search, over the labelled set.

By hand: `python -m benchmarks.programs.search_ranking --table` shows all of it (with the peers', if they are
installed); `--misses KIND` shows what the default search misses in the half that is for tuning.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys

from benchmarks.meter import Meter, run_program
from benchmarks.peers import FOLDER, ROOT
from benchmarks.ranking.labelled import KINDS, operations, queries
from benchmarks.ranking.score import DEPTH, Rank, figures, judge, missed, table
from toolexec import InMemoryIndex, LocalBinding, Tool
from toolexec.discovery import LexicalSearcher, Searcher


def ours(searcher: Searcher | None = None) -> Rank:
    """An index with all tools, and its search."""
    index = InMemoryIndex(searcher)
    tools = [Tool.from_dict(op.to_dict()) for op in operations()]
    index.register_many((tool, LocalBinding(tool.id)) for tool in tools)
    return lambda query: index.search(query, DEPTH).ids()


def hybrid() -> Rank | None:
    """BM25 and the static embedder together; None where the embedder's extra is not installed."""
    try:
        from toolexec.discovery.semantic import EmbeddingSearcher, HybridSearcher, StaticEmbedder
    except ImportError:
        return None
    from toolexec.discovery import BM25Searcher
    from toolexec.errors import MissingExtraError

    try:
        rank = ours(HybridSearcher(BM25Searcher(), EmbeddingSearcher(StaticEmbedder())))
        rank("warm up")
    except MissingExtraError:
        return None
    return rank


def fts5() -> Rank:
    """SQLite's full-text search with Porter's stemmer: any word may match, ranked by its BM25."""
    database = sqlite3.connect(":memory:")
    database.execute("create virtual table tools using fts5(id unindexed, text, tokenize='porter unicode61')")
    database.executemany("insert into tools values (?, ?)", [(op.id, op.text()) for op in operations()])

    def rank(query: str) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        statement = "select id from tools where tools match ? order by rank limit ?"
        return [row[0] for row in database.execute(statement, (words, DEPTH))] if words else []

    return rank


async def main(meter: Meter) -> None:
    """Each engine over all queries."""
    engines = {"toolexec": ours(), "toolexec_lexical": ours(LexicalSearcher()), "fts5": fts5()}
    mixed = hybrid()
    if mixed is not None:
        engines["toolexec_hybrid"] = mixed
    for name, rank in engines.items():
        for key, samples in figures(name, judge(rank)).items():
            meter.record(key, *samples)
    meter.facts["ranking.size"] = [len(operations()), len(queries())]
    if "--table" in sys.argv:
        print(table(meter.samples | peers()), file=sys.stderr)


def peers() -> dict[str, list[float]]:
    """What the peers' program measures; nothing if they are not installed."""
    command = [str(FOLDER / "bin" / "python"), "-m", "benchmarks.programs.peer_search_ranking"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return json.loads(done.stdout.splitlines()[-1])["samples"]


def show_misses(kind: str) -> None:
    """Print what the default search does not have among its first five."""
    rank = ours()
    for text, right, found in missed(rank, kind):
        print(f"{text!r}\n   wanted {', '.join(right)}\n   found  {', '.join(found)}")


if __name__ == "__main__":
    if "--misses" in sys.argv:
        for chosen in [name for name in KINDS if name in sys.argv] or KINDS:
            print(f"--- {chosen}")
            show_misses(chosen)
    else:
        run_program(main)
