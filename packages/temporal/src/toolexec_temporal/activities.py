"""The work of a worker for durable runs: tool calls, and code in sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError

from toolexec import Result
from toolexec.errors import InvalidResultError
from toolexec.journal import (
    TOOK,
    CallRecord,
    CallSpec,
    DurableRunner,
    Host,
    JSONDict,
    Replay,
    RunRecord,
    RunSpec,
    Signal,
    ToolCall,
    error_to_json,
    outcome_of,
    read_outcome,
    sent_args,
)
from toolexec_temporal.exchanges import Exchanges
from toolexec_temporal.messages import read_call, read_record
from toolexec_temporal.sizes import ADVICE, excess_of, fits, size_of

_PAGE_SECONDS: Final = 10.0
_MOST_BEATS: Final = 3
"""How many heartbeats go into the time that a worker may be silent."""


@asynccontextmanager
async def beating() -> AsyncGenerator[None, None]:
    """Report to Temporal that the current activity is alive; its answer is how a cancellation gets here."""
    limit = activity.info().heartbeat_timeout
    pause = limit.total_seconds() / _MOST_BEATS if limit is not None else 5.0

    async def beat() -> None:
        while True:  # the first one only after a pause: each is a request, and most calls are short
            await asyncio.sleep(pause)
            activity.heartbeat()

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()


@asynccontextmanager
async def _reporting(link: Exchanges, replay: Replay, linger: float | None) -> AsyncGenerator[None, None]:
    """Have the workflow know when the code rests; one of an older worker does not ask for that."""
    task = asyncio.create_task(link.report_rest(lambda: replay.is_at_rest, linger)) if linger is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


class Activities:
    """The activities of one worker, for the tools and sandboxes of *host*."""

    def __init__(self, host: Host, client: Client, *, keeps_large: bool) -> None:
        """With *keeps_large* there is a place for values that do not fit into a history."""
        self._host = host
        self._client = client
        self._keeps_large = keeps_large

    @activity.defn(name="call_tool")
    async def call_tool(self, spec: CallSpec) -> dict[str, Any]:
        """Make one tool call. What came of it is always a value: only a lost worker fails this."""
        async with beating():
            found = await self._host.call(spec)
            if self._keeps_large:
                return found
            return await asyncio.to_thread(_fitting, spec, found)

    @activity.defn(name="refuse_call")
    async def refuse_call(self, spec: CallSpec) -> dict[str, Any]:
        """Have a call with `excess` refused and recorded. A worker that would make it without its arguments does not
        know this activity."""
        async with beating():
            return await self._host.call(spec)

    @activity.defn(name="settle_call")
    async def settle_call(self, spec: CallSpec) -> dict[str, Any]:
        """Find out about a call whose worker was lost."""
        async with beating():
            return await self._host.settle(spec)

    @activity.defn(name="record_run")
    async def record_run(self, spec: RunSpec) -> None:
        """Have audit and telemetry know of a run that has ended."""
        async with beating():
            await self._host.record(spec)

    @activity.defn(name="run_code")
    async def run_code(self, given: dict[str, Any]) -> dict[str, Any]:
        """Run the code of a run in a sandbox; what was answered before is answered the same again."""
        info = activity.info()
        handle = self._client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        record = read_record(given)
        # The number of an attempt begins again with each activity; this one orders all of them.
        number = int(info.started_time.timestamp() * 1000)
        async with beating():
            known = await handle.execute_update("attach", number, result_type=dict[str, Any])
            calls = [*known["calls"]]
            if (start := known.get("next")) is not None:
                calls += await pages(handle, start)
            over = [read_call(call) for call in calls if call["state"] != "begun"]
            replay = Replay(record.id, record.kind, over, known["delivered"])
            async with _Link(handle, record, number, self._keeps_large) as link:
                link.known = len(known["delivered"])
                runner = DurableRunner(link, self._host.find, link, replay, took=link.took)
                replay.sleeper = runner.sleep
                async with _reporting(link, replay, known.get("linger")):
                    ended = await self._host.run(record, runner, replay)
            if link.broken is not None:  # says nothing of the code: it is run again, with what is recorded
                raise ApplicationError(f"the workflow of this code cannot be reached: {link.broken}")
            ended = ended if self._keeps_large else await asyncio.to_thread(_fitting_end, record, ended)
            since, delivered = link.undelivered()
            return {**ended, "delivered": delivered + replay.take_delivered(), "since": since}


def _fitting(spec: CallSpec, found: JSONDict) -> JSONDict:
    """Return the outcome of a call, or in its place the failure of one that no history takes."""
    if fits(found):
        return found
    error = InvalidResultError(
        f"{spec.tool} returned {size_of(found) / 1e6:.1f} MB, more than Temporal keeps in a history; {ADVICE}",
        tool_id=spec.tool,
        op="normalize",
    )
    return {"state": "done", "outcome": outcome_of(Result(spec.tool, None, error))}


def _fitting_end(record: RunRecord, ended: JSONDict) -> JSONDict:
    """Return what code came to, or in its place the failure of what no history takes."""
    if fits(ended):
        return ended
    error = InvalidResultError(
        f"the run {record.id} came to {size_of(ended) / 1e6:.1f} MB, more than Temporal keeps in a history; {ADVICE}",
        op="normalize",
        details={"run_id": record.id},
    )
    return {"state": "failed", "result": {"raised": error_to_json(error)}}


async def pages(handle: WorkflowHandle[Any, Any], start: int = 0) -> list[JSONDict]:
    """Return the calls of a run from *start* on, of its workflow. Raises as its queries do."""
    calls: list[JSONDict] = []
    after: int | None = start
    while after is not None:
        page: JSONDict = await handle.query(
            "page", after, result_type=dict[str, Any], rpc_timeout=timedelta(seconds=_PAGE_SECONDS)
        )
        calls += page["calls"]
        after = page["next"]
    return calls


class _Link(Exchanges):
    """A runner whose calls are made by the workflow of the run."""

    is_remote = False

    def __init__(self, handle: WorkflowHandle[Any, Any], record: RunRecord, attempt: int, keeps_large: bool) -> None:
        super().__init__(handle, attempt)
        self._activity = asyncio.current_task()
        self._keeps_large = keeps_large
        self.run_id: str = record.id
        self._record = record
        self._digests: dict[str, str] = {}
        self._took: dict[str, float] = {}

    def is_given_up(self, name: str) -> bool:
        """Return whether it is the code that waits no longer; one whose sandbox is stopped goes on with the answer."""
        return self._activity is not None and not self._activity.cancelling()

    def begin(self, call: CallRecord, delivered: Sequence[Sequence[str]] = ()) -> None:
        """Keep it for the exchange that makes the call."""
        self._digests[call.step] = call.args
        self.delivered += [[*group] for group in delivered]

    def end(self, step: str, state: str, outcome: Mapping[str, Any]) -> None:
        """Do nothing: the workflow knows it already."""

    def take(self, step: str, name: str) -> Signal | None:
        """Return nothing: signals are the workflow's."""
        return None

    async def run(self, call: ToolCall) -> Result:
        """Have the workflow make a call."""
        args, excess = sent_args(call.args)
        refused = None if self._keeps_large else excess_of(call.tool_id, args)
        spec = CallSpec(
            run_id=self.run_id,
            step=call.step,
            tool=call.tool_id,
            args=args if refused is None else {},
            timeout=call.timeout,
            caller=self._record.caller,
            origin=dict(self._record.settings.get("origin") or {}),
            digest=self._digests.get(call.step, ""),
            excess=excess,
            refused=error_to_json(refused) if refused is not None else None,
        )
        outcome = await self.ask(call.step, asdict(spec))
        if TOOK in outcome:
            self._took[call.step] = outcome[TOOK]
        return read_outcome(outcome)

    def took(self, step: str) -> float | None:
        """Return how many seconds a call took by the workflow's clock, once."""
        return self._took.pop(step, None)

    def stream(self, call: ToolCall) -> Any:
        """Code does not stream its calls."""
        raise NotImplementedError("durable runs do not stream their calls")
