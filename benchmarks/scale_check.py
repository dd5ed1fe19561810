"""Real servers beside their simulation: what a run costs here is measured, and nothing else is given to it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from statistics import median
from time import perf_counter

from benchmarks.programs.remote import ONE_CALL, opened, servers, value
from benchmarks.scale import Load, Report, simulate
from benchmarks.spent import Spent, spent
from toolexec import Exec

_RUNS = 400
_ROUNDS = 3


async def check(seconds: float) -> None:
    """Show real runs on 1, 2 and 4 servers, of one caller and of 20, beside the simulation of them."""
    cores = os.cpu_count() or 1
    for many in (1, 2, 4):
        with servers(many) as addresses:
            costs = await _costs(addresses)
            print(
                f"{many} servers: a run takes {1000 * costs.caller:.2f} ms of the caller's loop, "
                f"{1000 * costs.loop:.2f} ms of the server's and {1000 * costs.rest:.2f} ms of computing",
                flush=True,
            )
            for callers, wait, share in ((1, 0.0, 0.5), (20, 0.0, 0.5), (20, 0.1, 0.5), (20, 0.1, 1.2)):
                load = Load(
                    rate=1,
                    seconds=seconds,
                    callers=callers,
                    caller_processes=1,
                    servers=many,
                    shared_cores=cores,
                    caller=costs.caller,
                    loop=costs.loop,
                    cpu=costs.rest,
                    wait=wait,
                    is_steady=True,
                )
                load = replace(load, rate=share * load.most)
                measured, expected = await _real(load, addresses), simulate(load)
                print(f"  {load.rate:.0f} runs/s of {callers} callers, tools that take {1000 * wait:.0f} ms")
                print(f"    measured   {measured}")
                print(f"    simulated  {expected}", flush=True)


async def _costs(addresses: Sequence[str]) -> Spent:
    """Return what a run takes when there are always enough of them: the medians of some rounds."""
    found: list[Spent] = []
    async with opened(*addresses) as ex:
        await asyncio.gather(*(value(ex, ONE_CALL) for _ in range(64)))
        for _ in range(_ROUNDS):
            before = spent()
            await asyncio.gather(*(value(ex, ONE_CALL) for _ in range(_RUNS)))
            found.append(spent().since(before, _RUNS))
    return Spent(*(median(getattr(each, name) for each in found) for name in ("caller", "loop", "rest")))


async def _real(load: Load, addresses: Sequence[str]) -> Report:
    """Have real servers run programs that call a tool which waits `load.wait`, at random times as in the simulation."""
    report, dice, times = Report(), random.Random(load.seed), list[float]()
    now = dice.expovariate(load.rate)
    while now < load.seconds:
        times.append(now)
        now += dice.expovariate(load.rate)
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(opened(*addresses)) for _ in range(load.callers)]
        for ex in callers:
            ex.add(_pause, "math:pause")
        code = f"return tools.math.pause(seconds={load.wait})" if load.wait else ONE_CALL
        await asyncio.gather(*(value(ex, code) for ex in callers for _ in range(2)))
        began = perf_counter()

        async def one(ex: Exec, when: float) -> None:
            await asyncio.sleep(max(0.0, when - (perf_counter() - began)))
            came = perf_counter() - began
            await value(ex, code)
            done = perf_counter() - began
            report.ended += 1
            report.took.append(done - came)
            report.per_second += load.seconds / 2 < done <= load.seconds

        await asyncio.gather(*(one(dice.choice(callers), when) for when in times))
    report.per_second /= load.seconds / 2
    report.busy = load.wait * report.ended / load.seconds / (load.servers * load.slots)
    return report


async def _pause(seconds: float) -> float:
    """Wait."""
    await asyncio.sleep(seconds)
    return seconds
