"""The runner of a durable run: answers what is recorded, and records what it has called."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import Final

import toolexec.durable.clock as host_clock
from toolexec.backend.here import Wait as WaitHere
from toolexec.code.deliveries import is_timer
from toolexec.discovery.index import Registered
from toolexec.durable.decisions import Decisions
from toolexec.durable.journal import CallRecord, CallState
from toolexec.durable.log import CallLog, RunLog
from toolexec.durable.outcomes import outcome_of, outcome_of_error, read_outcome
from toolexec.durable.replay import Replay, is_over
from toolexec.durable.waits import Waits
from toolexec.errors import (
    ClosedError,
    ConfigurationError,
    InvalidResultError,
    Outcome,
    RunError,
    ToolExecError,
)
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Approver
from toolexec.model.tool import Tool
from toolexec.run.reconcile import check_outcome
from toolexec.run.repeating import is_repeatable
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner, ThreadRunner, last_event, thread_runner
from toolexec.run.types import Result

BRIEF: Final = 0.05
"""After how many seconds a program's timer is recorded that is not over by then."""


class DurableRunner:
    """Makes each call of a run once, however often the run is made.

    A call whose outcome is recorded is answered with that. One that is recorded without an outcome may have done its
    work: it is made again where that does no harm, with the same idempotency key; else the tool's own check is asked,
    and then *waits*, where the run stays until a person has decided. Any other call is recorded, made by *inner*, and
    recorded again with its outcome. *find* finds the tools of *inner*, *clock* gives seconds since 1970.

    Raises RunError for a call that is not the recorded one, and what *log* raises; then no call is made any more.
    """

    def __init__(
        self,
        inner: Runner,
        find: Find,
        log: RunLog,
        replay: Replay,
        waits: Waits | None = None,
        *,
        clock: Callable[[], float] | None = None,
        took: Callable[[str], float | None] | None = None,
    ) -> None:
        """*took* gives how long the call of a step took, where *inner* knows that better."""
        self._inner = inner
        self._in_thread: ThreadRunner | None = thread_runner(inner)
        self._find = find
        self._log = CallLog(log, replay, clock, took)
        self._waits = waits
        self._decisions = Decisions(self._log, waits, self._waiting) if waits is not None else None
        self._definitions: dict[str, tuple[Tool, str]] = {}
        self._unmade: set[str] = set()  # recorded by this very process, and certainly not made
        self._counting = threading.Lock()
        self.replay = replay
        self.in_flight: int = 0
        """How many calls are being made, but for those that wait for the answer to a question."""
        self.active: float = time.monotonic()
        """When a call was last begun or ended."""

    # -- on the event loop --------------------------------------------------------------------------------------

    async def written(self) -> None:
        """Wait until all is written of calls that were begun, also of those that the program has left."""
        await self._log.written()

    async def run(self, call: ToolCall) -> Result:
        """Make the call, or answer it; see `Runner.run`."""
        record, digest = self._come(call)
        if record is not None and is_over(record):
            return read_outcome(record.outcome or {})
        await self._turn(call)
        if self._waits is not None and self._waits.concerns(call.tool_id):
            return await self._waited(self._waits, call, record, digest)
        entry = self._entry(call.tool_id)
        self._count(1)
        try:
            known = await self._known(entry, call, record) if record is not None else None
            return known if known is not None else await self._make(entry, call, digest, record)
        finally:
            self._count(-1)

    async def sleep(self, step: str, seconds: float, at: tuple[int, int] | None = None) -> None:
        """Wait for so long since the step was first begun, as `run:sleep` does."""
        call = ToolCall("run:sleep", {"seconds": seconds}, step=step)
        record, digest = self._come(call)
        if record is not None and is_over(record):
            return
        await self._turn(call)
        if self._waits is None:  # it is *inner* that waits
            await self._make(None, call, digest, record)
            return
        if record is None and is_timer(step):  # most of those beside a call are called off at once, and leave no trace
            record = self._record(None, call, digest, None)
            self._count(1)  # the run must not be suspended before this is written down
            try:
                if seconds > BRIEF:
                    await host_clock.pause(BRIEF)
                await self._log.write(self._log.begin, record)
            finally:
                self._count(-1)
        await self._waited(self._waits, call, record, digest)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call in one piece; see `Runner.stream`."""
        return self._stream(call)

    async def _stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        yield last_event(await self.run(call))

    async def _turn(self, call: ToolCall) -> None:
        """Wait until all that is recorded was repeated."""
        await self.replay.hold(call.step, call.tool_id)
        if self.replay.failure is not None:
            raise self.replay.failure

    def _come(self, call: ToolCall) -> tuple[CallRecord | None, str]:
        """Return what is recorded of the call, and the digest of its arguments. Raises RunError for another call."""
        replay, step = self.replay, call.step
        if replay.failure is not None:
            raise replay.failure
        if not step or "?" in step:
            raise ConfigurationError(
                f"{call.tool_id} was not called: a call of a durable run needs a step, without ?; see ToolCall.step",
                tool_id=call.tool_id,
            )
        digest = replay.digest(call.args)
        replay.asked.add(step)
        record = replay.records.get(step)
        if record is not None and (record.tool != call.tool_id or record.args != digest):
            same = record.tool == call.tool_id
            came = f"it calls {call.tool_id}{' with other arguments' if same else ''}"
            raise replay.diverged(step, came, f"a call of {record.tool}", call.at[0] if call.at else 0)
        return record, digest

    async def _make(self, entry: Registered | None, call: ToolCall, digest: str, before: CallRecord | None) -> Result:
        """Record the call, make it, and record how it ended."""
        record = self._record(entry, call, digest, before)
        await self._log.write(self._log.begin, record)
        self._unmade.discard(call.step)
        try:
            result = await self._inner.run(self._keyed(call, record))
        except asyncio.CancelledError:
            await self._called_off(record)
            raise
        except ClosedError:  # this process stops, which the run may outlive
            raise
        except ToolExecError as error:
            await self._log.write(self._log.end, record, *_ended_by(error))
            raise self._recorded_error(call.step) from error
        state, outcome = _ended(result)
        await self._log.write(self._log.end, record, state, outcome)
        return result if state == "done" else read_outcome(outcome)

    async def _known(self, entry: Registered | None, call: ToolCall, record: CallRecord) -> Result | None:
        """Return the answer of a call that was begun, or None for one that is to be made (again)."""
        if call.step in self._unmade:
            return None
        if self._decisions is not None and self._decisions.has_not_begun(record):
            await self._decisions.reopen(record)
            return None
        if entry is None or is_repeatable(entry.tool):
            return None

        async def make(check: Registered, args: JSONDict) -> Result:
            return await self._inner.run(ToolCall(check.tool.id, args, origin=call.origin))

        checked = await check_outcome(entry, call.args or {}, record.sent, self._find, make)
        if checked is None:
            result = await self._settled(call, record)
        else:
            result = Result(entry.tool.id, checked.value) if checked.done else None
        if result is None:
            return None
        result.binding = entry.binding
        state, outcome = _ended(result)
        await self._log.write(self._log.end, record, state, outcome)
        return result if state == "done" else read_outcome(outcome)

    async def _settled(self, call: ToolCall, record: CallRecord) -> Result | None:
        if self._decisions is None:
            raise self.replay.fail(_undecided(self._log.log.run_id, call, record))
        return await self._decisions.settled(call, record)

    async def _waited(self, waits: Waits, call: ToolCall, record: CallRecord | None, digest: str) -> Result:
        """Return the answer of a tool of the run itself: it waits, and does nothing that could be done twice."""
        self.active = time.monotonic()  # the program may be about to set a timer beside it
        if record is None:
            record = self._record(None, call, digest, None)
            await self._log.write(self._log.begin, record)
        try:
            result = await self._log.kept(waits.answer(call, record))
        except asyncio.CancelledError:
            await self._called_off(record)
            raise
        except ToolExecError as error:
            if error is self.replay.failure:
                raise
            await self._log.write(self._log.end, record, *_ended_by(error))
            raise
        state, outcome = _ended(result)
        await self._log.write(self._log.end, record, state, outcome)
        return result if state == "done" else read_outcome(outcome)

    async def _called_off(self, record: CallRecord) -> None:
        """Record that a call was cancelled by the program itself, and not with all of the run."""
        if self._waits is not None and self.replay.is_called_off(record.step):
            await self._log.write(self._log.call_off, record)

    # -- in a thread --------------------------------------------------------------------------------------------

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether `run_in_thread` would make or answer the call; see `ThreadRunner.runs_in_thread`."""
        replay = self.replay
        record = replay.records.get(call.step)
        if record is not None and is_over(record):
            return True
        if record is not None or not replay.is_live or replay.failure is not None or self._in_thread is None:
            return False
        if self._waits is not None and self._waits.concerns(call.tool_id):
            return False
        return self._in_thread.runs_in_thread(call, within)

    def run_in_thread(self, call: ToolCall, wait: WaitHere, within: float) -> Result | None:
        """Make or answer the call in this thread; see `ThreadRunner.run_in_thread`."""
        if not call.step or not self.runs_in_thread(call, within):
            return None
        known, digest = self._come(call)
        if known is not None:
            return read_outcome(known.outcome or {})
        inner = self._in_thread
        assert inner is not None
        record = self._record(self._entry(call.tool_id), call, digest, None)
        self._log.begin(record)
        self._count(1)
        try:
            result = inner.run_in_thread(self._keyed(call, record), wait, within)
        except ClosedError:
            raise
        except ToolExecError as error:
            self._log.end(record, *_ended_by(error))
            raise self._recorded_error(call.step) from error
        finally:
            self._count(-1)
        if result is None:  # it comes again on the event loop
            self._unmade.add(call.step)
            return None
        state, outcome = _ended(result)
        self._log.end(record, state, outcome)
        return result if state == "done" else read_outcome(outcome)

    # -- asking -------------------------------------------------------------------------------------------------

    def _approver(self, record: CallRecord) -> Approver | None:
        """Return how the call is approved in a run that may wait for that for days."""
        decisions = self._decisions
        if decisions is None:
            return None

        async def ask(request: ApprovalRequest) -> ApprovalAnswer:
            return await decisions.approval(record, request)

        return ask

    @contextmanager
    def _waiting(self) -> Generator[None]:
        """While a call waits for the answer to a question it is not under way."""
        self._count(-1)
        try:
            yield
        finally:
            self._count(1)

    # -- records ------------------------------------------------------------------------------------------------

    def _record(self, entry: Registered | None, call: ToolCall, digest: str, before: CallRecord | None) -> CallRecord:
        sent = before.sent if before is not None and before.sent else f"{self._log.log.run_id}/{call.step}"
        began = self._log.clock()
        if before is not None:  # an attempt is known by when it began, whatever the clock says
            began = max(began, math.nextafter(before.began, math.inf))
        return CallRecord(
            step=call.step,
            tool=call.tool_id,
            definition=self._definition(entry.tool) if entry is not None else "",
            args=digest,
            sent=sent,
            at=call.at,
            began=began,
        )

    def _keyed(self, call: ToolCall, record: CallRecord) -> ToolCall:
        origin = call.origin
        approver = self._approver(record)
        if approver is not None:
            origin = replace(origin, ask=approver)
        made = ToolCall(call.tool_id, call.args, call.timeout, call.on_progress, call.fallback, origin, call.run_id)
        made.idempotency_key, made.fresh, made.step = call.idempotency_key or record.sent, call.fresh, call.step
        return made

    def _recorded_error(self, step: str) -> ToolExecError:
        """Return the error that was just recorded, as a replay will raise it."""
        try:
            read_outcome(self.replay.records[step].outcome or {})
        except ToolExecError as error:
            return error
        raise AssertionError("what was raised is recorded as raised")

    def _count(self, change: int) -> None:
        with self._counting:
            self.in_flight += change
        self.active = time.monotonic()

    # -- tools --------------------------------------------------------------------------------------------------

    def _entry(self, tool_id: str) -> Registered | None:
        try:
            return self._find(tool_id)
        except ToolExecError:
            return None  # the call raises it

    def _definition(self, tool: Tool) -> str:
        known = self._definitions.get(tool.id)
        if known is None or known[0] is not tool:
            known = self._definitions[tool.id] = tool, definition_of(tool)
        return known[1]


