"""A run that is made again with nothing but what is recorded: no tool, no backend and no journal can be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import toolexec.durable.clock as host_clock
from toolexec.code.deliveries import Probe, is_timer
from toolexec.durable.journal import CallRecord, CallState, RunRecord, RunState, Signal
from toolexec.durable.outcomes import read_outcome
from toolexec.durable.recorder import hidden_in
from toolexec.durable.replay import TOOK, Replay, is_over
from toolexec.durable.runner import DurableRunner
from toolexec.errors import RunError, ToolExecError, ToolNotFoundError
from toolexec.model.arguments import RefusedArgs
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, to_json_lossy
from toolexec.run.types import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCall:
    """A call of a run that is made again, with its arguments, which no journal keeps.

    `number` counts the calls of the program from 1 in the order in which they began, `step` is its key in the journal.
    A call without an answer, so far, is `open`: it has neither `value` nor `error`.
    """

    number: int
    step: str
    tool: str
    args: JSONDict | None
    is_open: bool = True
    value: JSONValue = None
    error: ToolExecError | None = None
    seconds: float = 0.0
    at: tuple[int, int] | None = None

    def to_dict(self) -> JSONDict:
        """Return the call as JSON-able data."""
        data: JSONDict = {"number": self.number, "step": self.step, "tool": self.tool, "args": self.args}
        if self.is_open:
            return data | {"open": True}
        data |= {"value": self.value} if self.error is None else {"error": self.error.to_dict()}
        return data | {"seconds": self.seconds}


def numbered(calls: Iterable[CallRecord]) -> list[CallRecord]:
    """Return the calls that a program has made itself, in the order of their beginning: no timers, and no questions
    about a call. The first is call 1 for everything that takes a number."""
    made = [call for call in calls if "?" not in call.step and not is_timer(call.step)]
    return sorted(made, key=lambda call: call.number)


def seconds_of(record: CallRecord) -> float | None:
    """Return how long a call took; None where that is not known. A fork has the times of the calls that it has from its
    parent in their outcomes only."""
    outcome = record.outcome or {}
    for key in (TOOK, "duration"):
        if isinstance(took := outcome.get(key), int | float):
            return float(took)
    return max(record.ended - record.began, 0.0) if record.ended is not None else None


class Unreachable:
    """A runner that makes no call. Implements `Runner`."""

    async def run(self, call: ToolCall) -> Result:
        """Raise RunError: nothing is called here."""
        raise _nothing_is_called(call.tool_id)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Raise RunError: nothing is called here."""
        raise _nothing_is_called(call.tool_id)


@dataclass(frozen=True, slots=True)
class NoLog:
    """Keeps nothing: a run that is made again has nothing to write down. Implements `RunLog`."""

    run_id: str
    is_remote: bool = False

    def begin(self, call: CallRecord, delivered: Sequence[Sequence[str]]) -> None:
        """Raise RunError."""
        raise _nothing_is_called(call.tool)

    def end(self, step: str, state: CallState, outcome: JSONObject) -> None:
        """Raise RunError."""
        raise _nothing_is_called(step)

    def take(self, step: str, name: str) -> Signal | None:
        """Return nothing: there is no signal."""
        return None


def find_nothing(tool_id: str) -> NoReturn:
    """Raise ToolNotFoundError: there is no tool that could be called."""
    raise ToolNotFoundError(tool_id)


class OfflineReplay(Replay):
    """Repeats what is recorded of a run; `seen` are the calls that the program came to.

    *probe* looks into the program. A run that has not ended stops where an answer is missing, with a RunError of the
    code `run_unanswered`.
    """

    def __init__(
        self, run: RunRecord, calls: Sequence[CallRecord], groups: Iterable[Sequence[str]], probe: Probe | None = None
    ) -> None:
        super().__init__(run.id, run.kind, calls, groups, verify=True)
        self.hide = hidden_in(run)
        self.probe: Probe | None = probe
        self._run_state: RunState = run.state
        self._numbers = {call.step: number for number, call in enumerate(numbered(calls), 1)}
        self._next = len(self._numbers)
        self._arrived: dict[str, ToolCall] = {}
        self._left_open = ""

    @property
    def consumed(self) -> int:
        """How many groups of answers the program has got."""
        return self._count

    def number(self, step: str) -> int:
        """Return the number of a call; a chain of a program has that of its first step, and a call that is not recorded
        gets the next."""
        if (first := self._numbers.get(f"{step}.0")) is not None:
            return first
        if step not in self._numbers:
            self._next += 1
            self._numbers[step] = self._next
        return self._numbers[step]

    def arrive(self, call: ToolCall) -> None:
        """Record a call that the program makes."""
        if not is_timer(call.step) and not self._left_open:
            self._arrived[call.step] = call

    def leave_open(self, call: ToolCall) -> None:
        """Record a call at which the program stops: nothing that comes after it is seen."""
        self.arrive(call)
        self._left_open = self._left_open or call.step

    def seen(self) -> list[SeenCall]:
        """Return the calls so far, in the order of their numbers, each as the program knows it now."""
        found = [self._seen(step, call) for step, call in [*self._arrived.items()]]
        return sorted(found, key=lambda each: each.number)

    def _seen(self, step: str, call: ToolCall) -> SeenCall:
        args = None if type(call.args) is RefusedArgs else to_json_lossy(dict(call.args or {}))
        record = self.records.get(step)
        seen = SeenCall(number=self.number(step), step=step, tool=call.tool_id, args=args, at=call.at)
        if record is None or not is_over(record) or step not in self.answered or step == self._left_open:
            return replace(seen, at=call.at or (record.at if record is not None else None))
        value, error = _ended(record)
        return replace(seen, is_open=False, value=value, error=error, seconds=seconds_of(record) or 0.0, at=record.at)

    def tool_of(self, step: str) -> str:
        """Return the tool of a call that the program came to, or that is recorded."""
        if (call := self._arrived.get(step)) is not None:
            return call.tool_id
        return self.records[step].tool if step in self.records else ""

    def has_come(self, step: str) -> bool:
        """Return whether the program came to a call, with the arguments that it has."""
        return step in self._arrived

    def new_record(self, step: str) -> CallRecord:
        """Return what is to be recorded of a call that the program came to, and that is not recorded yet."""
        call = self._arrived[step]
        return CallRecord(
            step=step,
            tool=call.tool_id,
            definition="",
            args=self.digest(call.args),
            number=len(self.records) + 1,
            at=call.at,
            began=host_clock.now(),
        )

    def note_answer(self, step: str) -> None:
        """Record that a step of a chain was answered: nothing else goes on meanwhile."""
        if self.kind == "chain" or (self.kind == "code" and "." in step):
            self.answered.add(step)

    # -- as every replay, and what it is missing ----------------------------------------------------------------

    def upcoming(self) -> Sequence[str] | None:
        """Implement `Deliveries.upcoming`."""
        if not self._groups and self._held:
            raise self.unanswered(min(self._held, key=self.number))
        return super().upcoming()

    async def hold(self, step: str, what: str) -> None:
        """Wait for ever; raise RunError where the program would."""
        if self.kind == "chain" or (self._sole and step.startswith(self._sole)):
            raise self.unanswered(step, what)
        await super().hold(step, what)

    def unanswered(self, step: str, tool: str = "") -> ToolExecError:
        """Return the error of a call whose answer is not known, and have no more calls made."""
        call = self._arrived.get(step)
        tool, at = tool or (call.tool_id if call is not None else ""), call.at if call is not None else None
        return self.fail(unanswered(self.run_id, self.number(step), step, tool, at, state=self._run_state))


