"""A new run that begins as an earlier one did, up to a call, and goes on in another way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from toolexec.code.deliveries import is_timer
from toolexec.durable.journal import CallRecord, CallState, Journal, RunRecord
from toolexec.durable.offline import OfflineReplay, OfflineRunner
from toolexec.durable.outcomes import error_from_json, outcome_of, outcome_of_error
from toolexec.durable.replay import TOOK, is_over
from toolexec.errors import ConfigurationError, InputValidationError, RunError, ToolExecError
from toolexec.exec.chain import steps_of
from toolexec.exec.debug import Recording, step_of
from toolexec.exec.offline import Offline
from toolexec.exec.offline_session import run_offline
from toolexec.exec.run_data import APPROVED, OFFLINE, PARENT, clock_of, origin_to_json, run_digest, steps_to_text
from toolexec.model.json_value import JSONDict, JSONValue, NotJSONError, to_json
from toolexec.model.origin import current_origin
from toolexec.process.settling import settle
from toolexec.run.types import Result

if TYPE_CHECKING:
    from toolexec.discovery.index import Index
    from toolexec.exec.run_results import RunResult

UNSET: Final[Any] = object()
"""Stands for an answer that was not given, as null is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a fork does in another way: from call `at` on, with another `answer` or `error` of it, or another
    `source`.
    """

    at: int | str | None = None
    answer: JSONValue = UNSET
    error: JSONDict | str | None = None
    source: str | None = None

    @property
    def what(self) -> str:
        """What is changed, in a word."""
        names = {"answer": self.answer is not UNSET, "error": self.error is not None, "source": self.source is not None}
        return ", ".join(name for name, given in names.items() if given) or "nothing"

    def check(self) -> None:
        """Raise ConfigurationError for what makes no sense together."""
        if self.answer is not UNSET and self.error is not None:
            raise ConfigurationError("a call has an answer or an error, not both")
        if self.at is None and (self.answer is not UNSET or self.error is not None):
            raise ConfigurationError("say of which call that is the answer: at= the number of the call, from 1 on")
        if self.at is None and self.source is None:
            raise ConfigurationError(
                "say where the fork leaves the run: at= the number of a call, or a changed source="
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What of a run a fork begins with: these calls, with their answers, in these groups, before call `step`."""

    step: str
    number: int
    calls: Sequence[CallRecord]
    groups: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A run that was forked from another one.

    `call` and `step` say at which call it left that (0 and "" for a changed source that never did), `reused` how many
    answers of it were used. `result` is what came of the new run: its error has the code `run_unanswered` where it
    wants an answer that nothing has, which `resume` of the new run gets from the real tool.
    """

    run_id: str
    parent: str
    call: int
    step: str
    reused: int
    result: RunResult

    def to_dict(self) -> JSONDict:
        """Return the fork as JSON-able data."""
        data: JSONDict = {"runId": self.run_id, "parent": self.parent, "call": self.call, "step": self.step}
        return data | {"reused": self.reused, "result": self.result.to_dict()}


@dataclass(slots=True)
class _Reached:
    """How far the program of a run was when it got the answer that a fork changes."""

    asked: frozenset[str] = frozenset()
    groups: int = 0


class _Scan(OfflineReplay):
    """A replay up to the moment when the program gets the answer to *step*."""

    def __init__(self, recording: Recording, step: str) -> None:
        super().__init__(recording.run, recording.calls, recording.groups)
        self.step = step
        self.reached: _Reached | None = None
        self.so_far: _Reached | None = None
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._main = asyncio.get_running_loop()

    def deliver(self, steps: Sequence[str]) -> None:
        """Implement `Deliveries.deliver`."""
        if self.step in steps:
            self.reach(groups=self.consumed + 1)
        super().deliver(steps)

    def direct(self, step: str) -> None:
        """Implement `Deliveries.direct`."""
        if step and step == self.step:
            self.reach()
        super().direct(step)

    def comes(self, step: str) -> bool:
        """Return whether to leave a call unanswered: the one that a step of a chain is."""
        if step == self.step:
            self.reach()
        return step == self.step

    def fail(self, error: ToolExecError) -> ToolExecError:
        """Record the first failure: what the program asks for after it counts no more."""
        if self.so_far is None:
            self.so_far = self._until_now(verified=True)
        return super().fail(error)

    def reach(self, groups: int | None = None) -> None:
        """Record that this is the moment."""
        if self.reached is None:
            self.reached = self._until_now(groups)
            self._main.call_soon_threadsafe(settle, self.stopped, None)

    def _until_now(self, groups: int | None = None, *, verified: bool = False) -> _Reached:
        asked = {*self.asked, self.step}
        if verified:  # what was asked for, and did not come with its arguments, may be another call than then
            asked = {step for step in asked if is_timer(step) or self.has_come(step)}
        return _Reached(frozenset(asked), self.consumed if groups is None else groups)


async def plan_fork(offline: Offline, recording: Recording, change: Change, index: Index) -> Plan:
    """Return what a fork of a run begins with; *index* has the tools whose answers are changed.

    Raises RunError for a call that is not there, and with the code `run_diverged` for a changed program that does
    something else before it comes to that call; InputValidationError for an answer that does not fit what the tool
    returns.
    """
    step = step_of(recording, change.at) if change.at is not None else ""
    run = recording.run if change.source is None else replace(recording.run, source=change.source)
    scan = _Scan(replace(recording, run=run), step)
    is_of_chain = run.kind == "chain" or (run.kind == "code" and "." in step)
    runner = OfflineRunner(scan, scan.comes if is_of_chain else None)
    _, raised = await run_offline(offline.work(run, runner), scan, scan.stopped)
    reached = scan.reached
    if reached is None:
        reached, step = _without_moment(scan, change, step, scan.failure or raised)
    outcome = changed_outcome(index, scan.tool_of(step), change)
    known = _known(recording, reached, step)
    groups = [*recording.groups][: reached.groups]
    if outcome is None and step:  # its answer is not known, so neither is the group that it came in
        groups = [group for group in groups if step not in group]
    else:
        known += _answered(recording, scan, step, outcome)
    return Plan(step=step, number=scan.number(step) if step else 0, calls=known, groups=groups)


def _without_moment(scan: _Scan, change: Change, step: str, failure: ToolExecError | None) -> tuple[_Reached, str]:
    """Return how far a program came that never got the answer in question."""
    so_far = scan.so_far or _Reached(frozenset(scan.asked), scan.consumed)
    code = failure.code if failure is not None else ""
    where = str(failure.details.get("step", "")) if failure is not None else ""
    if change.at is None:  # until it does something else
        if failure is not None and code not in ("run_diverged", "run_unanswered"):
            raise failure
        return so_far, where
    if code == "run_unanswered" and (not step or step in scan.asked):
        return so_far, step or where
    if failure is not None:
        raise failure
    raise RunError(
        f"the program ends before it comes to call {change.at} of the run {scan.run_id}; take an earlier one",
        code="run_diverged",
        op="fork",
        details={"run_id": scan.run_id, "step": step, "recorded": "a call", "came": "its end"},
    )


def _known(recording: Recording, reached: _Reached, step: str) -> list[CallRecord]:
    """Return the calls whose answers nothing of the change can have an effect on."""
    found: list[CallRecord] = []
    for record in recording.calls:
        own = record.step
        chain = own.partition(".")[0] if recording.run.kind == "code" else own
        is_asked = own in reached.asked or (chain in reached.asked and chain != step.partition(".")[0])
        if is_asked and own != step and "?" not in own and is_over(record):
            found.append(record)
    return found


def _answered(recording: Recording, scan: _Scan, step: str, outcome: JSONDict | None) -> list[CallRecord]:
    """Return the call at which the fork leaves the run, with its changed answer."""
    if not step or outcome is None:
        return []
    before = next((record for record in recording.calls if record.step == step), None)
    if before is None:
        before = scan.new_record(step)
    took = (before.outcome or {}).get(TOOK)
    state: CallState = "failed" if "raised" in outcome or "error" in outcome else "done"
    outcome = outcome | ({TOOK: took} if took is not None else {})
    return [replace(before, state=state, outcome=outcome)]


def changed_outcome(index: Index, tool_id: str, change: Change) -> JSONDict | None:
    """Return the changed outcome of a call; None for none. Raises InputValidationError for an answer that does not fit
    what the tool returns, and ConfigurationError for an error that says nothing."""
    if change.error is not None:
        return outcome_of_error(_read_error(tool_id, change.error))
    if change.answer is UNSET:
        return None
    try:
        answer = to_json(change.answer)
    except NotJSONError as error:
        raise InputValidationError(error.violations, tool_id=tool_id, op="fork") from None
    entry = index.find(tool_id)
    schema = entry.tool.output_schema if entry is not None else None
    violations = schema.violations(answer) if schema is not None else ()
    if violations:
        raise InputValidationError(violations, tool_id=tool_id, op="fork")
    return outcome_of(Result(tool_id, answer))


def _read_error(tool_id: str, given: JSONDict | str) -> ToolExecError:
    data: Mapping[str, Any] = {"message": given} if isinstance(given, str) else given
    message = data.get("message")
    if not isinstance(message, str) or not message:
        raise ConfigurationError(
            'the error of a call is its message, or {"message": "...", "code": "...", "details": {...}}'
        )
    return error_from_json({"class": "ExecutionError", "tool_id": tool_id, **data})


def fork_record(recording: Recording, change: Change, plan: Plan, run_id: str, *, live: bool) -> RunRecord:
    """Return the new run, for the caller who forks it: whatever it calls is that one's doing."""
    run, origin = recording.run, current_origin()
    parent = {"id": run.id, "step": plan.step, "call": plan.number, "changed": change.what, "reused": len(plan.calls)}
    settings: JSONDict = {**run.settings, "origin": origin_to_json(origin), PARENT: parent}
    settings |= {APPROVED: False, OFFLINE: not live}
    if run.kind != "chain":  # a run of a queue has its clock from when it was taken
        settings["now"] = clock_of(run)
    source = change.source if change.source is not None else run.source
    return RunRecord(
        id=run_id,
        kind=run.kind,
        source=source,
        digest=run_digest(run.kind, source, {"given": settings.get("given") or {}, PARENT: parent}),
        settings=settings,
        caller=origin.caller.id,
    )


