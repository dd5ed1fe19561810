"""Run workflows in tests, by hand or over tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.errors import HandlerError, ToolExecError
from toolexec.exec import Exec
from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.driver import run_workflow
from toolexec.workflow.machine import Budget, CallRequest, Finished, Machine, Outcome, Paused
from toolexec.workflow.parser import parse
from toolexec.workflow.program import Program

NOON = 1_767_268_800.0
SAFE = frozenset({"read", "echo", "flaky"})


def program_of(source: str) -> Program:
    return compile_workflow(parse(source))


@dataclass
class Ran:
    """What came of a workflow: its value or error, what it printed, the calls and pauses that it asked for."""

    value: Any = None
    error: ToolExecError | None = None
    printed: str = ""
    calls: list[CallRequest] = field(default_factory=list[CallRequest])
    pauses: list[float] = field(default_factory=list[float])
    steps: int = 0

    def summary(self) -> dict[str, Any]:
        """Return the same as JSON-able data."""
        error = None if self.error is None else self.error.to_dict()
        keys = [call.key for call in self.calls]
        return {"value": self.value, "error": error, "printed": self.printed, "calls": keys}


def echo(call: CallRequest, count: int) -> Any:
    """Answer a call: `echo` gives its arguments, `bad` fails, `flaky` fails until its third call."""
    if call.tool_id == "bad" or (call.tool_id in ("flaky", "unsafe") and count < 3):
        raise HandlerError(f"{call.tool_id} is down", tool_id=call.tool_id, retryable=call.tool_id != "bad")
    return dict(call.args)


def settle(machine: Machine, call: CallRequest, count: int, answer: Callable[[CallRequest, int], Any] = echo) -> None:
    """Give a machine the answer to one call; only some tools may be called again."""
    safe = call.tool_id in SAFE
    try:
        value = answer(call, count)
    except ToolExecError as error:
        machine.fail(call.key, error, may_repeat=safe)
    else:
        machine.answer(call.key, value, may_repeat=safe)


def finish(
    machine: Machine,
    counts: dict[str, int],
    *,
    answer: Callable[[CallRequest, int], Any] = echo,
    last_first: bool = False,
    steps: int = 10_000,
    each: Callable[[dict[str, int]], None] | None = None,
) -> Ran:
    """Run a machine to its end, with answers at once: also those to requests that it made before. *counts* are the
    calls that were made by then, by tool; *each* is called after so many *steps*."""
    ran = Ran()
    outcome: Outcome = machine.requests()
    while True:
        for call in reversed(outcome.calls) if last_first else outcome.calls:
            counts[call.tool_id] = counts.get(call.tool_id, 0) + 1
            settle(machine, call, counts[call.tool_id], answer)
        for sleep in outcome.sleeps:
            machine.answer(sleep.key, None)
        outcome = machine.advance(steps)
        ran.printed += "".join(outcome.printed)
        ran.calls += outcome.calls
        ran.pauses += [sleep.seconds for sleep in outcome.sleeps]
        if each is not None:
            each(counts)
        if isinstance(outcome, Finished):
            ran.value, ran.error, ran.steps = outcome.value, outcome.error, machine.steps
            return ran
        assert isinstance(outcome, Paused) or outcome.calls or outcome.sleeps, "it waits for nothing"


def step(
    source: str,
    inputs: Mapping[str, object] | None = None,
    *,
    answer: Callable[[CallRequest, int], Any] = echo,
    last_first: bool = False,
    steps: int = 5_000_000,
) -> Ran:
    """Run a workflow to its end, with answers at once; the last call of each round first if asked."""
    machine = Machine(program_of(source), inputs, now=NOON, budget=Budget(steps))
    return finish(machine, {}, answer=answer, last_first=last_first)


def run(source: str, **inputs: object) -> Any:
    """Return the value of a workflow; raises its error."""
    ran = step(source, inputs)
    if ran.error is not None:
        raise ran.error
    return ran.value


def tools_of(ex: Exec, **settings: Any) -> Tools:
    """Return the tools of an Exec as a run of code has them."""
    return Tools(ex.index, ex.docs, ex.runner, **settings)


def drive(
    ex: Exec, source: str, *, limits: Limits | None = None, budget: Budget | None = None, **inputs: object
) -> Ran:
    """Run a workflow over the tools of an Exec."""
    tools = tools_of(ex, limits=limits)
    ran = Ran()

    async def main() -> None:
        try:
            ran.value = await run_workflow(program_of(source), inputs, tools, now=NOON, budget=budget)
        except ToolExecError as error:
            ran.error = error

    asyncio.run(main())
    ran.printed = tools.output.text()
    return ran
