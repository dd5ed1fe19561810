"""How often other engines find the right tool: bm25s, tantivy and FastMCP's BM25, over the labelled set."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import bm25s
import Stemmer
import tantivy
from fastmcp.server.transforms.search.bm25 import BM25SearchTransform
from fastmcp.tools.base import Tool

from benchmarks.meter import Meter, run_program
from benchmarks.ranking.labelled import operations
from benchmarks.ranking.score import DEPTH, Rank, figures, judge

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def exact(*, stemmer: Any = None, split: bool = False) -> Rank:
    """bm25s with its own tokenizer and English stopwords; *split*: after names were cut into their words."""

    def cut(text: str) -> str:
        return " ".join(_PART.findall(text)) if split else text

    ids = [op.id for op in operations()]
    engine = bm25s.BM25()
    texts = [cut(op.text()) for op in operations()]
    engine.index(bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)

    def rank(query: str) -> list[str]:
        words = bm25s.tokenize([cut(query)], stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)
        found, scores = engine.retrieve(words, k=DEPTH, show_progress=False)
        return [ids[int(place)] for place, score in zip(found[0], scores[0], strict=True) if score > 0]

    return rank


def lucene_like() -> Rank:
    """tantivy with its default tokenizer: any word may match."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw")
    builder.add_text_field("text")
    index = tantivy.Index(builder.build())
    writer = index.writer(num_threads=1)
    for op in operations():
        writer.add_document(tantivy.Document(id=op.id, text=op.text()))
    writer.commit()
    index.reload()
    searcher = index.searcher()

    def rank(query: str) -> list[str]:
        parsed, _ = index.parse_query_lenient(query, ["text"])
        return [searcher.doc(address)["id"][0] for _, address in searcher.search(parsed, DEPTH).hits]

    return rank


def fastmcp_bm25() -> Rank:
    """FastMCP's search over tools of its own kind; the namespace stands before the name, as a mounted server's does."""
    names = {f"{op.namespace}_{op.name}": op.id for op in operations()}
    tools = [
        Tool(name=name, description=op.description, parameters=op.to_dict()["inputSchema"], tags={op.tag})
        for name, op in zip(names, operations(), strict=True)
    ]
    transform = BM25SearchTransform(max_results=DEPTH)

    def rank(query: str) -> Sequence[str]:
        return [names[tool.name] for tool in asyncio.run(transform._search(tools, query))]

    return rank


async def main(meter: Meter) -> None:
    """Each engine over all queries."""
    stemmer = Stemmer.Stemmer("english")
    engines = {
        "bm25s": exact(),
        "bm25s_stemmed": exact(stemmer=stemmer),
        "bm25s_stemmed_split": exact(stemmer=stemmer, split=True),
        "tantivy": lucene_like(),
        "fastmcp": fastmcp_bm25(),
    }
    for name, rank in engines.items():
        scores = await asyncio.to_thread(judge, rank)
        for key, samples in figures(name, scores).items():
            meter.record(key, *samples)
    for package in ("bm25s", "tantivy", "fastmcp"):
        meter.facts[package] = version(package)


if __name__ == "__main__":
    run_program(main)
