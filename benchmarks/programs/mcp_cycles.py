"""Start an MCP server, call its tool, end it; a thousand times. Half of the servers are killed under the client."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from pathlib import Path
from time import perf_counter

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS
from toolexec import Exec

SERVER = str(Path(__file__).with_name("mcp_server.py"))


def open_descriptors() -> int:
    """How many file descriptors this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))


def processes_with(mark: str) -> int:
    """How many processes of this machine have *mark* on their command line, whoever their parent is now."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += mark.encode() in path.read_bytes()
        except OSError:  # it ended in this moment
            continue
    return found


async def cycle(mark: str, *, kill: bool) -> None:
    """Start, call once, and end the server: by closing it, or by killing it first."""
    async with Exec() as ex:
        added = ex.add_mcp("server", command=[sys.executable, "-I", "-S", SERVER, mark])
        (status,) = await added
        assert status.available, status.reason
        assert (await ex.run_tool("server:echo", ARGS)).ok
        if kill:
            os.kill(status.info["pid"], signal.SIGKILL)


async def main(meter: Meter) -> None:
    """The cycles, with processes and descriptors counted before and after."""
    mark = f"cycles-{uuid.uuid4().hex}"
    await cycle(mark, kill=False)
    descriptors, tasks = open_descriptors(), len(asyncio.all_tasks())
    for number in range(20 if meter.quick else 1000):
        started = perf_counter()
        await cycle(mark, kill=number % 2 == 1)
        meter.record("cycles.closed" if number % 2 == 0 else "cycles.killed", perf_counter() - started)
    meter.record("cycles.processes_left", processes_with(mark))
    meter.record("cycles.descriptors_left", open_descriptors() - descriptors)
    meter.record("cycles.tasks_left", len(asyncio.all_tasks()) - tasks)


if __name__ == "__main__":
    run_program(main)
