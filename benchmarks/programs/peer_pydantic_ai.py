"""pydantic-ai's tool manager, which is what its agents call tools with; the arguments are checked."""

from __future__ import annotations

from importlib.metadata import version

from pydantic_ai import RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS, echo


async def main(meter: Meter) -> None:
    """One call."""
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage(), prompt=None, messages=[], run_step=0)
    manager = await ToolManager(FunctionToolset([echo])).for_run_step(context)
    call = ToolCallPart(tool_name="echo", args=ARGS, tool_call_id="1")
    assert await manager.handle_call(call) == ARGS
    await meter.awaited("peers.pydantic_ai", manager.handle_call, call, ways=True)
    meter.facts["pydantic-ai-slim"] = version("pydantic-ai-slim")


if __name__ == "__main__":
    run_program(main)
