"""pydantic-monty: a new pool for a run, a warm pool, one session, and calls in a warm one."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from time import perf_counter
from typing import Any

import pydantic_monty

from benchmarks.meter import Meter, run_program

CALLS = 200


async def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


async def fresh(code: str) -> Any:
    """One run in a pool of its own."""
    async with pydantic_monty.AsyncMonty() as pool, pool.checkout() as session:
        return await session.feed_run(code, external_lookup={"add": add})


async def main(meter: Meter) -> None:
    """Start with one call: cold, from a warm pool, in one session; then what a call adds, one by one and gathered."""
    await meter.runs("peers.monty_one_call", lambda: fresh("await add(1, 2)"))
    one_by_one = "n = 0\nfor i in range({}):\n    n = await add(i, 2)\nn"
    together = "import asyncio\nr = await asyncio.gather(*[add(i, 2) for i in range({})])\nlen(r)"
    async with pydantic_monty.AsyncMonty() as pool:

        async def checked_out() -> None:
            async with pool.checkout() as session:
                assert await session.feed_run("await add(1, 2)", external_lookup={"add": add}) == 3

        await meter.runs("peers.monty_warm_one_call", checked_out)
        async with pool.checkout() as kept:
            for _ in range(5 if meter.quick else 60):
                started = perf_counter()
                await kept.feed_run("await add(1, 2)", external_lookup={"add": add})
                meter.record("peers.monty_session_one_call", perf_counter() - started)

        async def timed(code: str) -> float:
            async with pool.checkout() as session:
                started = perf_counter()
                await session.feed_run(code, external_lookup={"add": add})
                return perf_counter() - started

        for name, code in (("peers.monty_call", one_by_one), ("peers.monty_gathered", together)):
            for _ in range(3 if meter.quick else 15):
                without = await timed(code.format(0))
                meter.record(name, (await timed(code.format(CALLS)) - without) / CALLS)
                await asyncio.sleep(0.01)
    meter.facts["pydantic-monty"] = version("pydantic-monty")


if __name__ == "__main__":
    run_program(main)
