"""A tool of an MCP server over stdio: through toolexec, and with the SDK's own client, in turn in one process."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS
from toolexec import Exec

ECHO_SERVER = str(Path(__file__).with_name("mcp_server.py"))
SERVERS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "time": (["-m", "mcp_server_time", "--local-timezone", "UTC"], "get_current_time", {"timezone": "UTC"}),
    "echo": (["-I", "-S", ECHO_SERVER], "echo", ARGS),
}
"""By name: how Python starts the server, the tool to call, its arguments."""


async def batch(call: Callable[[], Awaitable[Any]], count: int) -> float:
    """The seconds of a call, as the mean of *count*."""
    started = perf_counter()
    for _ in range(count):
        await call()
    return (perf_counter() - started) / count


async def compare(meter: Meter, name: str) -> None:
    """Call one server's tool both ways; each side has a server process of its own."""
    command, tool, args = SERVERS[name]
    parameters = StdioServerParameters(command=sys.executable, args=command)
    async with Exec() as ex, Client(stdio_client(parameters)) as client:
        await ex.add_mcp(name, command=[sys.executable, *command])

        async def ours() -> None:
            assert (await ex.run_tool(f"{name}:{tool}", args)).ok

        async def bare() -> None:
            assert not (await client.call_tool(tool, args)).is_error

        await batch(bare, 20)
        await batch(ours, 20)
        taken: tuple[list[float], list[float]] = ([], [])
        for number in range(20 if meter.quick else 150):
            for side in (0, 1) if number % 2 else (1, 0):  # neither side always goes first
                taken[side].append(await batch((bare, ours)[side], 5))
        meter.record(f"mcp.{name}_sdk", *taken[0])
        meter.record(f"mcp.{name}", *taken[1])
        meter.record(f"mcp.{name}_ratio", median(taken[1]) / median(taken[0]))


async def main(meter: Meter) -> None:
    """A real server, and one that does so little that nothing hides what the client costs."""
    for name in SERVERS:
        await compare(meter, name)


if __name__ == "__main__":
    run_program(main)
