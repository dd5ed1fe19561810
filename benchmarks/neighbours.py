"""What a hostile tenant costs its neighbours: `python -m benchmarks.neighbours [WAY...]`.

Starts a server of sandboxes, runs programs with one call each for one tenant, one after the other, and prints how long
they took: alone, and while another tenant (or a stranger) does its worst, in each of the ways that the tests have.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from packages.remote.tests.hostile import WAYS, memory_of
from packages.remote.tests.servers import Client, server_process

__all__ = ["main"]

RUNS = 100
SETTINGS = {
    "max_running": 6,
    "max_queued": 200,
    "max_held": 64 << 20,
    "max_connections": 50,
    "max_anonymous": 10,
    "slot_idle": 1.0,
    "reconnect": 0.5,
}


async def runs(endpoint: str, name: str) -> list[float]:
    """Return how many milliseconds each of some programs took, the shortest first."""
    took: list[float] = []
    async with Client(endpoint, name="neighbour") as client:
        for number in range(RUNS):
            run, began = f"{name}-{number}", perf_counter()
            await client.execute(run, "return tools.math.add(a=1, b=2)", timeout=60)
            await client.answer(run, lambda _: 3)
            (await client.result(run)).raise_for_error()
            took.append((perf_counter() - began) * 1000)
    return sorted(took)


@asynccontextmanager
async def alone(_: str) -> AsyncGenerator[None]:
    """Let the neighbour have the server for itself."""
    yield


async def measure(endpoint: str, pid: int, ways: Sequence[str]) -> None:
    """Print a row for each way; the programs before the first one warm the server up."""
    await runs(endpoint, "first")
    print(f"{'':16}  p50 ms   p99 ms  memory MB")
    for name in ("alone", *ways, "alone again"):
        async with WAYS.get(name, alone)(endpoint):
            took = await runs(endpoint, name.replace(" ", "-"))
        print(f"{name:16} {took[len(took) // 2]:7.1f}  {took[len(took) * 99 // 100]:7.1f}  {memory_of(pid) >> 20:9}")
        await asyncio.sleep(2.0)  # what the hostile tenant left behind is stopped


def main(ways: Sequence[str]) -> None:
    """Measure these ways, or all of them."""
    with (
        tempfile.TemporaryDirectory() as directory,
        server_process(Path(directory) / "server", **SETTINGS) as server,
    ):
        assert server.process is not None
        asyncio.run(measure(server.endpoint, server.process.pid, ways or [*WAYS]))


if __name__ == "__main__":
    main(sys.argv[1:])
