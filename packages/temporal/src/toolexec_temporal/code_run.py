"""A durable run of code: its program runs in a sandbox, in an activity; its calls come to the workflow as updates."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from toolexec.errors import ExecutionError, RunError, ToolExecError
from toolexec.journal import (
    TOOK,
    CallRecord,
    CallSpec,
    JSONDict,
    ToolCall,
    is_timer,
    outcome_of,
    outcome_of_error,
    read_outcome,
    whole_length,
)
from toolexec_temporal.activity_starts import start_code
from toolexec_temporal.changes import RESTS
from toolexec_temporal.dispatcher import Dispatcher
from toolexec_temporal.messages import Exchange, RunInput, call_to_json, read_call
from toolexec_temporal.run import Run, cancelled
from toolexec_temporal.sizes import page_of


class CodeRun(Run):
    """A run whose program runs in a sandbox, in an activity: its calls come here as updates."""

    def __init__(self, given: RunInput) -> None:
        super().__init__(given)
        self._dispatcher = Dispatcher()
        self._asked: set[str] = set()
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._minds_rest = False

    async def _program(self) -> dict[str, Any]:
        """Have the code run; stop its sandbox while the run only waits, and run it again after that."""
        self._minds_rest = workflow.patched(RESTS)
        for start in count(1):
            await self._place.take()
            self._dispatcher.rests = not self._minds_rest
            work = start_code(self._given.record, self._rules, start=start)
            try:
                await self.until_idle(self._rules.linger, work.done)
            except asyncio.CancelledError:
                await cancelled(work)
                raise
            if work.done():
                ended = work.result()
                delivered = ended.pop("delivered", [])  # of older workers it is not known
                there = len(self._delivered) - ended.pop("since", len(self._delivered))
                self._delivered += delivered[max(there, 0) :]
                return ended
            await cancelled(work)
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
            self._visibility.note_tool(spec.tool)
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

    def is_idle(self) -> bool:
        """Return whether the run does nothing but wait, and its sandbox rests."""
        waits = self._waits.open
        short = any(is_timer(step) and whole_length(wait) <= self._rules.timer_linger for step, wait in waits.items())
        return super().is_idle() and not short and self._dispatcher.rests

    def _is_woken(self) -> bool:
        """Return whether a run whose sandbox was stopped can go on: with one answer, though it may wait for others."""
        return not self.is_idle() or (self._minds_rest and self._dispatcher.has_news(self._outcome))


def _is_done(outcome: JSONDict) -> bool:
    """Return whether an outcome is that of a call that did what it was asked."""
    try:
        return read_outcome(outcome).ok
    except ToolExecError:
        return False
