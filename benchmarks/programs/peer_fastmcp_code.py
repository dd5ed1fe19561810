"""FastMCP's code mode, through its in-process client: one run with one call, and what a call adds."""

from __future__ import annotations

from time import perf_counter

from fastmcp import Client, FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode

from benchmarks.meter import Meter, run_program

CALLS = 40


def server() -> FastMCP:
    """A server with ten tools, in code mode."""
    made = FastMCP("bench", transforms=[CodeMode(max_tool_calls=None)])

    @made.tool
    async def add(a: int, b: int = 0) -> int:
        """Add."""
        return a + b

    for number in range(9):
        made.tool(lambda a=0: a, name=f"other{number}")
    return made


async def main(meter: Meter) -> None:
    """Both."""
    code = 'n = 0\nfor i in range({}):\n    n = await call_tool("add", {{"a": i, "b": 2}})\nreturn n'
    async with Client(server()) as client:

        async def timed(calls: int) -> float:
            started = perf_counter()
            await client.call_tool("execute", {"code": code.format(calls)})
            return perf_counter() - started

        await meter.runs("peers.fastmcp_one_call", lambda: timed(1), 25)
        for _ in range(2 if meter.quick else 10):
            without = await timed(0)
            meter.record("peers.fastmcp_call", (await timed(CALLS) - without) / CALLS)


if __name__ == "__main__":
    run_program(main)
