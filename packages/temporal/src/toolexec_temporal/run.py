"""What durable runs of all kinds share as Temporal workflows: calls, waits, signals, and moving into a new history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from toolexec.journal import (
    RESUMED,
    SETTLE_QUESTION,
    CallRecord,
    CallSpec,
    Host,
    JSONDict,
    approval_of,
    is_repeatable,
    outcome_of,
    read_decision,
)
from toolexec_temporal.activity_starts import call_tool, settle_call
from toolexec_temporal.changes import FAILS, WAITS_SHOWN
from toolexec_temporal.children import Children
from toolexec_temporal.host import host_of
from toolexec_temporal.messages import (
    BEGIN_CHILD,
    RUN_FAILED,
    VERSION,
    Carried,
    Child,
    RunInput,
    call_to_json,
    memo_of,
    read_call,
    read_record,
    record_to_json,
)
from toolexec_temporal.places import HOLD, Place
from toolexec_temporal.settings import queue_of_places
from toolexec_temporal.sizes import fits, fitting_end, page_of
from toolexec_temporal.slots import SLOT
from toolexec_temporal.visibility import Visibility
from toolexec_temporal.waits import Log, Waits

_ONCE: Final = ("approve:", "settle:")
"""What the names of signals begin with of which each answers one question, though a step may ask it again."""
_MAX_UPDATES: Final = 1500
"""Temporal takes 2000 updates in one history."""


class Run:
    """A durable run. Its subclasses implement `_program`."""

    def __init__(self, given: RunInput) -> None:
        if given.version > VERSION:
            raise ApplicationError(f"this worker knows version {VERSION} of runs, not {given.version}; update it")
        carried = given.carried or Carried()
        self._given = given = _own_input(given)
        self._record = record = read_record(given.record)
        self.run_id: str = self._record.id
        self._rules = given.rules
        places = queue_of_places(workflow.info().task_queue, record.queue) if record.queue else ""
        self._place = Place(places, record.priority, given.rules.heartbeat_timeout, has_begun=bool(record.started))
        self._calls: dict[str, JSONDict] = {call["step"]: call for call in carried.calls}
        self._delivered: list[list[str]] = [*carried.delivered]
        self._signals: list[JSONDict] = [*carried.signals]
        self._children = Children(carried.children)
        self._open: set[str] = set()
        self._waits = Waits(Log(self), self._host.index)
        self._visibility = Visibility(self._rules, self._waits)
        self._moving = False
        self._too_large = False
        self._minds_limits = False
        self._updates = 0

    # -- from outside -------------------------------------------------------------------------------------------

    @workflow.signal(name="signal")
    def take_signal(self, signal: dict[str, Any]) -> None:
        """Keep a signal; one with an ID that is there is the same again."""
        if all(known["id"] != signal["id"] for known in self._signals):
            self._signals.append(signal | ({"taken_by": RESUMED} if signal["name"] == RESUMED else {}))

    @workflow.query
    def progress(self) -> dict[str, Any]:
        """Return how far the run has come: its calls, and what it waits for."""
        ended = [call for call in self._calls.values() if call["state"] != "begun"]
        return {
            "calls": len(self._calls),
            "ended": len(ended),
            "open": sorted(self._open - self._waits.open.keys()),
            "waits": [asdict(wait) for wait in self._waits.open.values()],
            "waiting": self.is_idle(),
            "signals": len(self._signals),
            "queued": not self._place.has_begun and bool(self._record.queue),
            "place": self._place.number,
        }

    @workflow.query
    def page(self, start: int) -> dict[str, Any]:
        """Return `calls` of the run from *start* on, and where the `next` begin."""
        return page_of([*self._calls.values()], start)

    @workflow.query
    def recorded(self) -> dict[str, Any]:
        """Return what the run was begun with, the groups in which answers reached it, and how many calls it has."""
        return {"record": record_to_json(self._record), "delivered": self._groups(), "calls": len(self._calls)}

    @workflow.query
    def signals(self) -> list[dict[str, Any]]:
        """Return the signals that were sent to the run."""
        return [*self._signals]

    @workflow.query
    def calls(self) -> list[dict[str, Any]]:
        """Return the calls of the run, in the order of their beginning."""
        return [*self._calls.values()]

    @workflow.update(name=HOLD, unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def hold(self, number: int, with_slot: bool = False) -> None:
        """Let the run have the place in its queue that an activity holds, and return when it has left it."""
        await self._place.hold(number, with_slot=with_slot)

    @workflow.signal(name=SLOT)
    def take_slot(self, number: int) -> None:
        """Let a place have a slot of its queue."""
        self._place.take_slot(number)

    @workflow.update(name=BEGIN_CHILD)
    async def begin_child(self, child: Child) -> bool:
        """Begin a run that a call of this one asks for, as its child; return False for one that is there already."""
        return await self._children.begin(child)

    # -- the run ------------------------------------------------------------------------------------------------

    async def _run(self) -> dict[str, Any]:
        """Run to the end, or until the history is long enough; return state and result."""
        await self._begin_in_turn()
        program = asyncio.create_task(self._program())
        leaving = asyncio.create_task(self._leave_while_idle()) if self._record.queue else None
        showing = asyncio.create_task(self._visibility.show_waits(self)) if workflow.patched(WAITS_SHOWN) else None
        try:
            await workflow.wait_condition(lambda: program.done() or (self._moving and self._is_quiet()))
        except asyncio.CancelledError:
            await cancelled(program)
            await self._children.cancel()
            raise
        finally:
            for task in (showing, leaving):
                if task is not None:
                    task.cancel()
        if not program.done():
            carried = self._carried()
            await cancelled(program)
            await self._place.give_back()
            memo = memo_of(self._record) if self._record.queue else None  # a new history has the first one otherwise
            given = self._given
            again = RunInput(given.record, self._rules, carried, given.version, held=given.held)
            workflow.continue_as_new(again, memo=memo)
        await self._place.give_back()
        calls = [] if self._record.kind == "chain" else [*self._calls.values()]
        ended = {**program.result(), "calls": calls}
        if not self._rules.keeps_large:
            ended = fitting_end(ended, self.run_id)
        if ended["state"] == "failed" and workflow.patched(FAILS):
            raise ApplicationError("the run has failed; toolexec runs show says why", ended, type=RUN_FAILED)
        return ended

    async def _program(self) -> dict[str, Any]:
        raise NotImplementedError

    async def _begin_in_turn(self) -> None:
        """Return when a run of a queue may begin: its clock begins then."""
        if not self._record.queue or self._record.started:
            return
        if self._given.delay:
            await asyncio.sleep(self._given.delay)
        await self._place.take()
        self._record = replace(self._record, started=workflow.time())
        self._given = RunInput(record_to_json(self._record), self._rules)
        workflow.upsert_memo({"started": self._record.started})

    async def _leave_while_idle(self) -> None:
        """Give the place in the queue to another run while this one only waits."""
        while True:
            await self.until_idle(self._rules.linger)
            if not self._place.is_wanted:
                self._place.leave()
                await workflow.wait_condition(lambda: not self.is_idle() or self._place.is_wanted)
            await workflow.wait_condition(lambda: not self._place.is_wanted)

    async def until_idle(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Return when the run has done nothing but wait for so long, or what it does *is_over*."""
        while not is_over():
            await workflow.wait_condition(lambda: is_over() or self.is_idle())
            try:
                await workflow.wait_condition(
                    lambda: is_over() or not self.is_idle(), timeout=timedelta(seconds=seconds)
                )
            except TimeoutError:
                return

    def _is_quiet(self) -> bool:
        """Return whether nothing is under way but waiting."""
        return self._open <= self._waits.open.keys()

    def is_idle(self) -> bool:
        """Return whether the run does nothing but wait."""
        return bool(self._waits.open) and self._is_quiet()

    def _is_long(self) -> bool:
        info = workflow.info()
        events = info.get_current_history_length()
        return events > self._rules.max_events or self._updates > _MAX_UPDATES or info.is_continue_as_new_suggested()

    def _can_move(self) -> bool:
        """Return whether what is known of the run goes into the first event of a new history."""
        if not self._rules.keeps_large and not self._too_large:
            self._too_large = not fits(asdict(self._carried()))
        return not self._too_large

    def _carried(self) -> Carried:
        """Return what a new history begins with: the calls that are over, and those that wait, but for approvals."""
        waiting = {step for step, wait in self._waits.open.items() if wait.kind != "approval"}
        calls = [call for step, call in self._calls.items() if call["state"] != "begun" or step in waiting]
        return Carried(calls, self._groups(), [*self._signals], [*self._children.names])

    def _groups(self) -> list[list[str]]:
        """Return the groups in which answers have reached the code."""
        return [*self._delivered]

    def note(self, call: CallRecord, delivered: Sequence[Sequence[str]]) -> None:
        """Record a call that is about to be made."""
        self._delivered += [[*group] for group in delivered]
        self._calls[call.step] = call_to_json(call)
        self._visibility.note_tool(call.tool)

    def note_end(self, step: str, state: str, outcome: Mapping[str, Any]) -> None:
        """Record its outcome."""
        self._calls[step] |= {"state": state, "outcome": dict(outcome), "ended": workflow.time()}

    @property
    def is_resumed(self) -> bool:
        """Whether the run was resumed."""
        return any(signal["name"] == RESUMED for signal in self._signals)

    def signal_for(self, step: str, name: str) -> JSONDict | None:
        """Return the signal that a step has taken, or the first of this name that none has."""
        named = [signal for signal in self._signals if signal["name"] == name]
        taken = [] if name.startswith(_ONCE) else [signal for signal in named if signal["taken_by"] == step]
        return next(iter(taken or [signal for signal in named if not signal["taken_by"]]), None)

    # -- one call -----------------------------------------------------------------------------------------------

    async def _make(self, spec: CallSpec) -> JSONDict:
        """Have a call made, and return its outcome. A run that is to continue in a new history begins no more."""
        if self._is_long() and self._can_move():
            self._moving = True
        if self._moving:
            await workflow.wait_condition(lambda: False)
        self._open.add(spec.step)
        try:
            if self._given.held:
                await self._waits.until_resumed(read_call(self._calls[spec.step]))
            while True:
                await self._place.take()
                found = await self._attempt(spec)
                if found["state"] == "waits":
                    record = read_call(self._calls[spec.step])
                    spec.answer = approval_of(await self._waits.question(record, "approval", found["details"]))
                elif found["state"] == "unknown":
                    settled = await self._settled(spec)
                    if settled is not None:
                        return settled
                elif found["state"] == "done":
                    return found["outcome"]
        finally:
            self._open.discard(spec.step)

    async def _settled(self, spec: CallSpec) -> JSONDict | None:
        """Wait until a signal says what became of a call; None when it is to be made again."""
        details: JSONDict = {
            "tool": spec.tool,
            "args": spec.args,
            "idempotency_key": f"{spec.run_id}/{spec.step}",
            "question": SETTLE_QUESTION,
        }
        while True:
            answer = await self._waits.question(read_call(self._calls[spec.step]), "settle", details)
            makes_sense, result = read_decision(spec.tool, answer)
            if makes_sense:
                return outcome_of(result) if result is not None else None

    async def _attempt(self, spec: CallSpec) -> JSONDict:
        """Return what came of one activity, or what is known of it when its worker was lost."""
        entry = self._host.index.find(spec.tool)
        repeats = bool(spec.excess) or (entry is not None and is_repeatable(entry.tool))
        try:
            return await call_tool(spec, self._rules, repeats=repeats)
        except ActivityError as error:
            if is_cancelled_exception(error):
                if self._minds_limits and _is_being_cancelled():
                    raise asyncio.CancelledError from error  # what the time limit of a program waits for
                raise
        return await settle_call(spec, self._rules)

    @property
    def _host(self) -> Host:
        return host_of(workflow.info().task_queue)


def _own_input(given: RunInput) -> RunInput:
    """Return what a run is started with: one of a schedule gets an ID, a clock and random numbers of its own."""
    if given.scheduled is None or given.carried is not None:
        return given
    info = workflow.info()
    began = info.start_time.timestamp()
    record = read_record(given.record)
    settings = dict(record.settings)
    if "seed" in settings:
        settings["seed"] = workflow.random().getrandbits(63)
    record = replace(
        record,
        id=info.workflow_id.removeprefix(given.scheduled),
        created=began,
        started=0.0 if record.queue else began,
        settings=settings,
    )
    return RunInput(record_to_json(record), given.rules)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def cancelled(work: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has ended."""
    work.cancel()
    await asyncio.wait([work])
    _ = work.cancelled() or work.exception()
