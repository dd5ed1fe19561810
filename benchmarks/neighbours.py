"""What a hostile tenant costs its neighbours: `python -m benchmarks.neighbours [WAY...]`, six minutes for all ways.

Starts a server of sandboxes, runs programs with one call each for one tenant, one after the other, and prints how long
they took: alone, and while another tenant (or a stranger), in a process of its own, does its worst, in each of the ways
that the tests have.
Each way is measured twice: with a client of the hostile tenant as it is, which competes with the neighbours and the
server for the cores of this machine, and with one of the lowest priority, so that what is left is the server's doing.
Beside the times stands what the kernel counts: the processor time of the server's event loop, how long the loop waited
for a core, and what part of a core the hostile client took, which says whose fault a time is.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

import psutil
from packages.remote.tests.hostile import WAYS, memory_of
from packages.remote.tests.servers import Client, server_process

from benchmarks.spent import loop_times

RUNS: Final = 300
ALONE: Final = 100
"""How many programs run before each way, to compare it with: a machine is not the same for three minutes."""
PAUSE: Final = 2.0
NICE: Final = (0, 19)
"""By how much the priority of the hostile client is lower."""
SETTINGS = {
    "max_running": 6,
    "max_queued": 200,
    "max_held": 64 << 20,
    "max_connections": 50,
    "max_anonymous": 10,
    "slot_idle": 1.0,
    "reconnect": 0.5,
}
_numbers = count()


@dataclass(frozen=True, slots=True)
class Took:
    """How many milliseconds programs took, the shortest first; of the event loop, for each: of a core, and waiting."""

    times: Sequence[float]
    loop: float
    waited: float

    @property
    def p50(self) -> float:
        """The median."""
        return median(self.times)

    @property
    def p99(self) -> float:
        """The time that one of a hundred exceeds."""
        return self.times[len(self.times) * 99 // 100 - 1]


async def took(endpoint: str, pid: int, runs: int) -> Took:
    """Return what some programs took."""
    times: list[float] = []
    async with Client(endpoint, name="neighbour") as client:
        before = loop_times(pid)
        for _ in range(runs):
            run, began = f"run-{next(_numbers)}", perf_counter()
            await client.execute(run, "return tools.math.add(a=1, b=2)", timeout=60)
            await client.answer(run, lambda _: 3)
            (await client.result(run)).raise_for_error()
            times.append((perf_counter() - began) * 1000)
        after = loop_times(pid)
    of_each = [(now - then) * 1000 / runs for now, then in zip(after, before, strict=True)]
    return Took(sorted(times), *of_each)


@asynccontextmanager
async def hostile(way: str, endpoint: str, nice: int = 0) -> AsyncGenerator[psutil.Process]:
    """Have a process do its worst, with a priority that is lower by *nice*; give it."""
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", str(nice), sys.executable, "-m", "benchmarks.neighbours", "--be", way, endpoint),
        stdin=PIPE,
        stdout=PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield psutil.Process(process.pid)
    finally:
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def be_hostile(way: str, endpoint: str) -> None:
    """Do it until the other side hangs up."""
    async with WAYS[way](endpoint):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def measure(endpoint: str, pid: int, ways: Sequence[str]) -> None:
    """Print rows for each way, beside those of the programs that ran alone just before."""
    await took(endpoint, pid, ALONE)  # the server warms up
    print(
        "ms, cores      nice    p50    p99   alone: p50    p99   p99 is    loop  alone  waits  alone  hostile  mem. MB"
    )
    worst = dict.fromkeys(NICE, 0.0)
    for way, nice in product(ways, NICE):
        alone = await took(endpoint, pid, ALONE)
        async with hostile(way, endpoint, nice) as process:
            before, began = sum(process.cpu_times()[:2]), perf_counter()
            beside = await took(endpoint, pid, RUNS)
            cores = (sum(process.cpu_times()[:2]) - before) / (perf_counter() - began)
        worst[nice] = max(worst[nice], ratio := beside.p99 / alone.p99)
        print(
            f"{way:14} {nice:4} {beside.p50:6.1f} {beside.p99:6.1f} {alone.p50:12.1f} {alone.p99:6.1f} {ratio:6.1f} x "
            f"{beside.loop:7.2f} {alone.loop:6.2f} {beside.waited:6.2f} {alone.waited:6.2f} {cores:8.2f} "
            f"{memory_of(pid) >> 20:10}",
            flush=True,
        )
        await asyncio.sleep(PAUSE)  # what the hostile tenant left behind is stopped
    print(f"the worst is {worst[0]:.1f} times what it is alone, and {worst[19]:.1f} beside clients of low priority")


def main(ways: Sequence[str]) -> None:
    """Measure these ways, or all of them."""
    if ways[:1] == ["--be"]:
        asyncio.run(be_hostile(*ways[1:]))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        server_process(Path(directory) / "server", **SETTINGS) as server,
    ):
        assert server.process is not None
        asyncio.run(measure(server.endpoint, server.process.pid, ways or [*WAYS]))


if __name__ == "__main__":
    main(sys.argv[1:])
