"""A durable chain or workflow: its program runs in the workflow, and each call is an activity."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from temporalio import workflow

from toolexec import Result
from toolexec.errors import ToolExecError, WorkflowCheckError
from toolexec.journal import (
    CallSpec,
    DurableRunner,
    RefusedArgs,
    Replay,
    RunSpec,
    ToolCall,
    read_outcome,
    repeat_here,
    sent_args,
)
from toolexec_temporal.activity_starts import record_run
from toolexec_temporal.changes import EXCESS, LIMITS, RECORDED, REFUSED
from toolexec_temporal.limits import Limits
from toolexec_temporal.messages import read_call
from toolexec_temporal.run import Run
from toolexec_temporal.sizes import excess_of
from toolexec_temporal.waits import Log


class ProgramRun(Run):
    """A run whose program runs here: a chain or a workflow. Its calls are answered by activities."""

    _replay: Replay | None = None

    async def _program(self) -> dict[str, Any]:
        record = self._record
        self._minds_limits = record.kind == "workflow" and workflow.patched(LIMITS)
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
        if workflow.patched(RECORDED):
            await self._record_end(ended)
        return ended

    async def _pause(self, limits: Limits) -> None:
        """Let no wait of the program count for its time limit, and none for a place."""
        while True:
            await workflow.wait_condition(self.is_idle)
            limits.pause()
            await workflow.wait_condition(lambda: not self.is_idle() and not self._place.is_wanted)
            limits.go_on()

    def _checked(self, check: Callable[[], None]) -> None:
        """Make the check of a program where the run begins: when Temporal repeats it, other tools may be there."""
        if self._given.carried is not None:
            return
        if not workflow.unsafe.is_replaying():
            try:
                check()
            except ToolExecError:
                workflow.patched(REFUSED)  # a mark in the history
                raise
        elif workflow.patched(REFUSED):
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
        await record_run(spec, self._rules)

    def _groups(self) -> list[list[str]]:
        return super()._groups() + (self._replay.untaken if self._replay is not None else [])

    def _kind_of_run(self) -> str:
        """Return what rules about runs call this one."""
        given = self._record.settings.get("given") or {}
        is_skill = self._record.kind == "workflow" and (given.get("metadata") or {}).get("skill")
        return "skill" if is_skill else self._record.kind

    async def make(self, call: ToolCall) -> Result:
        """Make a call as an activity."""
        if type(call.args) is RefusedArgs and not workflow.patched(EXCESS):
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

    def __init__(self, run: ProgramRun) -> None:
        self._run = run

    async def run(self, call: ToolCall) -> Result:
        return await self._run.make(call)

    def stream(self, call: ToolCall) -> Any:
        raise NotImplementedError("durable runs do not stream their calls")
