"""What a hostile tenant costs its neighbours: `python -m benchmarks.neighbours [WAY...]`, three minutes for all ways.

Starts a server of sandboxes, runs programs with one call each for one tenant, one after the other, and prints how long
they took: alone, and while another tenant (or a stranger), in a process of its own, does its worst, in each of the ways
that the tests have.
Beside the times stands what the kernel counts: the processor time of the server's event loop, and how long the loop
waited for a core, which on a machine with other work says whose fault a time is.
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
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from packages.remote.tests.hostile import WAYS, memory_of
from packages.remote.tests.servers import Client, server_process

from benchmarks.spent import loop_times

__all__ = ["main"]

RUNS: Final = 300
ALONE: Final = 100
"""How many programs run before each way, to compare it with: a machine is not the same for three minutes."""
PAUSE: Final = 2.0
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
async def hostile(way: str, endpoint: str) -> AsyncGenerator[None]:
    """Have a process do its worst."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.neighbours", "--be", way, endpoint, stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield
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
    """Print a row for each way, beside the row of the programs that ran alone just before it."""
    await took(endpoint, pid, ALONE)  # the server warms up
    print("ms                p50    p99   alone: p50    p99   p99 is    loop  alone  waits  alone   memory MB")
    worst = 0.0
    for way in ways:
        alone = await took(endpoint, pid, ALONE)
        async with hostile(way, endpoint):
            beside = await took(endpoint, pid, RUNS)
        worst = max(worst, ratio := beside.p99 / alone.p99)
        print(
            f"{way:14} {beside.p50:6.1f} {beside.p99:6.1f} {alone.p50:12.1f} {alone.p99:6.1f} {ratio:6.1f} x "
            f"{beside.loop:7.2f} {alone.loop:6.2f} {beside.waited:6.2f} {alone.waited:6.2f} {memory_of(pid) >> 20:11}",
            flush=True,
        )
        await asyncio.sleep(PAUSE)  # what the hostile tenant left behind is stopped
    print(f"the worst is {worst:.1f} times what it is alone")


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
