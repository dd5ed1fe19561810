"""Ten thousand calls at once of a tool that waits 10 ms, beside as many bare sleeps; and what stays in memory."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS, SCHEMA
from toolexec import Exec, Tool

SECONDS = 0.01
WAVES = 3


async def wait(args: dict[str, Any]) -> dict[str, Any]:
    """The 10 ms tool."""
    await asyncio.sleep(SECONDS)
    return args


def resident_bytes() -> int:
    """The memory of this process that is in use now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def main(meter: Meter) -> None:
    """One wave to warm up, then bare sleeps and calls in turn."""
    calls = 1000 if meter.quick else 10_000

    async def sleep_wave() -> float:
        started = perf_counter()
        await asyncio.gather(*(asyncio.sleep(SECONDS) for _ in range(calls)))
        return perf_counter() - started

    async with Exec() as ex:
        tool = Tool(name="wait", namespace="bench", input_schema=SCHEMA, output_schema=SCHEMA)
        ex.add(tool, handler=wait)

        async def call_wave() -> float:
            started = perf_counter()
            results = await asyncio.gather(*(ex.run_tool("bench:wait", ARGS) for _ in range(calls)))
            taken = perf_counter() - started
            assert all(result.value == ARGS for result in results)
            return taken

        await sleep_wave()
        await call_wave()
        gc.collect()
        memory, blocks = resident_bytes(), sys.getallocatedblocks()
        for _ in range(WAVES):
            ideal = await sleep_wave()
            ours = await call_wave()
            meter.record("concurrency.sleeps", ideal)
            meter.record("concurrency.calls", ours)
            meter.record("concurrency.ratio", ours / ideal)
            meter.record("concurrency.ratio_to_wait", ours / SECONDS)
        gc.collect()
        meter.record("concurrency.memory_growth", (resident_bytes() - memory) / 2**20)
        meter.record("concurrency.block_growth", (sys.getallocatedblocks() - blocks) / (WAVES * calls))
        meter.record("concurrency.memory", resident_bytes() / 2**20)


if __name__ == "__main__":
    run_program(main)
