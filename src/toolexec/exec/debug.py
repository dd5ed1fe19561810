"""A recorded run, made again offline and stopped wherever one wants to look at it: `Exec.runs.debug`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self, cast

from toolexec.durable.journal import CallRecord, RunRecord
from toolexec.durable.offline import OfflineReplay, OfflineRunner, SeenCall, numbered
from toolexec.durable.runner import DurableRunner
from toolexec.errors import ConfigurationError, InvalidRequestError, RunBusyError, RunError, ToolExecError
from toolexec.exec.chain import ChainResult, Step
from toolexec.exec.offline import Offline
from toolexec.exec.offline_session import run_offline, runner_before
from toolexec.exec.probes import (
    CallProbe,
    Found,
    GuestProbe,
    LookingProbe,
    MachineProbe,
    chain_names,
    evaluated_text,
    pending_calls,
)
from toolexec.exec.run_data import steps_from_text
from toolexec.exec.stops import Frame, Stop, StopReason, Wanted, value_text
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.languages import base_language

_ENDED: Final = ("done", "failed")
"""The states of a run that has come to its end by itself, and wants no more answers."""
_MOST_STEPS: Final = 20
"""Of how many steps a chain shows the values; the calls have them all."""


@dataclass(frozen=True, slots=True)
class Recording:
    """All that is recorded of a run."""

    run: RunRecord
    calls: Sequence[CallRecord]
    groups: Sequence[Sequence[str]]
    default_language: str = "python"
    before: Sequence[Recording] = ()
    """The programs of its session before it, the first one first."""

    @property
    def language(self) -> str:
        """What the program is written in: `chain`, `workflow`, or a language of code."""
        if self.run.kind != "code":
            return self.run.kind
        given: Any = self.run.settings.get("given") or {}
        return base_language(str(given.get("language") or self.default_language).lower())

    def programs_before(self) -> list[tuple[RunRecord, DurableRunner]]:
        """Return the programs of its session before it, with what answers their calls."""
        return [(each.run, runner_before(each.run, each.calls, each.groups)) for each in self.before]

    @property
    def source(self) -> str:
        """The program; of a chain one step a line, as JSON."""
        if self.run.kind != "chain":
            return self.run.source
        return "\n".join(json.dumps(step, ensure_ascii=False) for step in json.loads(self.run.source))


class DebugSession:
    """A run that is made again step by step, as `async with ex.runs.debug(run_id) as session`.

    Each move makes the run again from its beginning up to where it stops, in a process of nothing but recorded answers:
    no tool and no backend is called, and nothing is written. So going back is as exact as going on. What is there at
    the stop is in the properties. Not for several tasks at once.
    """

    def __init__(self, offline: Callable[[], Offline], load: Callable[[], Awaitable[Recording]]) -> None:
        self._offline = offline
        self._load = load
        self._recording: Recording | None = None
        self._stop = Stop(reason="start")
        self._before: list[Stop] = []

    async def __aenter__(self) -> Self:
        """Read the run. Raises RunError for one that is not there, RunBusyError for one that runs now, JournalError for
        one that is damaged or that no worker of its engine answers for, and ConfigurationError without a journal."""
        self._recording = await self._load()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recording = None

    # -- what is there ------------------------------------------------------------------------------------------

    @property
    def run(self) -> RunRecord:
        """The run as it is recorded."""
        return self._opened.run

    @property
    def source(self) -> str:
        """The program; of a chain one step a line, as JSON."""
        return self._opened.source

    @property
    def stop(self) -> Stop:
        """All that was found where the run has stopped."""
        return self._stop

    @property
    def reason(self) -> StopReason:
        """Why it has stopped: at the `start`, a `call` that it is about to make, a `line` that it is about to run, the
        `error` that it failed with, or at its `end`."""
        return self._stop.reason

    @property
    def line(self) -> int:
        """The line where it is, from 1 on; 0 where that is not known."""
        return self._stop.line

    @property
    def variables(self) -> Mapping[str, str]:
        """What the program knows there; see `Stop`."""
        return self._stop.variables

    @property
    def calls(self) -> Sequence[SeenCall]:
        """The calls so far, with arguments and results; see `Stop`."""
        return self._stop.calls

    @property
    def stack(self) -> Sequence[Frame]:
        """The functions that are under way, the innermost first."""
        return self._stop.stack

    @property
    def error(self) -> ToolExecError | None:
        """The failure that the program ended with, or why it cannot be made again any further."""
        return self._stop.error

    @property
    def value(self) -> JSONValue:
        """The value of a program that is at its end."""
        return self._stop.value

    @property
    def is_over(self) -> bool:
        """Whether the run is at its end, or at the failure that ended it."""
        return self._stop.reason in ("error", "end")

    # -- moves --------------------------------------------------------------------------------------------------

    async def to_call(self, call: int | str) -> Stop:
        """Go to the moment when the program is about to make a call: its number, from 1 on, or its step in the journal.

        Raises RunError with the code `run_not_found` for a call that is not there.
        """
        step = step_of(self._opened, call)
        if step:
            return await self._move(Wanted(goal="call", call=step))
        end = await self._look(Wanted(goal="end"))  # which says what the run wants
        step = str(end.error.details.get("step") or "") if end.error is not None else ""
        return await self._move(Wanted(goal="call", call=step) if step else Wanted(goal="end"))

    async def to_line(self, line: int) -> Stop:
        """Go on to the next time that the program comes to a line, from 1 on; to its end where it does not."""
        if self._opened.language == "javascript":
            raise InvalidRequestError("a replay of JavaScript stops at calls and at its failure, not at lines")
        return await self._move(Wanted(goal="line", line=line, after=self._stop.place))

    async def to_error(self) -> Stop:
        """Go to the failure that the run ended with, or to its end where nothing failed."""
        return await self._move(Wanted(goal="end"))

    async def to_end(self) -> Stop:
        """Go on to the end, or to the failure that ended the run."""
        return await self.to_error()

    async def step(self) -> Stop:
        """Go on to the next line that the program runs; to the next call in chains and JavaScript."""
        return await self._move(Wanted(goal="step", after=self._stop.place))

    async def next_call(self) -> Stop:
        """Go on to the next call that the program makes."""
        return await self._move(Wanted(goal="next", after=self._stop.place))

    async def back(self) -> Stop:
        """Go back to the stop before this one; where there was none, to the call before, or the beginning."""
        if self._before:
            self._stop = self._before.pop()
            return self._stop
        earlier = [call for call in self._stop.calls if self._stop.reason != "call" or call is not self._stop.calls[-1]]
        if not earlier:
            self._stop = Stop(reason="start")
            return self._stop
        self._stop = await self._look(Wanted(goal="call", call=earlier[-1].step))
        return self._stop

    async def evaluate(self, expression: str) -> str:
        """Return the text of an expression's value where the run has stopped: Python's for Python, one of the workflow
        language for workflows and chains.

        The run is made again for it and thrown away, so that whatever the expression does changes nothing. Raises
        InvalidRequestError for one that fails, for JavaScript, and at the start of a run.
        """
        if self._opened.language == "javascript":
            raise InvalidRequestError("expressions are for Python, workflows and chains, not for JavaScript")
        place = self._stop.place
        if self._stop.reason in ("start", "end"):
            raise InvalidRequestError("an expression needs a place in the program: go to a call, a line or the error")
        if self._stop.reason == "error":
            stop = await self._look(Wanted(goal="end", expression=expression))
        else:
            stop = await self._look(Wanted(goal="here", after=place, expression=expression))
        found = stop.evaluated or {"error": "the program ended before it had a value"}
        if "error" in found:
            raise InvalidRequestError(str(found["error"]))
        return str(found["value"])

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _opened(self) -> Recording:
        if self._recording is None:
            raise ConfigurationError("the session is not open; use it as `async with ex.runs.debug(run_id) as session`")
        return self._recording

    async def _move(self, wanted: Wanted) -> Stop:
        if self.is_over and wanted.goal in ("step", "next", "line"):
            return self._stop
        before, self._stop = self._stop, await self._look(wanted)
        if before.reason != "start":
            self._before.append(before)
        return self._stop

    async def _look(self, wanted: Wanted) -> Stop:
        """Make the run again up to where it is wanted."""
        recording = self._opened
        steps = steps_from_text(recording.run.source) if recording.run.kind == "chain" else None
        probe = _probe(recording, wanted, steps)
        replay = OfflineReplay(recording.run, recording.calls, recording.groups, probe)
        runner = OfflineRunner(replay, probe.comes if isinstance(probe, CallProbe) else None, probe.answers)
        work = self._offline().work(recording.run, runner, recording.programs_before())
        result, raised = await run_offline(work, replay, probe.stopped)
        if replay.failure is None and result is not None and recording.run.state in _ENDED:
            with suppress(ToolExecError):  # which is the failure of the replay from here on
                replay.check_end()
        failure = replay.failure or raised
        seen = replay.seen()
        if isinstance(probe, CallProbe) and steps is None:
            probe.locate(result.error if result is not None else None)
        found, is_stopped = (
            probe.found,
            probe.stopped.done() or (isinstance(probe, CallProbe) and probe.found is not None),
        )
        if found is None or not is_stopped:
            stop = _ended(result, failure, found, seen)
            if steps is None:
                return stop
            variables, evaluated = _of_chain(steps, seen, wanted)
            return replace(stop, variables=variables, evaluated=evaluated, line=_failed_step(result, seen))
        if steps is not None:
            found.variables, found.evaluated = _of_chain(steps, seen, wanted)
        calls = pending_calls(replay, found, seen)
        return _stop(found, calls)


def step_of(recording: Recording, call: int | str) -> str:
    """Return the step of a call by its number or its step; empty for the call after the last one, which a run that has
    not ended may want. Raises RunError for a call that is not there."""
    calls = numbered(recording.calls)
    if isinstance(call, str) and not call.isdigit():
        if any(each.step == call for each in calls):
            return call
    elif 1 <= int(call) <= len(calls):
        return calls[int(call) - 1].step
    elif int(call) == len(calls) + 1 and recording.run.state not in _ENDED:
        return ""
    raise RunError(
        f"the run {recording.run.id} has no call {call}: it has made {len(calls)} calls; toolexec replay "
        f"{recording.run.id} --print calls lists them",
        code="run_not_found",
        op="replay",
        details={"run_id": recording.run.id, "calls": len(calls)},
    )


def check_still(recording: Recording) -> Recording:
    """Return the recording of a run that nothing changes now. Raises RunBusyError."""
    if recording.run.state == "running":
        raise RunBusyError(
            f"the run {recording.run.id} runs now, or its process has died: wait for it, resume it or cancel it first",
            op="replay",
            details={"run_id": recording.run.id},
        )
    return recording


def _probe(recording: Recording, wanted: Wanted, steps: list[Step] | None) -> LookingProbe:
    if recording.language == "workflow":
        return MachineProbe(wanted)
    return GuestProbe(wanted) if recording.language == "python" else CallProbe(wanted, steps)


def _of_chain(steps: list[Step], seen: list[SeenCall], wanted: Wanted) -> tuple[dict[str, str], JSONDict | None]:
    names = chain_names(steps, seen)
    shown = {name: value_text(value) for name, value in names.items() if name != "steps"}
    values = [*enumerate(cast("list[JSONValue]", names["steps"]))][-_MOST_STEPS:]
    shown |= {f"steps.{number}": value_text(value) for number, value in values}
    return shown, evaluated_text(wanted.expression, names)


def _stop(found: Found, calls: list[SeenCall]) -> Stop:
    return Stop(
        reason=found.reason,
        place=found.place,
        line=found.line,
        variables=found.variables,
        stack=found.stack,
        calls=calls,
        evaluated=found.evaluated,
    )


def _ended(result: Any, failure: ToolExecError | None, found: Found | None, seen: list[SeenCall]) -> Stop:
    """Return what there is at the end of a run, or where it failed."""
    error = failure or (result.error if result is not None else None)
    if error is None:
        return Stop(reason="end", calls=seen, value=result.value if result is not None else None)
    line = error.details.get("line") or getattr(error, "line", 0) or 0
    stop = Stop(reason="error", calls=seen, error=error, line=line if isinstance(line, int) else 0)
    if found is None or found.reason != "error":
        return stop
    stop = replace(stop, line=found.line or stop.line, variables=found.variables, stack=found.stack)
    return replace(stop, place=found.place, evaluated=found.evaluated)


def _failed_step(result: Any, seen: list[SeenCall]) -> int:
    """Return the line of the step that a chain failed at, or of its last one."""
    steps = result.steps if isinstance(result, ChainResult) else []
    failed = [each.index + 1 for each in steps if each.error is not None]
    return failed[-1] if failed else len(seen)
