"""What a tool of a catalogue takes in memory, with the index over it. The argument is the number of tools."""

from __future__ import annotations

import sys
from itertools import islice

from benchmarks.corpus import QUERIES, make_corpus
from benchmarks.footprint import memory_in_use
from benchmarks.meter import Meter, run_program
from benchmarks.searches import LIMIT, size_asked
from toolexec import InMemoryIndex, LocalBinding, Tool


def catalogue(count: int) -> InMemoryIndex:
    """An index with the first tools of the corpus, each made from JSON data that is thrown away."""
    index = InMemoryIndex()
    for definition in islice(make_corpus(), count):
        tool = Tool.from_dict(definition)
        index.register(tool, LocalBinding(tool.id))
    return index


def ask(index: InMemoryIndex) -> None:
    """Every query once, so that all that searching keeps is there."""
    for query in QUERIES:
        index.search(query.text, LIMIT)


async def main(meter: Meter) -> None:
    """The catalogue before the first search, and all of it after twenty."""
    count = size_asked(sys.argv)
    ask(catalogue(20))
    before = memory_in_use()
    index = catalogue(count)
    meter.record(f"search_memory.{count}.catalogue", (memory_in_use() - before) / count)
    ask(index)
    meter.record(f"search_memory.{count}.all", (memory_in_use() - before) / count)


if __name__ == "__main__":
    run_program(main)
