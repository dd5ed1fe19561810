"""The one chain, on every path: references, retries, time limits, going on after a failure."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from time import perf_counter
from typing import Final, TypeAlias

from toolexec.discovery.index import Index, get_tool
from toolexec.errors import InvalidChainError, ToolExecError
from toolexec.errors.base import reworded
from toolexec.model.arguments import RefusedArgs, bounded
from toolexec.model.call import ProgressCallback, ToolCall
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.origin import HERE, Origin
from toolexec.model.settings import checked, unknown_setting
from toolexec.model.tree_size import has_many, is_flat
from toolexec.run.chain import notify, run_step
from toolexec.run.large import MAX_STEPS, Budget, is_small, off_loop, walked
from toolexec.run.references import check_references, resolve_references
from toolexec.run.repeating import is_of_runs, is_repeatable, retry_after
from toolexec.run.runner import Runner
from toolexec.run.types import StepResult, UndoneStep

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_MAX_PAUSE = 10.0
_OTHERS: Final = ("stop_on_error", "name", "timeout", "retries", "retry_pause")
_SPELLINGS: Final = {
    "tool": "tool_id",
    "toolId": "tool_id",
    "id": "tool_id",
    "usePrevious": "use_previous",
    "stopOnError": "stop_on_error",
    "retryPause": "retry_pause",
}


@checked("a step", error=InvalidChainError)
@dataclass(frozen=True, slots=True)
class Step:
    """A call in a chain.

    `use_previous` without args: the value of the step before *is* the arguments (one that is not a mapping becomes
    `{"previous": value}`); with args: it is added as `previous`, unless that is there already. For the first step it is
    null. Any argument may also be a reference to an earlier step: `{"$ref": "steps.0.items[0].id"}`, or by a step's
    `name`. With `stop_on_error` false the chain goes on after a failure, and "previous" stays the last value there was.
    `timeout` is in seconds for each attempt. `retries` is how many more attempts follow a retryable failure, after a
    pause of `retry_pause` seconds that doubles each time; only for tools that are read-only or idempotent.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     _ = ex.add(lambda a, b: a + b, "math:add")
    ...     first = Step("math:add", {"a": 1, "b": 2})
    ...     ex.run_chain([first, Step("math:add", {"a": {"$ref": "steps.0"}, "b": 4})]).value
    7
    """

    tool_id: str
    args: JSONObject | None = None
    _: KW_ONLY
    use_previous: bool = False
    stop_on_error: bool = True
    name: str = ""
    timeout: float | None = None
    retries: int = 0
    retry_pause: float = 0.1

    @classmethod
    def from_dict(cls, data: JSONObject) -> Step:
        """Read a step from JSON data: the fields above, also in camelCase, with `tool` and `id` as other words for
        `tool_id`.

        Raises InvalidChainError for unknown keys, keys given twice, values of the wrong type, or a missing tool.
        """
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidChainError(f"a step is a Step or a mapping of its fields, not {type(data).__name__}")
        known = ("tool", *cls.__dataclass_fields__)
        parts: dict[str, JSONValue] = {}
        for key, value in data.items():
            name = _SPELLINGS.get(key, key)
            if name not in cls.__dataclass_fields__:
                raise unknown_setting("a step", key, known, InvalidChainError)
            if name in parts:
                raise InvalidChainError(f"a step has its {name} twice, the second time as {key}; give it once")
            parts[name] = value
        if "tool_id" not in parts:
            raise InvalidChainError(f"a step has no tool; the keys are {', '.join(known)}")
        return cls(**parts)

    def to_dict(self) -> JSONDict:
        """Return the step as JSON-able data that `from_dict` reads: what a step of a request has, and what is set."""
        data: JSONDict = {"toolId": self.tool_id, "args": None if self.args is None else dict(self.args)}
        data["usePrevious"] = self.use_previous
        for name in _OTHERS:
            if (value := getattr(self, name)) != self.__dataclass_fields__[name].default:
                data[name] = value
        return data


@dataclass(slots=True)
class ChainResult:
    """The outcome of a chain.

    `value` is that of the last step that ran (None if it has none; one that breaks its output schema is there beside
    the error), `error` the failure that stopped the chain, `tool_id` the last tool run, `duration` seconds, `steps` one
    entry for each step. `undone` says what became of the steps of a chain with `on_error="undo"`, the last one first.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     _ = ex.add(lambda a, b: a + b, "math:add")
    ...     first = Step("math:add", {"a": 1, "b": 2})
    ...     result = ex.run_chain([first, Step("math:add", {"a": {"$ref": "steps.0"}, "b": 4})])
    ...     result.value, len(result.steps)
    (7, 2)
    """

    value: JSONValue = None
    error: ToolExecError | None = None
    tool_id: str = ""
    duration: float = 0.0
    steps: list[StepResult] = field(default_factory=list[StepResult])
    undone: list[UndoneStep] = field(default_factory=list[UndoneStep])

    @property
    def ok(self) -> bool:
        """Whether nothing stopped the chain."""
        return self.error is None

    def raise_for_error(self) -> ChainResult:
        """Return the result itself, or its error raised."""
        if self.error is not None:
            raise self.error
        return self

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from toolexec.run.html import steps_html

        return steps_html(self.steps, self.value, self.error)

    def to_dict(self) -> JSONDict:
        """Return the result as JSON-able data."""
        data: JSONDict = {"ok": self.ok, "value": self.value, "durationMs": round(self.duration * 1000, 3)}
        if self.error is not None:
            data["error"] = self.error.to_dict()
        if self.undone:
            data["undone"] = [step.to_dict() for step in self.undone]
        return data | {"steps": [step.to_dict() for step in self.steps]}


Unknown: TypeAlias = tuple[int, ToolExecError]
"""The number of a step whose tool is not known, and the error that says so."""


def read_chain_steps(steps: Sequence[Step | JSONObject]) -> list[Step]:
    """Return the steps of a chain. Raises InvalidChainError for no list of steps, or names the first wrong one."""
    if isinstance(steps, str | bytes | Mapping) or not isinstance(steps, Iterable):
        raise InvalidChainError(f"steps must be a list of Step objects or mappings, not {type(steps).__name__}")
    chain: list[Step] = []
    for number, step in enumerate(steps):
        try:
            chain.append(step if isinstance(step, Step) else Step.from_dict(step))
        except InvalidChainError as error:
            raise reworded(error, f"step {number}: {error}") from None
    return chain


def unknown_step(index: Index, steps: Sequence[Step], visible: Index) -> Unknown | None:
    """Return the first step that would stop the chain because its tool is not in *index*; None for none.

    The error suggests only tools that are *visible* to the caller; a tool that is not is refused by its own call.

    The first step of all is left to its own call, as nothing has run before it, and so are the tools of durable runs,
    which no index has.
    """
    for number, step in enumerate(steps):
        if number and index.find(step.tool_id) is None and step.stop_on_error and not is_of_runs(step.tool_id):
            try:
                get_tool(visible, step.tool_id)
            except ToolExecError as error:
                return number, error
    return None


async def execute_chain(
    runner: Runner,
    index: Index,
    steps: Sequence[Step],
    outcome: ChainResult,
    *,
    on_progress: ProgressCallback | None = None,
    origin: Origin = HERE,
    unknown: Unknown | None = None,
) -> None:
    """Run *steps*, each as a call from *origin*; what came of them is written down in *outcome*, also when the chain is
    cancelled: the last step is then the one that was stopped. With *unknown* nothing runs, and that step has its error.

    Raises InvalidChainError, before anything runs, for a chain that cannot work.
    """
    names, referring = await check_chain(runner, index, steps, origin)
    started = perf_counter()
    values: list[JSONValue] = []
    previous: JSONValue = None
    task = asyncio.current_task()
    if unknown is not None:
        outcome.steps = [StepResult(number, step.tool_id, step.name, skipped=True) for number, step in enumerate(steps)]
        failed, outcome.error = unknown
        step = steps[failed]
        outcome.tool_id = step.tool_id
        outcome.steps[failed] = StepResult(failed, step.tool_id, step.name, dict(step.args or {}), error=outcome.error)
        return
    notify(on_progress, 0, len(steps), "started")
    for number, step in enumerate(steps):
        if outcome.error is not None:
            outcome.steps.append(StepResult(number, step.tool_id, step.name, skipped=True))
            continue
        if task is not None and task.cancelling():
            await asyncio.sleep(0)  # let a cancellation that is due arrive before more work begins
        args = step_arguments(step, previous)
        try:
            if number in referring:
                budget = Budget(steps=MAX_STEPS)
                resolve = partial(resolve_references, args, number, names, values)
                args = resolve(budget) if all(map(is_small, values)) else await off_loop(resolve, budget)
                args = args.copy() if type(args) is dict else args  # all of them may be the value of another step
        except InvalidChainError as error:  # a path that fails on the value it meets is known only now
            done = StepResult(number, step.tool_id, step.name, args, error=error)
        else:
            if step.use_previous and step.args is not None and isinstance(args, dict):
                args = {"previous": previous, **args}
            call = ToolCall(step.tool_id, args, step.timeout, None, False, origin)  # by name it takes twice as long
            call.step = str(number)
            try:
                done, _ = await run_step(runner, call, number, step.name)
                if step.retries and done.error is not None:
                    done = await _try_again(runner, index, step, call, done)
            except asyncio.CancelledError:
                outcome.steps.append(_stopped(number, step, call))
                raise
        outcome.steps.append(done)
        outcome.tool_id = done.tool_id
        outcome.value = done.value
        values.append(done.value if done.error is None else None)
        if done.error is None:
            previous = done.value
        elif step.stop_on_error:
            outcome.error = done.error
        if on_progress is not None:
            notify(on_progress, number + 1, len(steps), "step_completed" if done.ok else "step_error")
    outcome.duration = perf_counter() - started


async def check_chain(
    runner: Runner, index: Index, steps: Sequence[Step], origin: Origin
) -> tuple[dict[str, int], set[int]]:
    """Return the steps' numbers by name, and the numbers of those that refer to others.

    Raises InvalidChainError for a chain that cannot work, and as `refuse_excess` does.
    """
    some_large = await refuse_excess(runner, steps, origin)
    check = partial(_check, index, steps)
    return await walked(check) if some_large else check()


async def refuse_excess(runner: Runner, steps: Sequence[Step], origin: Origin) -> bool:
    """Have the first call whose arguments are too much to be walked refused and recorded, before any other is made.

    Returns whether a step has so many arguments that the event loop should not walk them. Raises InputValidationError
    for the refused call.
    """
    some_large = False
    for number, step in enumerate(steps):
        given = step.args
        if not given or not isinstance(given, Mapping) or (type(given) is dict and is_flat(given)):
            continue
        look = partial(bounded, given if type(given) is dict else dict(given), step.tool_id)
        is_large = has_many(given)
        some_large = some_large or is_large
        args = await walked(look) if is_large else look()
        if type(args) is RefusedArgs:
            with suppress(ToolExecError):
                await runner.run(ToolCall(step.tool_id, args, step.timeout, origin=origin, step=str(number)))
            raise args.error
    return some_large


def stop_chain(outcome: ChainResult, steps: Sequence[Step], why: ToolExecError) -> None:
    """Write down that a chain was stopped half-way: the steps after the last one that was run are skipped."""
    outcome.error, outcome.value = why, None
    if outcome.steps:
        outcome.tool_id = outcome.steps[-1].tool_id
    for number in range(len(outcome.steps), len(steps)):
        outcome.steps.append(StepResult(number, steps[number].tool_id, steps[number].name, skipped=True))


def _stopped(number: int, step: Step, call: ToolCall) -> StepResult:
    """Return the step that was under way when the chain was cancelled."""
    error = ToolExecError(f"{step.tool_id} was stopped: the chain was cancelled", tool_id=step.tool_id)
    return StepResult(number, step.tool_id, step.name, call.args or {}, error=error, attempts=1)


def _check(index: Index, steps: Sequence[Step]) -> tuple[dict[str, int], set[int]]:
    names: dict[str, int] = {}
    referring: set[int] = set()
    for number, step in enumerate(steps):
        if step.retries or step.retry_pause < 0 or step.timeout is not None:
            _check_numbers(step, number)
            if step.retries:
                _check_retries(index, step, number)
        args = step.args
        if args is not None and type(args) is not dict:  # a test that costs little, as most are dicts
            if not isinstance(args, Mapping):
                raise InvalidChainError(f"step {number}: args must be a mapping of names to values")
            args = dict(args)
        if args and check_references(args, number, names):
            referring.add(number)
        if step.name:
            if not _NAME.fullmatch(step.name) or step.name == "steps" or step.name in names:
                raise InvalidChainError(f"step {number}: the name {step.name!r} is taken or not a plain word")
            names[step.name] = number
    return names, referring


def _check_numbers(step: Step, number: int) -> None:
    if step.retries < 0 or step.retry_pause < 0 or (step.timeout is not None and not step.timeout > 0):
        name = "retries" if step.retries < 0 else "retry_pause" if step.retry_pause < 0 else "timeout"
        least = "above 0" if name == "timeout" else "0 or more"
        raise InvalidChainError(f"step {number}: {name} must be {least}, not {getattr(step, name)!r}")


def _check_retries(index: Index, step: Step, number: int) -> None:
    if index.find(step.tool_id) is not None and not _repeatable(index, step.tool_id):
        raise InvalidChainError(
            f"step {number}: {step.tool_id} is not marked read-only or idempotent, so it is never retried; "
            "drop retries, or mark the tool"
        )


def _repeatable(index: Index, tool_id: str) -> bool:
    """Return whether repeating a call certainly does no harm; False for a tool that is not in the index."""
    found = index.find(tool_id)
    return found is not None and is_repeatable(found.tool)


def step_arguments(step: Step, previous: JSONValue) -> JSONDict:
    """Return a mapping of the step's own: its arguments, or the previous value in their place."""
    if step.args is None:
        if not step.use_previous:
            return {}
        return dict(previous) if isinstance(previous, dict) else {"previous": previous}
    return dict(step.args)


async def _try_again(runner: Runner, index: Index, step: Step, call: ToolCall, done: StepResult) -> StepResult:
    """More attempts, as long as the failure is retryable; the last outcome, with the time that all of them took."""
    started, spent, pause = perf_counter(), done.duration, step.retry_pause
    for attempt in range(1, step.retries + 1):
        if done.error is None or not done.error.retryable or not _repeatable(index, step.tool_id):
            break
        await asyncio.sleep(min(max(pause, retry_after(done.error)), _MAX_PAUSE))
        pause *= 2
        attempts = done.attempts
        call.step = f"{done.index}.{attempt}"
        done, _ = await run_step(runner, call, done.index, step.name)
        done.attempts += attempts
    done.duration = spent + perf_counter() - started
    return done
