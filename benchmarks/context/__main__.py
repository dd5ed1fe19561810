"""`python -m benchmarks.context`: replay all tasks, and print what they took."""

from __future__ import annotations

import argparse
import asyncio
import json

from benchmarks.context.budget import EXPOSED, RECORDED, sampled
from benchmarks.context.catalogue import FEW, tasks
from benchmarks.context.replay import First, Totals, replay, totals
from benchmarks.context.task import Task
from benchmarks.context.world import world
from toolexec.server.settings import Expose


async def measured(expose: Expose, total: int | None, chosen: list[Task], *, first: First = "task") -> Totals:
    """Replay tasks with one way to expose *total* tools; return what they took."""
    async with world(expose, total) as served:
        costs = [await replay(served, task, first=first) for task in chosen]
        return totals(served.fixed, costs)


async def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context", description=__doc__)
    parser.add_argument("--expose", action="append", choices=["direct", "meta", "code"])
    parser.add_argument("--few", action="store_true", help="only with 227 tools")
    parser.add_argument("--tasks", type=int, help="how many tasks, evenly chosen")
    parser.add_argument("--record", action="store_true", help="write the budget that CI keeps, and nothing else")
    asked = parser.parse_args()
    if asked.record:
        budget = {expose: await sampled(expose) for expose in EXPOSED}
        RECORDED.write_text(f"{json.dumps(budget, indent=2)}\n")
        print(RECORDED.read_text())
        return
    every = tasks()
    chosen = every[:: max(len(every) // asked.tasks, 1)] if asked.tasks else every
    print(f"{len(chosen)} tasks, {sum(len(task.calls) for task in chosen)} calls")
    for total in (FEW,) if asked.few else (FEW, None):
        for expose in asked.expose or ("direct", "meta", "code"):
            for first in ("task", "queries") if expose != "direct" else ("task",):
                took = await measured(expose, total, chosen, first=first)
                print(
                    f"{total or 'all':>5} {expose:7} first by {first:8} fixed {took.fixed:>7,} context "
                    f"{took.context:>12,} (structured {took.structured:>12,}) billed {took.billed:>13,} "
                    f"turns {took.turns}",
                    flush=True,
                )


if __name__ == "__main__":
    asyncio.run(_main())
