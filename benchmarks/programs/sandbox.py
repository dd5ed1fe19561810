"""Code in one kind of container sandbox, beside the runtime's own start of `python3 -c 1`: start, calls, bytes."""

from __future__ import annotations

import asyncio
import sys
from time import perf_counter
from typing import Any

from benchmarks.meter import Meter, run_program
from benchmarks.sandboxes import Place, place
from toolexec import Exec
from toolexec.code.limits import Limits

MEGABYTES = 100
ONE_CALL = "return tools.math.add(a=1, b=2)"
CALLS = """
import time
tools.math.add(a=1, b=2)
began = time.perf_counter()
for _ in range(200):
    tools.math.add(a=1, b=2)
return (time.perf_counter() - began) / 200
"""
GATHERED = """
import asyncio, time
await asyncio.gather(*(tools.math.add(a=1, b=2) for _ in range(200)))
began = time.perf_counter()
await asyncio.gather(*(tools.math.add(a=1, b=2) for _ in range(200)))
return (time.perf_counter() - began) / 200
"""
RESULTS = "n = sum(len(tools.bench.large()) for _ in range(10))\nassert n == 100_000_000\nreturn n"
FILE = "return len(open('large.bin', 'rb').read())"
FILE_OUT = "open('large.bin', 'wb').write(b'x' * 100_000_000)\nreturn 1"


async def main(meter: Meter) -> None:
    """Everything about the kind that the command line names."""
    kind = sys.argv[1]
    with place(kind) as here:
        await starts(meter, kind, here)
        await warm(meter, kind, here)
        await calls(meter, kind, here)
        await data(meter, kind, here)


def opened(here: Place, **settings: Any) -> Exec:
    """An Exec with nothing but this sandbox, and two tools."""
    ex = Exec(runtime_backends={"standard": [here.make(**settings)]}, result_bytes=64 << 20, max_tool_calls=1000)

    async def add(a: int, b: int) -> int:
        return a + b

    async def large() -> str:
        return "x" * 10_000_000

    ex.add(add, "math:add")
    ex.add(large, "bench:large")
    return ex


async def run(ex: Exec, code: str, **settings: Any) -> Any:
    """The value of a program, which must succeed."""
    result = await ex.execute_code(code, **settings)
    assert result.error is None, result.error
    return result


async def starts(meter: Meter, kind: str, here: Place) -> None:
    """Cold runs with one tool call and raw starts, in turn."""
    async with opened(here) as ex:
        await run(ex, ONE_CALL)
        here.raw()
        for _ in range(5 if meter.quick else 20):
            raw = await asyncio.to_thread(here.raw)
            await asyncio.sleep(0.2)
            began = perf_counter()
            await run(ex, ONE_CALL)
            cold = perf_counter() - began
            await asyncio.sleep(0.2)  # its container is removed meanwhile, as the raw one was within its time
            meter.record(f"sandbox.{kind}.raw", raw)
            meter.record(f"sandbox.{kind}.cold", cold)
            meter.record(f"sandbox.{kind}.cold_ratio", cold / raw)


async def warm(meter: Meter, kind: str, here: Place) -> None:
    """Runs that find a guest ready."""
    backend: Any = None

    async with opened(here, warm=2) as ex:
        backend = ex.runtime.backends[0]
        await run(ex, ONE_CALL)
        for _ in range(5 if meter.quick else 30):
            while backend.warm_stats.idle < 2:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)
            began = perf_counter()
            result = await run(ex, ONE_CALL)
            assert result.backend.details["warm"]
            meter.record(f"sandbox.{kind}.warm", perf_counter() - began)


async def calls(meter: Meter, kind: str, here: Place) -> None:
    """What one more tool call costs, as the program itself sees it."""
    async with opened(here) as ex, ex.session() as session:
        for name, code in (("call", CALLS), ("gathered", GATHERED)):
            for _ in range(2 if meter.quick else 8):
                result = await session.execute_code(code)
                assert result.error is None, result.error
                meter.record(f"sandbox.{kind}.{name}", result.value)


async def data(meter: Meter, kind: str, here: Place) -> None:
    """A hundred million bytes through results of tools, and as a file in and out."""
    limits = Limits(memory_bytes=2 << 30, disk_bytes=512 << 20)
    large = {"large.bin": b"x" * 100_000_000}
    async with opened(here, limits=Limits(memory_bytes=2 << 30, pids=128, disk_bytes=512 << 20)) as ex:
        async with ex.session() as session:
            for _ in range(1 if meter.quick else 3):
                began = perf_counter()
                result = await session.execute_code(RESULTS)
                assert result.value == 100_000_000, result.error
                meter.record(f"sandbox.{kind}.results_100mb", perf_counter() - began)
        for _ in range(1 if meter.quick else 3):
            for name, code, files in (("file_in", FILE, large), ("file_out", FILE_OUT, {})):
                began = perf_counter()
                result = await run(ex, code, files=files, limits=limits)
                meter.record(f"sandbox.{kind}.{name}_100mb", perf_counter() - began)
                assert name == "file_in" or len(result.files["large.bin"]) == 100_000_000


if __name__ == "__main__":
    run_program(main)
