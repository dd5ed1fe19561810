"""Undo what the finished steps of a chain or a workflow have done, where their tools say how; or only try them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from toolexec.discovery.index import Index, Registered
from toolexec.errors import ClosedError, InvalidChainError, Outcome
from toolexec.model.arguments import RefusedArgs
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Origin
from toolexec.model.tool import DRY_RUN
from toolexec.run.chain import run_step
from toolexec.run.large import MAX_STEPS, Budget, off_loop
from toolexec.run.layer import Layer
from toolexec.run.references import check_references, resolve_references
from toolexec.run.repeating import is_of_runs, outcome_of
from toolexec.run.runner import Runner
from toolexec.run.types import StepResult, UndoneStep
from toolexec.run.undoing import to_the_end

UNDO: Final = "toolexec/undo"
"""The key of a tool's `meta` that names what undoes a call of it: a tool's ID, or `{"tool": ID, "args": {...}}`."""

_NAMES: Final = {"args": 0, "value": 1}


async def undo(
    runner: Runner,
    index: Index,
    steps: Sequence[StepResult],
    origin: Origin,
    cut: Collection[int] = (),
    *,
    cut_off: asyncio.CancelledError | ClosedError | None = None,
) -> list[UndoneStep]:
    """Undo the *steps* that have done something, the last one first, each by a call from *origin*; return what became
    of each. Arguments or values of the steps in *cut* were not kept.

    Steps of read-only tools, waits of durable runs, and those that were not run or did nothing, need no undoing and are
    left out. A failure
    does not keep the steps before it from being undone, and a cancellation only after `UNDO_SECONDS`: that, or the one
    that the run was *cut_off* by, is then raised with a note of what became of the steps. A run that was cut off by
    closing has as long.
    """
    plan = list(_plan(index, steps, cut))
    undone = [each if isinstance(each, UndoneStep) else _left(each, "there was no time left for it") for each in plan]

    async def work() -> None:
        for place, each in enumerate(plan):
            if isinstance(each, StepResult):
                undone[place] = await _undo(runner, index, each, index.find(each.tool_id), origin)

    await to_the_end(work(), undone, cut_off)
    return undone


def _plan(index: Index, steps: Sequence[StepResult], cut: Collection[int]) -> Iterator[StepResult | UndoneStep]:
    """Yield each step that is to be undone, or the reason why it cannot be; the last one first."""
    for step in reversed(steps):
        entry = index.find(step.tool_id)
        if step.skipped or (entry.tool.annotations.read_only if entry is not None else is_of_runs(step.tool_id)):
            continue
        outcome = outcome_of(step.error)
        if outcome is Outcome.UNKNOWN:
            yield _left(step, f"step {step.index} failed, and whether {step.tool_id} did its work is unknown")
        elif outcome is Outcome.DONE and step.index in cut:
            yield _left(step, "its arguments or its value were too large to be kept")
        elif outcome is Outcome.DONE:
            yield step


async def _undo(runner: Runner, index: Index, step: StepResult, entry: Registered | None, origin: Origin) -> UndoneStep:
    given = entry.tool.meta.get(UNDO) if entry is not None else None
    tool_id, template = (given.get("tool"), given.get("args")) if isinstance(given, dict) else (given, None)
    if entry is None or not isinstance(tool_id, str) or not isinstance(template, dict | None):
        return _left(step, f"{step.tool_id} does not name a tool that undoes it")
    named = index.find(tool_id)
    if _is_foreign(entry, named):
        return _left(step, f"{tool_id}, which {step.tool_id} names, is not of the same backend", tool_id)
    try:
        args = _fitting(named, step) if template is None else await _filled(template, step)
    except InvalidChainError as error:
        return _left(step, f"the arguments for {tool_id} cannot be made: {error}", tool_id)
    done, _ = await run_step(runner, ToolCall(tool_id, args, origin=origin, step=f"undo.{step.index}"), step.index)
    reason = f"{tool_id} failed: {done.error}" if done.error is not None else ""
    return UndoneStep(step.index, step.tool_id, tool_id, done.args, done.value, done.error, reason)


def _fitting(found: Registered | None, step: StepResult) -> JSONDict:
    """Return the parts of the step's value and arguments that the schema of the tool has, in this order."""
    schema = found.tool.input_schema.to_json() if found is not None else None
    names = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    known = {"args": dict(step.args), "value": step.value, **step.args}
    if isinstance(step.value, dict):
        known |= step.value
    return {name: value for name, value in known.items() if name in names}


async def _filled(template: JSONDict, step: StepResult) -> JSONDict:
    """Return the arguments that a tool's meta describes: `$ref`s in it begin with `args` or `value`."""
    if not check_references(template, 2, _NAMES):
        return template
    resolve = partial(resolve_references, template, 2, _NAMES, [dict(step.args), step.value])
    return await off_loop(resolve, Budget(steps=MAX_STEPS))


def _left(step: StepResult, why: str, undo_id: str = "") -> UndoneStep:
    return UndoneStep(step.index, step.tool_id, undo_id, reason=why)


def _is_foreign(entry: Registered, named: Registered | None) -> bool:
    """Return whether a tool of a remote backend names one of another backend, which it has no say about."""
    if entry.binding.kind == "local":
        return False
    return named is None or named.binding.backend != entry.binding.backend


def tried_by(index: Index, tool_id: str) -> tuple[str, JSONObject]:
    """Return the tool that a dry run calls, and the arguments that this adds: a read-only tool itself, else what it
    names to try it.

    Raises InvalidChainError for one that cannot be tried.
    """
    found = index.find(tool_id)
    if found is None:  # a resolver may know it, and then it would be called
        raise _cannot_be_tried(tool_id, "the index does not have it")
    if found.tool.annotations.read_only:
        return tool_id, {}
    given = found.tool.meta.get(DRY_RUN)
    named, args = (given.get("tool", tool_id), given.get("args", {})) if isinstance(given, dict) else (given, {})
    if not isinstance(named, str) or not isinstance(args, dict):
        raise _cannot_be_tried(tool_id, f"it is not read-only, and its meta does not name a tool as {DRY_RUN}")
    if named != tool_id and _is_foreign(found, index.find(named)):
        raise _cannot_be_tried(tool_id, f"{named}, which it names for that, is not of the same backend")
    return named, args


def _cannot_be_tried(tool_id: str, why: str) -> InvalidChainError:
    return InvalidChainError(f"{tool_id} cannot be tried: {why}", tool_id=tool_id)


class DryRun(Layer):
    """Changes nothing: in place of each tool that is not read-only, calls the one that it names to try it."""

    def __init__(self, inner: Runner, index: Index) -> None:
        super().__init__(inner)
        self._index = index

    def before(self, call: ToolCall) -> ToolCall:
        """Return the call that is made; raises as `tried_by` does."""
        tool_id, more = tried_by(self._index, call.tool_id)
        if not more or type(call.args) is RefusedArgs:
            return replace(call, tool_id=tool_id)
        return replace(call, tool_id=tool_id, args={**(call.args or {}), **more})
