"""The plain chain: one tool after the other, each given the value before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from toolexec.errors import ToolExecError
from toolexec.model.arguments import RefusedArgs, own_parts, own_parts_at_once
from toolexec.model.call import Progress, ProgressCallback, ToolCall, tell
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.model.tree_size import is_flat
from toolexec.run.large import walked
from toolexec.run.runner import Runner
from toolexec.run.types import Result, StepResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStep:
    """A call in a chain. With `use_previous` the value of the step before (null for the first) goes in as the argument
    `previous`, in place of one that is there."""

    tool_id: str
    args: JSONObject | None = None
    use_previous: bool = False


async def run_chain(
    runner: Runner, steps: Sequence[ChainStep], *, on_progress: ProgressCallback | None = None
) -> tuple[Result | None, list[StepResult]]:
    """Run *steps* in order and stop at the first failure, whatever kind it is.

    Gives the last step's result (None for an empty chain or after a failure) and what happened in each step that was
    run; the failing one is last and has the error. *on_progress* is called at the start and after each step.
    """
    done: list[StepResult] = []
    previous: JSONValue = None
    result: Result | None = None
    task = asyncio.current_task()
    notify(on_progress, 0, len(steps), "started")
    for index, step in enumerate(steps):
        if task is not None and task.cancelling():
            await asyncio.sleep(0)  # let a cancellation that is due arrive before more work begins
        args = dict(step.args or {})
        if step.use_previous:
            args["previous"] = previous
        outcome, result = await run_step(runner, ToolCall(step.tool_id, args), index)
        done.append(outcome)
        notify(on_progress, index + 1, len(steps), "step_completed" if outcome.ok else "step_error")
        if not outcome.ok:
            return None, done
        previous = outcome.value
    return result, done


async def run_step(runner: Runner, call: ToolCall, index: int, name: str = "") -> tuple[StepResult, Result | None]:
    """Make one call, whose arguments are a dict of its own, as a step: what could not be run is the step's error here,
    as what failed is."""
    args = call.args or {}
    if type(args) is not dict or not is_flat(args):  # they share nothing with earlier values, and stay with the step
        own = own_parts_at_once(args, call.tool_id)
        call.args = own if own is not None else await walked(partial(own_parts, args, call.tool_id))
        args = {} if type(call.args) is RefusedArgs else call.args
    try:
        result = await runner.run(call)
    except ToolExecError as error:
        return StepResult(index, call.tool_id, name, args, None, error, 0.0, False, 1), None
    error, seconds = result.error, result.duration
    attempts = result.attempts
    return StepResult(index, result.tool_id, name, args, result.value, error, seconds, False, attempts, result), result


def notify(callback: ProgressCallback | None, done: int, total: int | None, message: str) -> None:
    """Call *callback*, if there is one and anything to do; what it raises is logged."""
    if callback is not None and total != 0:
        tell(callback, Progress(done=done, total=total, message=message))