class OfflineRunner(DurableRunner):
    """Answers the calls of a run from its records, and can make none: there is no tool behind it.

    *comes* is called with each call, on the event loop, before it is answered, and returns whether it is to stay
    unanswered; *answers* is what such a call fails with, None to leave it open.
    """

    def __init__(
        self,
        replay: OfflineReplay,
        comes: Callable[[str], bool] | None = None,
        answers: Callable[[str], ToolExecError | None] | None = None,
    ) -> None:
        super().__init__(Unreachable(), find_nothing, NoLog(replay.run_id), replay)
        self._offline = replay
        self._comes = comes
        self._answers = answers
        replay.sleeper = self.sleep

    async def run(self, call: ToolCall) -> Result:
        """Answer the call from the records; see `DurableRunner.run`."""
        if self._comes is not None and self._comes(call.step):
            self._offline.leave_open(call)
            failure = self._answers(call.step) if self._answers is not None else None
            if failure is not None:
                raise failure
            await asyncio.Event().wait()  # until all of it is cancelled
        try:
            return await super().run(call)
        finally:
            self._offline.note_answer(call.step)

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether the call is answered in the guest's own thread: not where it may have to stop."""
        return self._comes is None and super().runs_in_thread(call, within)

    def _come(self, call: ToolCall) -> tuple[CallRecord | None, str]:
        self._offline.arrive(call)
        return super()._come(call)


class UnansweredRunner(DurableRunner):
    """Answers what is recorded, and stops the run at the first call that is not."""

    async def _turn(self, call: ToolCall) -> None:
        await super()._turn(call)
        if is_timer(call.step):
            return
        replay = self.replay
        known = [record for record in numbered(replay.records.values()) if is_over(record)]
        raise replay.fail(unanswered(replay.run_id, len(known) + 1, call.step, call.tool_id, call.at))

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether the call is answered in the guest's own thread: only one that is recorded."""
        return self.replay.is_known(call.step) and super().runs_in_thread(call, within)


def unanswered(
    run_id: str,
    number: int,
    step: str,
    tool: str,
    at: tuple[int, int] | None = None,
    *,
    state: RunState = "waiting",
) -> RunError:
    """Return the error of a run in a *state* that wants the answer to a call that nothing has."""
    match state:
        case "queued":
            or_else = ", or leave it to a worker of its queue"
        case "cancelled":
            or_else = ""
        case _:
            or_else = f", or make it on real tools with `toolexec runs resume {run_id}`"
    where = f" (line {at[0]})" if at is not None and at[0] else ""
    error = RunError(
        f"the run {run_id} wants {tool or 'an answer'} as its call {number}{where}, and no answer is recorded: see its "
        f"arguments with `toolexec replay {run_id} --to call:{number}`, answer it in a fork with `toolexec runs fork "
        f"{run_id} --at {number} --answer FILE`{or_else}",
        tool_id=tool or None,
        code="run_unanswered",
        op="replay",
        details={"run_id": run_id, "step": step, "call": number},
    )
    if at is not None and at[0]:
        error.details["line"] = at[0]
    return error


def _ended(record: CallRecord) -> tuple[JSONValue, ToolExecError | None]:
    try:
        result = read_outcome(record.outcome or {})
    except ToolExecError as error:
        return None, error
    return result.value, result.error


def _nothing_is_called(what: str) -> RunError:
    return RunError(f"{what} was not called: a run that is made again calls nothing", code="run_diverged", op="replay")
