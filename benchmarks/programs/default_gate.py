"""`Exec.run_tool` with checks: without a gate, with the default one, and the floor, in turn in one process."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from benchmarks.meter import Meter, run_program
from benchmarks.programs.calls import echo_tool
from benchmarks.programs.echo import ARGS, answer
from benchmarks.programs.floor import run_checked
from toolexec import Exec

BATCH = 500


async def batch(call: Callable[[str, dict[str, Any]], Awaitable[Any]]) -> float:
    """The seconds of a call, as the mean of many."""
    started = perf_counter()
    for _ in range(BATCH):
        await call("bench:echo", ARGS)
    return (perf_counter() - started) / BATCH


async def main(meter: Meter) -> None:
    """Each beside the others, so that nothing else that happens on the machine falls on one side."""
    async with Exec(gate=None) as bare, Exec() as gated:
        for ex in (bare, gated):
            ex.add(echo_tool(), handler=answer)
            assert (await ex.run_tool("bench:echo", ARGS)).raise_for_error().value == ARGS
        calls = {"floor": run_checked, "none": bare.run_tool, "default": gated.run_tool}
        for call in calls.values():
            await batch(call)
        gc.collect()
        for number in range(10 if meter.quick else 60):
            order = list(calls) if number % 2 else [*reversed(calls)]
            taken = {name: await batch(calls[name]) for name in order}
            for name, seconds in taken.items():
                meter.record(f"default_gate.{name}", seconds)
            meter.record("default_gate.added", taken["default"] - taken["none"])


if __name__ == "__main__":
    run_program(main)