def write_fork(journal: Journal, record: RunRecord, plan: Plan) -> RunRecord:
    """Write a fork down, with all that it begins with. Raises RunError (`run_changed`) where its ID is taken."""
    made = journal.create(record)
    if made.digest != record.digest or made.owner != record.owner:
        raise RunError(
            f"there is a run {record.id} already; take another ID for the fork",
            code="run_changed",
            op="fork",
            details={"run_id": record.id},
        )
    calls = sorted(plan.calls, key=lambda call: call.number)
    for number, call in enumerate(calls, 1):
        begun = replace(call, state="begun", outcome=None, ended=None)
        journal.begin(record.id, record.owner, begun, plan.groups if number == len(calls) else ())
        if call.outcome is not None:
            journal.end(record.id, record.owner, call.step, call.state, call.outcome)
    return made


def read_source(recording: Recording, source: str | None) -> str | None:
    """Return a changed program as a run keeps it. Raises InvalidChainError, and ConfigurationError for a chain that is
    not JSON."""
    if source is None or recording.run.kind != "chain":
        return source
    try:
        data = json.loads(source)
    except ValueError as error:
        raise ConfigurationError(f"the changed steps of a chain must be JSON: {error}") from error
    return steps_to_text(steps_of(data.get("steps", []) if isinstance(data, dict) else data, None))
