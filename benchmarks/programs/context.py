"""How many tokens of context a task takes, by what the server exposes; see `benchmarks/context`."""

from __future__ import annotations

from benchmarks.context.__main__ import measured
from benchmarks.context.catalogue import FEW, tasks
from benchmarks.meter import Meter, run_program


async def main(meter: Meter) -> None:
    """All tasks, with few tools and with all."""
    chosen = tasks()[::10] if meter.quick else tasks()
    for size, total in (("few", FEW), ("all", None)):
        for expose in ("direct", "meta", "code"):
            for first in ("task", "queries") if expose != "direct" else ("task",):
                took = await measured(expose, total, chosen, first=first)
                for name, value in took.per(len(chosen)).items():
                    meter.record(f"context.{size}.{expose}.{first}.{name}", value)
    meter.facts["context.tasks"] = [len(chosen), sum(len(task.calls) for task in chosen)]


if __name__ == "__main__":
    run_program(main)
