"""What one hostile caller costs the 199 others of a server: `python -m benchmarks.callers [WAY...]`.

Starts `toolexec serve` over HTTP as a process, has 199 callers call it, each with a key and a connection of its own,
and prints how long their calls took: without a hostile caller, and with one, in each of the ways that the tests have.
Below a row are the errors of the others, by who made them: an answer of the server, or their own client, which on a
busy machine may get no processor. `late ms` says so: how late that client began a call, at the 99th percentile.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.server.crowd import Crowd, Server, served
from tests.server.hostile import WAYS, hostility

CALLERS = [f"caller-{number}" for number in range(199)]
PAUSE = 4.0
"""Seconds between two calls of one caller: about 50 calls a second of all."""
EACH = 5


@asynccontextmanager
async def quiet() -> AsyncGenerator[dict[str, int]]:
    """Have no hostile caller."""
    yield {}


async def measure(server: Server, ways: Sequence[str]) -> int:
    """Print a row for each way, and return how many calls failed."""
    failed = 0
    async with Crowd(server.url, CALLERS) as crowd:
        await crowd.calls(2, 1.0)
        columns = "p50 ms   p99 ms   max ms  calls  errors  late ms  memory MB  the hostile caller got"
        print(f"{'':14}  {columns}", flush=True)
        for name in ("quiet", *ways, "quiet again"):
            for each in (crowd.took, crowd.errors, crowd.kinds, crowd.late):
                each.clear()
            async with hostility(name, server.url) if name in WAYS else quiet() as seen:
                await crowd.calls(EACH, PAUSE)
                memory = server.resident
            took = sorted(each * 1000 for each in crowd.took)
            p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
            late = sorted(crowd.late)[len(crowd.late) * 99 // 100] * 1000
            print(
                f"{name:14} {p50:7.1f}  {p99:7.1f}  {took[-1]:7.1f}  {len(took):5}  {len(crowd.errors):6}"
                f"  {late:7.1f}  {memory >> 20:9}  {dict(seen)}",
                flush=True,
            )
            for kind, number in crowd.kinds.most_common():
                print(f"    {number} of {kind}", flush=True)
            for error in crowd.errors[:3]:
                print(f"    {error}", flush=True)
            failed += len(crowd.errors)
            await asyncio.sleep(2.0)
    return failed


def main(ways: Sequence[str]) -> int:
    """Measure these ways, or all of them."""
    with tempfile.TemporaryDirectory() as directory, served(Path(directory), CALLERS) as server:
        return asyncio.run(measure(server, ways or [*WAYS]))


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
