"""Workflows: checking, a step, a tool call, branches, stopping."""

from __future__ import annotations

import asyncio
import gc
from time import perf_counter
from typing import Any

import psutil

from benchmarks.meter import Meter, run_program
from toolexec import Exec
from toolexec.errors import CodeTimeoutError, LimitExceededError
from toolexec.workflow.checker import check
from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.machine import Finished, Machine
from toolexec.workflow.parser import parse

CALLS = 200
PART = """
rows{n} := collect row in range(20) where row % 2 == 0 {{
  title := "row ${{row}} of ${{limit_of}}"
  {{id: row, title, tags: ["a", "b"], deep: {{x: [1, 2, row]}}}}
}}
try {{
  sum{n} := run("math:add", {{a: len(rows{n}), b: rows{n}[0].id}}) timeout 5s
  print("sum", sum{n})
}} catch err {{
  print("failed", err.message)
}}
"""
LONG = "input limit_of: integer = 7\n" + "".join(PART.format(n=n) for n in range(19))
LOOP = "x := 0\nfor i in range(20000) { x = x + i }\nx"


async def add(a: int, b: int = 0) -> int:
    """Add, on the event loop."""
    return a + b


async def wait(seconds: float = 0.05) -> int:
    """Wait on the event loop."""
    await asyncio.sleep(seconds)
    return 1


def executor() -> Exec:
    """An Exec with the tools."""
    ex = Exec(max_tool_calls=100_000)
    ex.add(add, "math:add")
    ex.add(wait, "math:wait")
    return ex


def language(meter: Meter, ex: Exec) -> None:
    """A workflow of 200 lines, from text to a program."""
    assert LONG.count("\n") > 200
    tree = parse(LONG)
    assert check(tree, ex.index) == []
    meter.sync("workflow.check", check, tree, ex.index)
    meter.sync("workflow.parse_and_check", lambda: check(parse(LONG), ex.index))
    meter.sync("workflow.compile", compile_workflow, tree)


def steps(meter: Meter) -> None:
    """One instruction of a loop."""
    program = compile_workflow(parse(LOOP))
    for _ in range(3 if meter.quick else 20):
        machine = Machine(program, now=0)
        started = perf_counter()
        while not isinstance(machine.advance(), Finished):
            pass
        meter.record("workflow.step", (perf_counter() - started) / machine.steps)


async def timed(ex: Exec, source: str) -> float:
    """Seconds that one run took."""
    started = perf_counter()
    result = await ex.run_workflow(source)
    taken = perf_counter() - started
    result.raise_for_error()
    return taken


async def calls(meter: Meter, ex: Exec) -> None:
    """One more tool call of a workflow, beside the same call by itself."""
    many, none = (f'for i in range({n}) {{ run("math:add", {{a: i, b: 2}}) }}' for n in (CALLS, 0))
    for source in (many, none):
        await timed(ex, source)
    for _ in range(5 if meter.quick else 30):
        one = (await timed(ex, many) - await timed(ex, none)) / CALLS
        started = perf_counter()
        for i in range(CALLS):
            await ex.run_tool("math:add", {"a": i, "b": 2})
        alone = (perf_counter() - started) / CALLS
        meter.record("workflow.call", one)
        meter.record("workflow.call_added", one - alone)


async def branches(meter: Meter, ex: Exec) -> None:
    """A hundred branches that wait 50 ms."""
    source = 'parallel for i in range(100) limit 100 { run("math:wait") }'
    await timed(ex, source)
    for _ in range(3 if meter.quick else 10):
        meter.record("workflow.parallel_100_waits", await timed(ex, source))


async def stopping(meter: Meter, ex: Exec) -> None:
    """A loop that does not end by itself: its budget, its memory, its deadline, and the event loop meanwhile."""
    source = "n := 0\nwhile n >= 0 limit 1000000000 { n = n + 1 }"
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    result = await ex.run_workflow(source, timeout=120)
    assert isinstance(result.error, LimitExceededError), result.error
    meter.record("workflow.loop_memory", (process.memory_info().rss - before) / (1 << 20))
    for _ in range(2 if meter.quick else 5):
        started = perf_counter()
        late: Any = await ex.run_workflow(source, timeout=0.2)
        meter.record("workflow.overshoot_loop", perf_counter() - started - 0.2)
        assert isinstance(late.error, CodeTimeoutError)


async def main(meter: Meter) -> None:
    """All of it."""
    async with executor() as ex:
        language(meter, ex)
        steps(meter)
        await calls(meter, ex)
        await branches(meter, ex)
        await stopping(meter, ex)


if __name__ == "__main__":
    run_program(main)