def definition_of(tool: Tool) -> str:
    """Return what distinguishes a tool's version and schemas from others."""
    output = tool.output_schema.to_json() if tool.output_schema is not None else None
    facts = [tool.version, tool.input_schema.to_json(), output]
    return blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _ended(result: Result) -> tuple[CallState, JSONDict]:
    """Return a result as it is recorded; one that cannot be recorded is a failure, now and when it is repeated."""
    try:
        outcome = outcome_of(result)
    except InvalidResultError as error:
        return "failed", outcome_of(Result(result.tool_id, None, error, result.duration, result.binding))
    return ("done" if result.error is None else "failed"), outcome


def _ended_by(error: ToolExecError) -> tuple[CallState, JSONDict]:
    return ("not_done" if error.outcome is Outcome.NOT_SENT else "failed"), outcome_of_error(error)


_ADVICE: Final = "find out whether it did its work, and say so: toolexec runs signal"


def _undecided(run_id: str, call: ToolCall, record: CallRecord) -> RunError:
    return RunError(
        f"the outcome of {call.tool_id} (step {call.step}) is unknown, and nothing can decide that; {_ADVICE}",
        tool_id=call.tool_id,
        op="replay",
        code="run_diverged",
        details={"run_id": run_id, "step": call.step, "recorded": record.tool, "came": "an unknown outcome"},
    )
