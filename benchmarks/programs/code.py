"""Code that calls tools through `Exec.execute_code`: starting, calling, many runs at once, stopping."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from importlib.metadata import version
from time import perf_counter
from typing import Literal

import psutil

from benchmarks.meter import Meter, cpu_seconds, run_program
from toolexec import Exec
from toolexec.runtime.wasm.backend import WasmBackend

CALLS = 200
PAUSE = 0.05
WARM_UP = 6
FIVE_CALLS = "for i in range(5): tools.math.add(a=i, b=2)\n0"


def add(a: int, b: int = 0) -> int:
    """Add, in whatever thread."""
    return a + b


async def async_add(a: int, b: int = 0) -> int:
    """Add, on the event loop."""
    return a + b


async def wait(seconds: float = 0.05) -> int:
    """Wait on the event loop."""
    await asyncio.sleep(seconds)
    return 1


def block(seconds: float = 5.0) -> int:
    """Block a thread."""
    time.sleep(seconds)
    return 1


def executor(pool_size: int, more_tools: int = 0, workers: int | Literal["auto"] = "auto") -> Exec:
    """An Exec with the tools, and that many others."""
    ex = Exec(runtime_backends=[WasmBackend(pool_size=pool_size, workers=workers)], max_tool_calls=100_000)
    for number in range(more_tools):
        ex.add(lambda a=0: a, f"other{number % 100}:tool{number}")
    for function, name in ((add, "math:add"), (async_add, "math:async_add"), (wait, "math:wait"), (block, "os:block")):
        ex.add(function, name)
    return ex


async def timed(ex: Exec, code: str) -> float:
    """Seconds that one run took."""
    started = perf_counter()
    result = await ex.execute_code(code)
    taken = perf_counter() - started
    result.raise_for_error()
    return taken


async def runs(meter: Meter, name: str, ex: Exec, code: str) -> None:
    """Record single runs: each right after the last one, each after a pause, and many at once."""
    await meter.runs(name, lambda: timed(ex, code))


async def session_runs(meter: Meter, ex: Exec, code: str) -> None:
    """Record runs in one session, which keeps its state."""
    async with ex.session() as session:

        async def once() -> None:
            (await session.execute_code(code)).raise_for_error()

        await once()
        before = cpu_seconds()
        times = 5 if meter.quick else 60
        for _ in range(times):
            started = perf_counter()
            await once()
            meter.record("code.session_one_call", perf_counter() - started)
        meter.record("code.session_one_call@cpu", (cpu_seconds() - before) / times)
        for _ in range(times):
            await asyncio.sleep(PAUSE)
            started = perf_counter()
            await once()
            meter.record("code.session_one_call@paused", perf_counter() - started)


async def nested(meter: Meter, name: str, ex: Exec, code: Callable[[int], str]) -> None:
    """Record what one more call adds to a run: many calls beside none."""
    for _ in range(3 if meter.quick else 15):
        await asyncio.sleep(PAUSE)
        without = await timed(ex, code(0))
        await asyncio.sleep(PAUSE)
        meter.record(name, (await timed(ex, code(CALLS)) - without) / CALLS)


def gathered(tool: str) -> Callable[[int], str]:
    return lambda n: f"import asyncio\nlen(await asyncio.gather(*[{tool}(a=1, b=2) for _ in range({n})]))"


async def rush(meter: Meter) -> None:
    """64 runs of 5 calls at once, in turn in this process alone and with workers that have been started."""
    async with executor(pool_size=4) as ex, executor(pool_size=4, workers=0) as here:
        for _ in range(WARM_UP):  # workers are started by such a load
            await at_once(ex)
        await at_once(here)
        for _ in range(1 if meter.quick else 5):
            meter.record("code.rate_seconds_a_run", await at_once(ex))
            meter.record("code.rate_seconds_here", await at_once(here))


async def at_once(ex: Exec) -> float:
    """Seconds for each of 64 runs at once."""
    started = perf_counter()
    await asyncio.gather(*(timed(ex, FIVE_CALLS) for _ in range(64)))
    return (perf_counter() - started) / 64


async def many(meter: Meter, ex: Exec) -> None:
    """1,000 runs in a row and the memory that they leave."""
    code = FIVE_CALLS
    process = psutil.Process()
    for _ in range(50):
        await timed(ex, code)
    gc.collect()
    before = process.memory_info().rss
    for _ in range(50 if meter.quick else 1000):
        await timed(ex, code)
    gc.collect()
    meter.record("code.memory_growth", (process.memory_info().rss - before) / (1 << 20))


async def stopping(meter: Meter, ex: Exec) -> None:
    """How long after its deadline a run is over."""
    programs = {
        "loop": "while True: pass",
        "sleep": "import time; time.sleep(5)",
        "tool": "tools.os.block(seconds=0.6)",
        "regex": "import re; re.match('(a+)+b', 'a' * 40)",
    }
    for name, code in programs.items():
        for _ in range(2 if meter.quick else 5):
            await asyncio.sleep(PAUSE)
            started = perf_counter()
            result = await ex.execute_code(code, timeout=0.2)
            meter.record(f"code.overshoot_{name}", perf_counter() - started - 0.2)
            assert result.error is not None


async def main(meter: Meter) -> None:
    """All of it."""
    one = "tools.math.add(a=1, b=2)"
    async with executor(pool_size=4) as ex:
        await runs(meter, "code.pooled_no_call", ex, "1")
        await runs(meter, "code.pooled_one_call", ex, one)
        await session_runs(meter, ex, one)
        await nested(meter, "code.call_sync", ex, lambda n: f"for i in range({n}): tools.math.add(a=i, b=2)")
        await nested(meter, "code.call_async", ex, lambda n: f"for i in range({n}): tools.math.async_add(a=i, b=2)")
        await nested(meter, "code.call_awaited", ex, lambda n: f"for i in range({n}): await tools.math.async_add(a=i)")
        await nested(meter, "code.gathered_async", ex, gathered("tools.math.async_add"))
        await nested(meter, "code.gathered_sync", ex, gathered("tools.math.add"))
        slow = "import asyncio\nsum(await asyncio.gather(*[tools.math.wait() for _ in range(100)]))"
        for _ in range(5):
            meter.record("code.gather_100_waits", await timed(ex, slow))
        await stopping(meter, ex)
        await many(meter, ex)
    await rush(meter)
    async with executor(pool_size=0) as ex:
        await runs(meter, "code.fresh_one_call", ex, one)
    async with executor(pool_size=4, more_tools=1_000 if meter.quick else 100_000) as ex:
        await nested(meter, "code.call_sync_large", ex, lambda n: f"for i in range({n}): tools.math.add(a=i, b=2)")
    meter.facts["wasmtime"] = version("wasmtime")


if __name__ == "__main__":
    run_program(main)
