"""The first search of a process among 1,000 tools: from `Exec()` to the answer, with what that imports."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter, process_time

from benchmarks.meter import Meter, run_program
from benchmarks.searches import LIMIT, corpus_of

TOOLS = 1_000
QUERY = "release notes"
WAYS = ("index", "add")


def search(way: str) -> None:
    """Print the seconds, and those of the processor, of this process: with an index that is given all tools at once
    (`index`), or with `Exec.add` for each (`add`), which compiles their schemas, too."""
    from toolexec import Exec, InMemoryIndex, LocalBinding, Tool

    tools = [Tool.from_dict(definition) for definition in corpus_of(TOOLS)[0]]

    async def answer() -> int:
        if way == "add":
            ex = Exec()
            for tool in tools:
                ex.add(tool, handler=dict)
        else:
            index = InMemoryIndex()
            index.register_many((tool, LocalBinding(tool.id)) for tool in tools)
            ex = Exec(index=index)
        return len(await ex.search_tools(QUERY, LIMIT))

    _print_taken(lambda: asyncio.run(answer()))


def _print_taken(work: Callable[[], int]) -> None:
    started, before = perf_counter(), process_time()
    found = work()
    print(perf_counter() - started, process_time() - before, found)


async def main(meter: Meter) -> None:
    """Each way in turn, each time in a process of its own; the first writes the byte code."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for number in range(1 + (5 if meter.quick else 30)):
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.programs.first_search", "--search", way]
            done = subprocess.run(command, check=True, env=env, capture_output=True, text=True)
            taken, cpu, found = map(float, done.stdout.split())
            if found != LIMIT:
                raise ValueError(f"the first search found {found:.0f} tools")
            if number:
                meter.record(f"first_search.{way}", taken)
                meter.record(f"first_search.{way}@cpu", cpu)


if __name__ == "__main__":
    if "--search" in sys.argv:
        search(sys.argv[-1])
    else:
        run_program(main)
