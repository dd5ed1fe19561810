"""FastMCP's in-process client: the way to call a FastMCP tool without a transport; both directions are checked."""

from __future__ import annotations

from importlib.metadata import version

from fastmcp import Client, FastMCP

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS, echo


async def main(meter: Meter) -> None:
    """One call."""
    server = FastMCP("bench")
    server.tool(echo)
    async with Client(server) as client:
        assert (await client.call_tool("echo", ARGS)).structured_content == ARGS
        await meter.awaited("peers.fastmcp", client.call_tool, "echo", ARGS, ways=True)
    meter.facts["fastmcp"] = version("fastmcp")


if __name__ == "__main__":
    run_program(main)
