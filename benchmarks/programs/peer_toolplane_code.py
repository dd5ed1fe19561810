"""toolplane on Monty, its sandbox (its default is the process itself): one run with one call, and each call."""

from __future__ import annotations

from importlib.metadata import version
from time import perf_counter

from toolplane import Toolplane

from benchmarks.meter import Meter, run_program

CALLS = 200


async def main(meter: Meter) -> None:
    """Both."""
    plane = Toolplane()

    @plane.tool
    async def add(a: int, b: int = 0) -> int:
        """Add."""
        return a + b

    code = "n = 0\nfor i in range({}):\n    n = await add(a=i, b=2)\nreturn n"

    async def timed(calls: int) -> float:
        started = perf_counter()
        result = await plane.execute(code.format(calls), backend="monty")
        taken = perf_counter() - started
        assert result.ok, result
        return taken

    await meter.runs("peers.toolplane_one_call", lambda: timed(1), 25)
    for _ in range(2 if meter.quick else 10):
        without = await timed(0)
        meter.record("peers.toolplane_call", (await timed(CALLS) - without) / CALLS)
    meter.facts["toolplane"] = version("toolplane")


if __name__ == "__main__":
    run_program(main)
