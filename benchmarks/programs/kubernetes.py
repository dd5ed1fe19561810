"""Code in pods of the cluster of the tests, beside the container start underneath: cold, warm, fifty at once, calls."""

from __future__ import annotations

import asyncio
from time import perf_counter

from benchmarks.meter import Meter, run_program
from benchmarks.programs.sandbox import calls, opened, run, starts, warm
from benchmarks.sandboxes import Place, place

KIND = "kubernetes"
AT_ONCE = 50


async def main(meter: Meter) -> None:
    """Everything in one cluster."""
    with place(KIND) as here:
        await starts(meter, KIND, here)
        await warm(meter, KIND, here)
        await calls(meter, KIND, here)
        await at_once(meter, here)


async def at_once(meter: Meter, here: Place) -> None:
    """Fifty runs that are started together, until the last has ended."""
    async with opened(here, max_running=AT_ONCE) as ex:
        await run(ex, "return 1")
        began = perf_counter()
        results = await asyncio.gather(*(run(ex, f"return {n}", timeout=100) for n in range(AT_ONCE)))
        meter.record(f"sandbox.{KIND}.fifty", perf_counter() - began)
        assert [result.value for result in results] == [*range(AT_ONCE)]


if __name__ == "__main__":
    run_program(main)
