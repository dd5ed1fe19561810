"""What a tool takes in the memory of other engines: FastMCP's tools with their index, the others' index alone.

The first argument is the number of tools. Each engine is measured in a process of its own, started by this one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice

from benchmarks.corpus import QUERIES, make_corpus
from benchmarks.footprint import memory_in_use
from benchmarks.meter import Meter, run_program
from benchmarks.peers import ROOT
from benchmarks.programs.peer_search_speed import ENGINES, Exact
from benchmarks.searches import size_asked


def measure(name: str, count: int) -> float:
    """Bytes a tool, after twenty searches."""
    make = ENGINES[name]
    make(list(islice(make_corpus(), 20))).search("warm up")
    before = memory_in_use()
    engine = make(_Once(count))  # type: ignore[arg-type]
    for query in QUERIES:
        engine.search(query.text)
    if isinstance(engine, Exact):
        engine.texts.clear()
    return (memory_in_use() - before) / count


class _Once:
    """The tools, made while they are read, so that the engine holds what it keeps and no more."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self):
        return islice(make_corpus(), self.count)


async def main(meter: Meter) -> None:
    """All of them."""
    count = size_asked(sys.argv)
    for name in ENGINES:
        command = [sys.executable, "-m", "benchmarks.programs.peer_search_memory", str(count), "--engine", name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=240)
        meter.record(f"search_memory_peers.{count}.{name}", json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    if "--engine" in sys.argv:
        print(measure(sys.argv[sys.argv.index("--engine") + 1], size_asked(sys.argv)))
    else:
        run_program(main)
