"""Search of a large catalogue: build, ask, change, and ask from many threads. The argument is the number of tools."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, sleep
from typing import Any

from benchmarks.corpus import QUERIES
from benchmarks.meter import Meter, run_program
from benchmarks.searches import LIMIT, corpus_of, record_changes, record_once, record_search, size_asked
from toolexec import InMemoryIndex, LocalBinding, Tool
from toolexec.discovery import BM25Searcher
from toolexec.discovery.catalogue import SQLiteCatalogue

FIRST = "release notes"
ADDED = 200
THREADS = 8


def filled(tools: Sequence[Tool]) -> InMemoryIndex:
    """An index that has answered its first search."""
    index = InMemoryIndex()
    index.register_many((tool, LocalBinding(tool.id)) for tool in tools)
    assert index.search(FIRST, LIMIT)
    return index


def measure_builds(meter: Meter, prefix: str, definitions: Sequence[dict[str, Any]]) -> InMemoryIndex:
    """From tools, or from JSON data, to the first answer, a tool; then many queries, each for the first time."""
    count = len(definitions)
    times = 1 if meter.quick else max(1, min(5, 30_000 // count))
    for _ in range(times):
        gc.collect()
        started = perf_counter()
        filled([Tool.from_dict(definition) for definition in definitions])
        meter.record(f"{prefix}.build_from_data", (perf_counter() - started) / count)
    tools = [Tool.from_dict(definition) for definition in definitions]
    index = InMemoryIndex()
    for _ in range(times):
        gc.collect()
        started, before = perf_counter(), process_time()
        index = filled(tools)
        meter.record(f"{prefix}.build", (perf_counter() - started) / count)
        meter.record(f"{prefix}.build@cpu", (process_time() - before) / count)
    record_once(meter, f"{prefix}.once", lambda query: index.search(query, LIMIT))
    return index


def measure_opening(meter: Meter, prefix: str, index: InMemoryIndex) -> None:
    """The first query of a catalogue that was stored."""
    with TemporaryDirectory() as folder, SQLiteCatalogue(f"{folder}/tools.db") as catalogue:
        catalogue.save(index)
        for _ in range(3):
            opened = catalogue.open()
            started = perf_counter()
            assert opened.search(QUERIES[0].text, LIMIT)
            meter.record(f"{prefix}.opened", perf_counter() - started)


def measure_searches(meter: Meter, prefix: str, index: InMemoryIndex, tools: Sequence[Tool]) -> None:
    """The searcher alone, which gives IDs, and the index, which gives summaries."""
    names = {tool.id: tool.name for tool in tools}
    searcher = BM25Searcher()
    for tool in tools:
        searcher.add(tool)
    searcher.search(FIRST, LIMIT)
    record_search(meter, f"{prefix}.ids", lambda query: [names[hit.tool_id] for hit in searcher.search(query, LIMIT)])
    record_search(meter, f"{prefix}.index", lambda query: [found.name for found in index.search(query, LIMIT)])


def measure_changes(meter: Meter, prefix: str, index: InMemoryIndex, more: Sequence[dict[str, Any]]) -> None:
    """One tool comes, and a search follows; one tool goes, and a search follows."""
    tools = [Tool.from_dict(definition) for definition in more]
    texts = [query.text for query in QUERIES]

    def add(number: int) -> None:
        index.register(tools[number], LocalBinding(tools[number].id))
        index.search(texts[number % len(texts)], LIMIT)

    def remove(number: int) -> None:
        index.unregister(tools[number].id)
        index.search(texts[number % len(texts)], LIMIT)

    record_changes(meter, f"{prefix}.add", add, len(tools))
    record_changes(meter, f"{prefix}.remove", remove, len(tools))


def measure_threads(meter: Meter, prefix: str, index: InMemoryIndex, more: Sequence[dict[str, Any]]) -> None:
    """Eight threads search while one adds and removes a tool every two milliseconds: the time for each search, all
    threads together, and how many changes a second there were."""
    tools = [Tool.from_dict(definition) for definition in more]
    done = [0] * THREADS
    over = threading.Event()

    def search(place: int) -> None:
        while not over.is_set():
            index.search(QUERIES[(done[place] + place) % len(QUERIES)].text, LIMIT)
            done[place] += 1

    threads = [threading.Thread(target=search, args=(place,)) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    changes = 0
    started = perf_counter()
    while perf_counter() - started < (0.5 if meter.quick else 2):
        tool = tools[changes // 2 % len(tools)]
        if changes % 2:
            index.unregister(tool.id)
        else:
            index.register(tool, LocalBinding(tool.id))
        changes += 1
        sleep(0.002)
    over.set()
    taken = perf_counter() - started
    for thread in threads:
        thread.join()
    meter.record(f"{prefix}.threads", taken / sum(done))
    meter.record(f"{prefix}.threads_change", taken / changes)


async def main(meter: Meter) -> None:
    """All of it for one size."""
    count = size_asked(sys.argv)
    definitions, more = corpus_of(count, ADDED)
    prefix = f"search.{count}"

    def measure() -> None:
        index = measure_builds(meter, prefix, definitions)
        measure_opening(meter, prefix, index)
        tools = [entry.tool for entry in index.tools()]
        measure_searches(meter, prefix, index, tools)
        measure_changes(meter, prefix, index, more)
        measure_threads(meter, prefix, index, more)

    await asyncio.to_thread(measure)


if __name__ == "__main__":
    run_program(main)
