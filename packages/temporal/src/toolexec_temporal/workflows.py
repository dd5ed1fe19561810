"""Durable runs as Temporal workflows: the program of a chain or workflow runs here, that of code in an activity.

Either way each tool call is an activity of its own, named by its step. Temporal replays this code from its history, so
it must take the same steps each time: what changes them needs `workflow.patched`, and a test with recorded histories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import count
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from toolexec import Result
from toolexec.errors import ExecutionError, InvalidResultError, RunError, ToolExecError, WorkflowCheckError
from toolexec.journal import (
    RESUMED,
    SETTLE_QUESTION,
    TOOK,
    CallRecord,
    CallSpec,
    DurableRunner,
    Host,
    JSONDict,
    RefusedArgs,
    Replay,
    RunSpec,
    ToolCall,
    approval_of,
    error_to_json,
    is_repeatable,
    is_timer,
    outcome_of,
    outcome_of_error,
    read_decision,
    read_outcome,
    repeat_here,
    sent_args,
    whole_length,
)
from toolexec_temporal.attributes import TOOLS, WAITS, words
from toolexec_temporal.children import Children
from toolexec_temporal.dispatcher import Dispatcher
from toolexec_temporal.host import host_of
from toolexec_temporal.limits import Limits
from toolexec_temporal.messages import (
    BEGIN_CHILD,
    KINDS,
    RUN_FAILED,
    VERSION,
    Carried,
    Child,
    Exchange,
    RunInput,
    call_to_json,
    memo_of,
    read_call,
    read_record,
    record_to_json,
)
from toolexec_temporal.places import HOLD, Place
from toolexec_temporal.settings import queue_of_places
from toolexec_temporal.sizes import ADVICE, excess_of, fits, lightened, page_of, size_of
from toolexec_temporal.slots import SLOT
from toolexec_temporal.waits import Log, Waits

__all__ = ["WORKFLOWS", "ChainWorkflow", "CodeWorkflow", "ProgramWorkflow"]

_GRACE: Final = 15.0
"""How many seconds a call may take beyond its own time limit, which its worker keeps."""
_RECORDED: Final = "record_run"
_SHOWN: Final = "waits in the memo"
_REFUSED: Final = "refused by the check"
_EXCESS: Final = "calls with too many arguments are recorded"
_NAMED: Final = "activities are named by steps"
_FAILS: Final = "failed runs are failed workflows"
_RESTS: Final = "sandboxes say when code rests"
_LIMITS: Final = "time limits are for what is between waits"
"""Names of changes of this code: what began before them is repeated without them."""
_FOREVER: Final = timedelta(days=3650)
_AGAIN: Final = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10))
_ONCE: Final = ("approve:", "settle:")
"""What the names of signals begin with of which each answers one question, though a step may ask it again."""
_SHOW_SECONDS: Final = 0.5
_MAX_UPDATES: Final = 1500
"""Temporal takes 2000 updates in one history."""


class _Run:
    """What the runs of all kinds share: calls, waits and signals, and moving over into a new history."""

    def __init__(self, given: RunInput) -> None:
        if given.version > VERSION:
            raise ApplicationError(f"this worker knows version {VERSION} of runs, not {given.version}; update it")
        carried = given.carried or Carried()
        self._given = given = _own(given)
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
        self._moving = False
        self._too_large = False
        self._minds_limits = False
        self._updates = 0
        self._tools: list[str] = list(workflow.info().typed_search_attributes.get(TOOLS) or ())

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
            "waiting": self._is_idle(),
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
        showing = asyncio.create_task(self._show_waits()) if workflow.patched(_SHOWN) else None
        try:
            await workflow.wait_condition(lambda: program.done() or (self._moving and self._is_quiet()))
        except asyncio.CancelledError:
            await _cancelled(program)
            await self._children.cancel()
            raise
        finally:
            for task in (showing, leaving):
                if task is not None:
                    task.cancel()
        if not program.done():
            carried = self._carried()
            await _cancelled(program)
            await self._place.give_back()
            memo = memo_of(self._record) if self._record.queue else None  # a new history has the first one otherwise
            given = self._given
            again = RunInput(given.record, self._rules, carried, given.version, held=given.held)
            workflow.continue_as_new(again, memo=memo)
        await self._place.give_back()
        calls = [] if self._record.kind == "chain" else [*self._calls.values()]
        ended = self._fitting({**program.result(), "calls": calls})
        if ended["state"] == "failed" and workflow.patched(_FAILS):
            raise ApplicationError("the run has failed; toolexec runs show says why", ended, type=RUN_FAILED)
        return ended

    def _fitting(self, ended: JSONDict) -> JSONDict:
        """Return how the run ended, with what a history takes: who wants the rest asks for the calls, page by page."""
        if self._rules.keeps_large or fits(ended):
            return ended
        lighter = {"state": ended["state"], "result": lightened(ended["result"]), "paged": True}
        if fits(lighter):
            return lighter
        error = InvalidResultError(
            f"the run {self.run_id} came to {size_of(ended['result']) / 1e6:.1f} MB, more than Temporal keeps in a "
            f"history; {ADVICE}",
            op="normalize",
            details={"run_id": self.run_id},
        )
        return {"state": "failed", "result": {"raised": error_to_json(error)}, "paged": True}

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
            await self._until_idle(self._rules.linger)
            if not self._place.is_wanted:
                self._place.leave()
                await workflow.wait_condition(lambda: not self._is_idle() or self._place.is_wanted)
            await workflow.wait_condition(lambda: not self._place.is_wanted)

    async def _show_waits(self) -> None:
        """Keep in the memo of the Temporal workflow what the run waits for, once it has waited for some time: lists of
        runs show that, whether a worker is there or not."""
        linger = max(self._rules.linger, _SHOW_SECONDS)
        while True:
            await self._until_idle(linger)
            waits = [*self._waits.open.values()]
            workflow.upsert_memo({"waits": [asdict(wait) for wait in waits]})
            self._show(WAITS, (wait.name or wait.kind for wait in waits))
            await workflow.wait_condition(lambda: not self._is_idle())
            workflow.upsert_memo({"waits": []})
            self._show(WAITS, ())

    def _show(self, key: SearchAttributeKey[Sequence[str]], values: Iterable[str]) -> None:
        """Have the server find the run by these words, if it began with that."""
        if self._rules.attributes:
            workflow.upsert_search_attributes([key.value_set(words(values))])

    def _note_tool(self, tool_id: str) -> None:
        if self._rules.attributes and tool_id not in self._tools:
            self._tools.append(tool_id)
            self._show(TOOLS, self._tools)

    async def _until_idle(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Return when the run has done nothing but wait for so long, or what it does *is_over*."""
        while not is_over():
            await workflow.wait_condition(lambda: is_over() or self._is_idle())
            try:
                await workflow.wait_condition(
                    lambda: is_over() or not self._is_idle(), timeout=timedelta(seconds=seconds)
                )
            except TimeoutError:
                return

    def _is_quiet(self) -> bool:
        """Return whether nothing is under way but waiting."""
        return self._open <= self._waits.open.keys()

    def _is_idle(self) -> bool:
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
        self._note_tool(call.tool)

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
        once = RetryPolicy(maximum_attempts=1)
        often = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=self._rules.attempts)
        try:
            return await workflow.execute_activity(
                "refuse_call" if spec.excess else "call_tool",
                spec,
                result_type=dict[str, Any],
                activity_id=spec.step,
                start_to_close_timeout=timedelta(seconds=(spec.timeout or self._rules.call_timeout) + _GRACE),
                heartbeat_timeout=timedelta(seconds=self._rules.heartbeat_timeout),
                retry_policy=often if repeats else once,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                if self._minds_limits and _is_being_cancelled():
                    raise asyncio.CancelledError from error  # what the time limit of a program waits for
                raise
        return await workflow.execute_activity(
            "settle_call",
            spec,
            result_type=dict[str, Any],
            activity_id=f"{spec.step}?settle" if workflow.patched(_NAMED) else f"{spec.step}!",
            start_to_close_timeout=timedelta(seconds=self._rules.call_timeout + _GRACE),
            heartbeat_timeout=timedelta(seconds=self._rules.heartbeat_timeout),
            retry_policy=_AGAIN,
        )

    @property
    def _host(self) -> Host:
        return host_of(workflow.info().task_queue)


class _Steps(_Run):
    """A run whose program runs here: a chain or a workflow. Its calls are answered by activities."""

    _replay: Replay | None = None

    async def _program(self) -> dict[str, Any]:
        record = self._record
        self._minds_limits = record.kind == "workflow" and workflow.patched(_LIMITS)
        limits = Limits(self._rules.linger)
        repeat_here(self._checked, limits.limit if self._minds_limits else None)
        replay = Replay(record.id, record.kind, [read_call(call) for call in self._calls.values()], self._delivered)
        self._replay = replay
        runner = DurableRunner(_Activities(self), self._host.find, Log(self), replay, self._waits)
        replay.sleeper = runner.sleep
        pausing = asyncio.create_task(self._pause(limits)) if self._minds_limits else None
        try:
            ended = await self._host.run(record, runner, replay)
        finally:
            if pausing is not None:
                pausing.cancel()
        if workflow.patched(_RECORDED):
            await self._record_end(ended)
        return ended

    async def _pause(self, limits: Limits) -> None:
        """Let no wait of the program count for its time limit, and none for a place."""
        while True:
            await workflow.wait_condition(self._is_idle)
            limits.pause()
            await workflow.wait_condition(lambda: not self._is_idle() and not self._place.is_wanted)
            limits.go_on()

    def _checked(self, check: Callable[[], None]) -> None:
        """Make the check of a program where the run begins: when Temporal repeats it, other tools may be there."""
        if self._given.carried is not None:
            return
        if not workflow.unsafe.is_replaying():
            try:
                check()
            except ToolExecError:
                workflow.patched(_REFUSED)  # a mark in the history
                raise
        elif workflow.patched(_REFUSED):
            check()
            raise WorkflowCheckError(
                f"the {self._record.kind} was refused when the run began, for tools that have changed since"
            )

    async def _record_end(self, ended: Mapping[str, Any]) -> None:
        """Have audit and telemetry know of the run: once, however often Temporal repeats this."""
        result = ended["result"]
        spec = RunSpec(
            self._record.id,
            self._record.kind,
            dict(self._record.settings.get("origin") or {}),
            workflow.time() - self._record.created,
            len(result.get("steps") or ()),
            result.get("raised") or result.get("error"),
        )
        limit = timedelta(seconds=self._rules.call_timeout)
        await workflow.execute_activity(
            "record_run",
            spec,
            activity_id=_own_name("record"),
            start_to_close_timeout=limit,
            heartbeat_timeout=timedelta(seconds=self._rules.heartbeat_timeout),
            retry_policy=_AGAIN,
        )

    def _groups(self) -> list[list[str]]:
        return super()._groups() + (self._replay.untaken if self._replay is not None else [])

    def _kind_of_run(self) -> str:
        """Return what rules about runs call this one."""
        given = self._record.settings.get("given") or {}
        is_skill = self._record.kind == "workflow" and (given.get("metadata") or {}).get("skill")
        return "skill" if is_skill else self._record.kind

    async def make(self, call: ToolCall) -> Result:
        """Make a call as an activity."""
        if type(call.args) is RefusedArgs and not workflow.patched(_EXCESS):
            raise call.args.error
        args, excess = sent_args(call.args)
        refused = None if self._rules.keeps_large else excess_of(call.tool_id, args)
        if refused is not None:
            raise refused
        spec = CallSpec(
            run_id=self.run_id,
            step=call.step,
            tool=call.tool_id,
            args=args,
            timeout=call.timeout,
            caller=self._record.caller,
            path=call.origin.path,
            origin=dict(self._record.settings.get("origin") or {}),
            excess=excess,
            run=self._kind_of_run(),
            approved=bool(self._record.settings.get("approved")),
        )
        return read_outcome(await self._make(spec))


class _Activities:
    """A runner whose calls are activities."""

    def __init__(self, run: _Steps) -> None:
        self._run = run

    async def run(self, call: ToolCall) -> Result:
        return await self._run.make(call)

    def stream(self, call: ToolCall) -> Any:
        raise NotImplementedError("durable runs do not stream their calls")


class _Code(_Run):
    """A run whose program runs in a sandbox, in an activity: its calls come here as updates."""

    def __init__(self, given: RunInput) -> None:
        super().__init__(given)
        self._dispatcher = Dispatcher()
        self._asked: set[str] = set()
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._minds_rest = False

    async def _program(self) -> dict[str, Any]:
        """Have the code run; stop its sandbox while the run only waits, and run it again after that."""
        self._minds_rest = workflow.patched(_RESTS)
        for start in count(1):
            await self._place.take()
            self._dispatcher.rests = not self._minds_rest
            work = workflow.start_activity(
                "run_code",
                self._given.record,
                result_type=dict[str, Any],
                activity_id=_own_name(f"code.{start}"),
                task_queue=f"{workflow.info().task_queue}-wasm",
                start_to_close_timeout=_FOREVER,
                heartbeat_timeout=timedelta(seconds=self._rules.heartbeat_timeout),
                retry_policy=_AGAIN,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            try:
                await self._until_idle(self._rules.linger, work.done)
            except asyncio.CancelledError:
                await _cancelled(work)
                raise
            if work.done():
                ended = work.result()
                self._delivered += ended.pop("delivered", ())  # of older workers it is not known
                return ended
            await _cancelled(work)
            await workflow.wait_condition(self._is_woken)
        raise AssertionError("code is started as often as it takes")

    @workflow.update
    async def attach(self, attempt: int) -> dict[str, Any]:
        """Let a sandbox begin: return the first page of what is known. Those of earlier attempts have lost the run."""
        self._dispatcher.attempt = attempt
        known = {**page_of([*self._calls.values()], 0), "delivered": self._delivered}
        if self._minds_rest:
            self._dispatcher.rests = False
            known["linger"] = self._rules.linger
        return known

    @workflow.update(unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def exchange(self, exchange: Exchange) -> dict[str, Any]:
        """Begin calls, and return the first outcomes of those that are wanted; none when another exchange comes."""
        self._updates += 1
        self._delivered += exchange.delivered
        for item in exchange.items:
            self._begin(CallSpec(**item))
        for step in exchange.cancelled:
            if (timer := self._timers.pop(step, None)) is not None:
                timer.cancel()
                self._asked.discard(step)
        return await self._dispatcher.answers(exchange, self._outcome)

    @exchange.validator
    def check_exchange(self, exchange: Exchange) -> None:
        """Refuse a sandbox that has lost the run."""
        self._dispatcher.check(exchange)

    def _outcome(self, step: str) -> JSONDict | None:
        return self._calls[step]["outcome"]

    def _begin(self, spec: CallSpec) -> None:
        known = self._calls.get(spec.step)
        if known is not None:
            if (known["tool"], known["args"]) != (spec.tool, spec.digest):
                error = RunError(
                    f"step {spec.step} calls {spec.tool} now, and called {known['tool']} before, or with other "
                    "arguments: the code is not the same in every run",
                    code="run_diverged",
                    details={"run_id": self.run_id, "step": spec.step},
                )
                known |= {"state": "failed", "outcome": outcome_of_error(error)}
            if known["state"] != "begun" or spec.step in self._asked:
                return
        if known is None:
            sent = f"{self.run_id}/{spec.step}"
            began = workflow.time()
            call = CallRecord(step=spec.step, tool=spec.tool, definition="", args=spec.digest, sent=sent, began=began)
            self._calls[spec.step] = call_to_json(call)
            self._note_tool(spec.tool)
        self._asked.add(spec.step)
        task = asyncio.create_task(self._answer(spec))  # the workflow's loop keeps it
        if is_timer(spec.step):
            self._timers[spec.step] = task

    async def _answer(self, spec: CallSpec) -> None:
        """Find the outcome of a call, and keep it."""
        try:
            if spec.refused is not None:
                outcome: JSONDict = {"raised": spec.refused}
            elif is_timer(spec.step) or self._waits.concerns(spec.tool):
                call = ToolCall(spec.tool, spec.args, step=spec.step)
                outcome = outcome_of(await self._waits.answer(call, read_call(self._calls[spec.step])))
            else:
                outcome = await self._make(spec)
        except ToolExecError as error:
            outcome = outcome_of_error(error)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            outcome = outcome_of_error(ExecutionError(f"the call of {spec.tool} was lost: {error.cause or error}"))
        state = "done" if _is_done(outcome) else "failed"
        took = max(workflow.time() - self._calls[spec.step]["began"], 0.0)
        self.note_end(spec.step, state, outcome | {TOOK: took})

    def _is_idle(self) -> bool:
        waits = self._waits.open
        short = any(is_timer(step) and whole_length(wait) <= self._rules.timer_linger for step, wait in waits.items())
        return super()._is_idle() and not short and self._dispatcher.rests

    def _is_woken(self) -> bool:
        """Return whether a run whose sandbox was stopped can go on: with one answer, though it may wait for others."""
        return not self._is_idle() or (self._minds_rest and self._dispatcher.has_news(self._outcome))


def _own(given: RunInput) -> RunInput:
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


def _own_name(name: str) -> str | None:
    """Return the ID of an activity of the run itself, as no step can be called; one that the SDK counts could be that
    of a call that is under way."""
    return f"?{name}" if workflow.patched(_NAMED) else None


def _is_done(outcome: JSONDict) -> bool:
    """Return whether an outcome is that of a call that did what it was asked."""
    try:
        return read_outcome(outcome).ok
    except ToolExecError:
        return False


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _cancelled(work: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has ended."""
    work.cancel()
    await asyncio.wait([work])
    _ = work.cancelled() or work.exception()


@workflow.defn(name=KINDS["chain"], sandboxed=False)
class ChainWorkflow(_Steps):
    """A durable chain."""

    @workflow.init
    def __init__(self, given: RunInput) -> None:
        super().__init__(given)

    @workflow.run
    async def run(self, given: RunInput) -> dict[str, Any]:
        """Run the chain."""
        return await self._run()


@workflow.defn(name=KINDS["workflow"], sandboxed=False)
class ProgramWorkflow(_Steps):
    """A durable run of a workflow, in toolexec's language."""

    @workflow.init
    def __init__(self, given: RunInput) -> None:
        super().__init__(given)

    @workflow.run
    async def run(self, given: RunInput) -> dict[str, Any]:
        """Run the workflow."""
        return await self._run()


@workflow.defn(name=KINDS["code"], sandboxed=False)
class CodeWorkflow(_Code):
    """A durable run of code in a sandbox."""

    @workflow.init
    def __init__(self, given: RunInput) -> None:
        super().__init__(given)

    @workflow.run
    async def run(self, given: RunInput) -> dict[str, Any]:
        """Run the code."""
        return await self._run()


WORKFLOWS: Final = (ChainWorkflow, ProgramWorkflow, CodeWorkflow)
