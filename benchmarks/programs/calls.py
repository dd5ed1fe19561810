"""One call of a local tool, and a chain of ten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS, SCHEMA, answer, answer_sync, echo
from toolexec import Exec, InMemoryIndex, LocalBackend, LocalBinding, Step, Tool, tool
from toolexec.backend import BackendRegistry, ProviderBackend
from toolexec.model import ToolCall
from toolexec.model.handler import mapping_handler
from toolexec.run import DefaultRunner, Timeout

CHAIN_LENGTH = 10


def echo_tool(name: str = "echo") -> Tool:
    """The tool, checked on the way in and on the way out."""
    return Tool(name=name, namespace="bench", input_schema=SCHEMA, output_schema=SCHEMA)


async def measure_runner(meter: Meter) -> None:
    """The runner without the facade: bare, within a time limit, without checks."""
    index, backends, local = InMemoryIndex(), BackendRegistry(), LocalBackend()
    index.register(echo_tool(), LocalBinding("echo"))
    backends.register(local)
    local.register("echo", answer)
    bare = DefaultRunner(index, backends)
    runners = {
        "runner_bare": bare,
        "runner": Timeout(bare, 30.0),
        "runner_unchecked": Timeout(DefaultRunner(index, backends, validate_input=False, validate_output="off"), 30.0),
    }
    assert (await bare.run(ToolCall("bench:echo", ARGS))).value == ARGS
    for name, runner in runners.items():
        ways = name == "runner"
        await meter.awaited(f"calls.{name}", lambda run=runner.run: run(ToolCall("bench:echo", ARGS)), ways=ways)


async def measure_facade(meter: Meter) -> None:
    """`Exec.run_tool` of each kind of handler."""
    async with Exec() as ex:
        ex.add(echo_tool(), handler=answer)
        ex.add(tool("bench:typed")(echo))
        ex.add(echo_tool("inline"), handler=mapping_handler(answer_sync, inline=True))
        ex.add(echo_tool("thread"), handler=answer_sync)
        for name in ("echo", "typed", "inline", "thread"):
            assert (await ex.run_tool(f"bench:{name}", ARGS)).raise_for_error().value == ARGS
            await meter.awaited(f"calls.facade_{name}", ex.run_tool, f"bench:{name}", ARGS, ways=name != "typed")
    async with Exec() as ex:
        ex.add(echo_tool(), handler=answer)
        ex.add_backends(*(ProviderBackend(f"other{number}", refuse) for number in range(5)))
        await ex.start()
        await meter.awaited("calls.facade_among", ex.run_tool, "bench:echo", ARGS)
    async with Exec(validate_input=False, validate_output=False) as ex:
        ex.add(echo_tool(), handler=answer)
        await meter.awaited("calls.facade_unchecked", ex.run_tool, "bench:echo", ARGS)


async def refuse(name: str, args: Mapping[str, Any]) -> None:
    """A provider that is there, but never called."""
    raise AssertionError(name, args)


async def measure_chain(meter: Meter) -> None:
    """A step of a chain in which each step's arguments are the value of the step before."""
    async with Exec() as ex:
        ex.add(echo_tool(), handler=answer)
        first = Step(tool_id="bench:echo", args=ARGS)
        steps = [first] + [Step(tool_id="bench:echo", use_previous=True)] * (CHAIN_LENGTH - 1)
        result = await ex.run_chain(steps)
        assert result.raise_for_error().value == ARGS
        await meter.awaited("calls.chain_step", ex.run_chain, steps, per=CHAIN_LENGTH, ways=True)


async def main(meter: Meter) -> None:
    """All of it."""
    await measure_runner(meter)
    await measure_facade(meter)
    await measure_chain(meter)


if __name__ == "__main__":
    run_program(main)
