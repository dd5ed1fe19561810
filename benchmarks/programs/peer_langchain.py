"""langchain-core: a tool by itself, and ten in a sequence; the arguments are checked."""

from __future__ import annotations

from functools import reduce
from importlib.metadata import version
from operator import or_

from langchain_core.tools import tool

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS, echo

CHAIN_LENGTH = 10


async def main(meter: Meter) -> None:
    """One call, and a chain in which each tool's value is the next one's arguments."""
    echo_tool = tool(echo)
    assert await echo_tool.ainvoke(ARGS) == ARGS
    await meter.awaited("peers.langchain", echo_tool.ainvoke, ARGS, ways=True)
    chain = reduce(or_, [echo_tool] * CHAIN_LENGTH)
    assert await chain.ainvoke(ARGS) == ARGS
    await meter.awaited("peers.langchain_chain_step", chain.ainvoke, ARGS, per=CHAIN_LENGTH, ways=True)
    meter.facts["langchain-core"] = version("langchain-core")


if __name__ == "__main__":
    run_program(main)
