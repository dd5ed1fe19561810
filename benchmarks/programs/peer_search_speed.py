"""Search of a large catalogue by others: bm25s, tantivy, SQLite FTS5 and FastMCP's BM25. The argument is the number of
tools. Each gets the same texts; FastMCP gets tools of its own kind."""

from __future__ import annotations

import asyncio
import gc
import re
import sqlite3
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from time import perf_counter, process_time
from typing import Any, Protocol

import bm25s
import numpy as np
import tantivy
from fastmcp.server.transforms.search.bm25 import BM25SearchTransform
from fastmcp.tools.base import Tool

from benchmarks.corpus import document_text
from benchmarks.meter import Meter, run_program
from benchmarks.searches import LIMIT, corpus_of, record_changes, record_once, record_search, size_asked


class Engine(Protocol):
    """A search over tools, given as JSON data."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None: ...

    def add(self, tool: dict[str, Any]) -> None:
        """One more tool, to be found from now on."""
        ...

    def search(self, query: str) -> list[str]:
        """The names of the best ten."""
        ...


class Exact:
    """bm25s: exact BM25 over a sparse matrix, with its own tokenizer and English stopwords. The best ten are picked
    from its scores in the way that numpy is fastest at; its own `retrieve` takes some ten times as long here. A change
    means to build it anew."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self.names = [tool["name"] for tool in tools]
        self.texts = [document_text(tool) for tool in tools]
        self.build()

    def build(self) -> None:
        """Read all texts."""
        self.engine = bm25s.BM25()
        words = bm25s.tokenize(self.texts, stopwords="en", show_progress=False)
        self.engine.index(words, show_progress=False)

    def add(self, tool: dict[str, Any]) -> None:
        """One more."""
        self.names.append(tool["name"])
        self.texts.append(document_text(tool))
        self.build()

    def search(self, query: str) -> list[str]:
        """The names of the best ten."""
        plain = query.replace("_", " ")
        words = bm25s.tokenize([plain], stopwords="en", return_ids=False, show_progress=False)
        below = -self.engine.get_scores(words[0])
        best = np.argpartition(below, LIMIT)[:LIMIT]
        return [self.names[place] for place in best[np.argsort(below[best])] if below[place] < 0]


class Tantivy:
    """tantivy with its default tokenizer, in memory, one thread."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("name", stored=True, tokenizer_name="raw")
        builder.add_text_field("text")
        self.index = tantivy.Index(builder.build())
        self.writer = self.index.writer(num_threads=1)
        for tool in tools:
            self.writer.add_document(tantivy.Document(name=tool["name"], text=document_text(tool)))
        self.show()

    def show(self) -> None:
        """Make what was added visible."""
        self.writer.commit()
        self.index.reload()
        self.searcher = self.index.searcher()

    def add(self, tool: dict[str, Any]) -> None:
        """One more."""
        self.writer.add_document(tantivy.Document(name=tool["name"], text=document_text(tool)))
        self.show()

    def search(self, query: str) -> list[str]:
        """The names of the best ten."""
        parsed, _ = self.index.parse_query_lenient(query.replace("_", " "), ["text"])
        return [self.searcher.doc(address)["name"][0] for _, address in self.searcher.search(parsed, LIMIT).hits]


class FullText:
    """SQLite FTS5 in memory."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self.database = sqlite3.connect(":memory:", check_same_thread=False)
        self.database.execute("create virtual table tools using fts5(name unindexed, text)")
        rows = ((tool["name"], document_text(tool)) for tool in tools)
        self.database.executemany("insert into tools values (?, ?)", rows)

    def add(self, tool: dict[str, Any]) -> None:
        """One more."""
        self.database.execute("insert into tools values (?, ?)", (tool["name"], document_text(tool)))

    def search(self, query: str) -> list[str]:
        """The names of the best ten."""
        words = " OR ".join(f'"{word}"' for word in re.findall(r"[^\W_]+", query))
        statement = "select name from tools where tools match ? order by rank limit ?"
        return [row[0] for row in self.database.execute(statement, (words, LIMIT))]


class FastMCP:
    """FastMCP's search transform, which looks at each search whether the catalogue has changed."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self.tools: list[Tool] = []
        self.names: dict[str, str] = {}
        for tool in tools:
            self.add(tool)
        self.transform = BM25SearchTransform(max_results=LIMIT)
        self.loop = asyncio.new_event_loop()

    def add(self, tool: dict[str, Any]) -> None:
        """One more."""
        name = f"{tool['namespace']}_{tool['name']}"
        self.names[name] = tool["name"]
        self.tools.append(
            Tool(
                name=name,
                title=tool["title"],
                description=tool["description"],
                parameters=tool["inputSchema"],
                tags=set(tool["tags"]),
            )
        )

    def search(self, query: str) -> list[str]:
        """The names of the best ten."""
        found = self.loop.run_until_complete(self.transform._search(self.tools, query))
        return [self.names[tool.name] for tool in found]


ENGINES: dict[str, type[Engine]] = {"bm25s": Exact, "tantivy": Tantivy, "fts5": FullText, "fastmcp": FastMCP}


def measure(meter: Meter, name: str, make: Callable[..., Engine], count: int) -> None:
    """One engine."""
    definitions, more = corpus_of(count, 200)
    prefix = f"search_peers.{count}.{name}"
    gc.collect()
    started, before = perf_counter(), process_time()
    engine = make(definitions)
    engine.search("release notes")
    taken, cpu = perf_counter() - started, process_time() - before
    for figure, units in (("build", count), ("first", 1)):
        meter.record(f"{prefix}.{figure}", taken / units)
        meter.record(f"{prefix}.{figure}@cpu", cpu / units)
    record_once(meter, f"{prefix}.once", engine.search)
    record_search(meter, prefix, engine.search)

    def change(number: int) -> None:
        engine.add(more[number])
        engine.search("create an invoice for a customer")

    record_changes(meter, f"{prefix}.add", change, len(more))


async def main(meter: Meter) -> None:
    """All of them, at one size."""
    count = size_asked(sys.argv)
    for name, make in ENGINES.items():
        await asyncio.to_thread(measure, meter, name, make, count)
    for package in ("bm25s", "tantivy", "fastmcp"):
        meter.facts[package] = version(package)


if __name__ == "__main__":
    run_program(main)
