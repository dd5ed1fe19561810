"""Undo what the finished steps of a chain have done, where their tools say how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from toolexec.discovery.index import Index, Registered
from toolexec.errors import InvalidChainError, OutputValidationError, ToolExecError
from toolexec.exec.references import check_references, resolve_references
from toolexec.model.call import ToolCall
from toolexec.model.origin import Origin
from toolexec.run.chain import run_step
from toolexec.run.large import MAX_STEPS, Budget, off_loop
from toolexec.run.runner import Runner
from toolexec.run.types import StepResult

__all__ = ["UNDO", "OnError", "UndoneStep", "undo"]

UNDO: Final = "toolexec/undo"
"""The key of a tool's `meta` that names what undoes a call of it: a tool's ID, or `{"tool": ID, "args": {...}}`."""

OnError: TypeAlias = Literal["stop", "undo"]
"""What follows the failure that stops a chain: nothing more, or the finished steps are undone, the last one first."""

_NAMES: Final = {"args": 0, "value": 1}


@dataclass(slots=True)
class UndoneStep:
    """What became of the effect of one step of a chain that failed.

    `index` and `tool_id` are the step's, `undo_id` the tool that was called to undo it, with `args`, and `value` what
    it answered. `reason` says why the step is not undone, and is empty when it is; `error` is the failure of the tool
    that was called.
    """

    index: int
    tool_id: str
    undo_id: str = ""
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    value: Any = None
    error: ToolExecError | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the step is undone."""
        return not self.reason

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        data: dict[str, Any] = {"index": self.index, "toolId": self.tool_id, "ok": self.ok}
        if self.undo_id:
            data |= {"undoId": self.undo_id, "args": dict(self.args), "value": self.value}
        if self.reason:
            data["reason"] = self.reason
        if self.error is not None:
            data["error"] = self.error.to_dict()
        return data


async def undo(runner: Runner, index: Index, steps: Sequence[StepResult], origin: Origin) -> list[UndoneStep]:
    """Undo the *steps* that have done something, the last one first, each by a call from *origin*; return what became
    of each.

    Steps of read-only tools, and those that were not run or did nothing, need no undoing and are left out. A failure
    does not keep the steps before it from being undone.
    """
    undone: list[UndoneStep] = []
    for step in reversed(steps):
        entry = index.find(step.tool_id)
        if step.skipped or (entry is not None and entry.tool.annotations.read_only):
            continue
        error = step.error
        if error is None or isinstance(error, OutputValidationError):
            undone.append(await _undo(runner, index, step, entry, origin))
        elif error.retryable and not error.never_began:
            undone.append(_left(step, f"step {step.index} failed, and whether {step.tool_id} did its work is unknown"))
    return undone


async def _undo(runner: Runner, index: Index, step: StepResult, entry: Registered | None, origin: Origin) -> UndoneStep:
    given = entry.tool.meta.get(UNDO) if entry is not None else None
    tool_id, template = (given.get("tool"), given.get("args")) if isinstance(given, dict) else (given, None)
    if not isinstance(tool_id, str) or not isinstance(template, dict | None):
        return _left(step, f"{step.tool_id} does not name a tool that undoes it")
    try:
        args = _fitting(index, tool_id, step) if template is None else await _filled(template, step)
    except InvalidChainError as error:
        return _left(step, f"the arguments for {tool_id} cannot be made: {error}", tool_id)
    done, _ = await run_step(runner, ToolCall(tool_id, args, origin=origin), step.index)
    reason = f"{tool_id} failed: {done.error}" if done.error is not None else ""
    return UndoneStep(step.index, step.tool_id, tool_id, done.args, done.value, done.error, reason)


def _fitting(index: Index, tool_id: str, step: StepResult) -> dict[str, Any]:
    """Return the parts of the step's value and arguments that the schema of the tool has, in this order."""
    found = index.find(tool_id)
    schema = found.tool.input_schema.to_json() if found is not None else None
    names = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    known = {"args": dict(step.args), "value": step.value, **step.args}
    if isinstance(step.value, dict):
        known |= step.value
    return {name: value for name, value in known.items() if name in names}


async def _filled(template: dict[str, Any], step: StepResult) -> dict[str, Any]:
    """Return the arguments that a tool's meta describes: `$ref`s in it begin with `args` or `value`."""
    if not check_references(template, 2, _NAMES):
        return template
    resolve = partial(resolve_references, template, 2, _NAMES, [dict(step.args), step.value])
    return await off_loop(resolve, Budget(steps=MAX_STEPS))


def _left(step: StepResult, why: str, undo_id: str = "") -> UndoneStep:
    return UndoneStep(step.index, step.tool_id, undo_id, reason=why)
