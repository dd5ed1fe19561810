"""Durable runs on Temporal, for many machines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from time import time
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from toolexec.errors import JournalError, RunBusyError, RunError
from toolexec.journal import (
    RESUMED,
    CallRecord,
    JSONDict,
    QueueRecord,
    RunRecord,
    RunState,
    Signal,
    Wait,
    error_to_json,
    pauses,
)
from toolexec_temporal.messages import (
    KINDS,
    RUN_FAILED,
    Child,
    Rules,
    RunInput,
    memo_of,
    read_call,
    read_record,
    record_to_json,
)
from toolexec_temporal.settings import TemporalSettings
from toolexec_temporal.sizes import with_values

if TYPE_CHECKING:
    from typing import TypedDict

    from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle

    from toolexec.journal import Host, Queue, Schedule
    from toolexec_temporal.worker import TemporalWorker

    class _Settings(TypedDict, total=False):
        address: str
        namespace: str
        task_queue: str
        prefix: str
        tls: bool
        api_key: str
        key: str
        old_keys: Sequence[str]
        large_bytes: int
        large_directory: str
        call_timeout: float
        heartbeat_timeout: float
        attempts: int
        max_events: int
        linger: float
        deployment: str
        build_id: str
        pinned: bool
        search_attributes: bool


__all__ = ["TemporalEngine"]

logger: logging.Logger = logging.getLogger(__name__)
_FIRST_LOOK: Final = 0.5
_LAST_LOOK: Final = 5.0
_NO_EVENT: Final = "No completion event"
_QUERY_SECONDS: Final = 3.0
_STUCK_ATTEMPTS: Final = 3
"""From which attempt at one task of a workflow on its run counts as stuck: workers that were lost fail one."""
_GRACE: Final = 0.05
_STATES: Final = {
    "RUNNING": "running",
    "COMPLETED": "done",
    "FAILED": "failed",
    "CANCELED": "cancelled",
    "TERMINATED": "cancelled",
    "CONTINUED_AS_NEW": "running",
    "TIMED_OUT": "failed",
}
"""How Temporal calls the states of a run; one that ended by itself says more exactly how."""
_OPEN: Final = ("queued", "running", "waiting")
_STATUSES: Final = {
    **dict.fromkeys(_OPEN, ("Running",)),
    "done": ("Completed",),
    "failed": ("Completed", "Failed", "TimedOut"),  # older runs that have failed are completed workflows
    "cancelled": ("Canceled", "Terminated"),
}
"""Which of Temporal's lists have the runs in a state."""


class TemporalEngine:
    """Runs chains, workflows and code on Temporal: `Exec(journal=TemporalEngine(address="localhost:7233"))`.

    The runs are executed by workers (`toolexec temporal worker`) with the same settings and the same tools; this only
    starts them and asks for them. *settings* are those of `TemporalSettings`, given as one object or by keyword. It
    connects at the first use. Raises ConfigurationError for invalid settings.
    """

    def __init__(self, settings: TemporalSettings | None = None, **given: Unpack[_Settings]) -> None:
        self.settings: TemporalSettings = replace(settings or TemporalSettings(), **given)
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def client(self) -> Client:
        """Return the connection; raises JournalError when the server cannot be reached, and ConfigurationError for
        search attributes that it does not have."""
        from toolexec_temporal.client import connect

        async with self._connecting:
            if self._client is None:
                client = await connect(self.settings)
                if self.settings.search_attributes:
                    from toolexec_temporal.attributes import check_attributes

                    async with _explained(""):
                        await check_attributes(client)
                self._client = client
            return self._client

    def worker(
        self, host: Host, *, isolations: Sequence[str] | None, max_activities: int, patience: float
    ) -> TemporalWorker:
        """Implement `WorkedEngine.worker`."""
        from toolexec_temporal.worker import TemporalWorker

        return TemporalWorker(
            host, self.settings, isolations=isolations, max_activities=max_activities, patience=patience
        )

    # -- runs ---------------------------------------------------------------------------------------------------

    async def run(self, record: RunRecord) -> RunRecord:
        """Implement `DurableEngine.run`."""
        record = replace(record, created=record.created or time())
        await self._start(record, RunInput(record_to_json(record), self._rules()), memo_of(record))
        return await self._awaited(record.id)

    async def fork(
        self, run: RunRecord, calls: Sequence[CallRecord], groups: Sequence[Sequence[str]], *, held: bool
    ) -> RunRecord:
        """Implement `RecordedEngine.fork`."""
        from toolexec_temporal.recordings import fork_input, fork_memo

        run = replace(run, created=time(), owner="", lease=0.0)
        given = fork_input(run, self._rules(), calls, groups, held=held)
        await self._start(run, given, fork_memo(run, held=held), joins=False)
        return await self._awaited(run.id)

    async def _start(self, record: RunRecord, given: RunInput, memo: JSONDict, *, joins: bool = True) -> None:
        """Start a run that is not there yet. Raises RunError for an ID that another one has; where it *joins* none,
        also for one that was begun with the same."""
        async with _explained(record.id):
            is_new = await self._begun(Child(self._name(record.id), self.settings.task_queue, given, memo))
        if is_new:
            return
        there = await (await self._described(record.id)).memo()
        if not joins or (there.get("digest"), there.get("caller")) != (record.digest, record.caller):
            raise RunError(
                f"there is a run {record.id} already, begun with another source, other inputs or settings, or by "
                "another caller; take another ID",
                code="run_changed",
                details={"run_id": record.id},
            )

    async def _begun(self, run: Child) -> bool:
        """Have the server begin a run: as the child of the one whose call this is, or by itself. Return False for one
        that is there already."""
        from temporalio.exceptions import WorkflowAlreadyStartedError

        from toolexec_temporal.attributes import first_attributes
        from toolexec_temporal.children import begin_child, parent_of_call

        parent = parent_of_call(self.settings)
        if parent is not None and (is_new := await begin_child(parent, run)) is not None:
            return is_new
        record = read_record(run.given.record)
        client = await self.client()
        try:
            await client.start_workflow(
                KINDS[record.kind],
                run.given,
                id=run.id,
                task_queue=run.task_queue,
                id_reuse_policy=_never_again(),
                memo=run.memo,
                search_attributes=first_attributes(record) if run.given.rules.attributes else None,
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    def _rules(self) -> Rules:
        settings = self.settings
        return Rules(
            settings.call_timeout,
            settings.heartbeat_timeout,
            settings.attempts,
            settings.max_events,
            settings.linger,
            bool(settings.large_directory),
            settings.timer_linger,
            settings.search_attributes,
        )

    async def resume(self, run_id: str) -> RunRecord:
        """Implement `DurableEngine.resume`."""
        from toolexec_temporal.recordings import is_held

        known = await self._described(run_id)
        if known.close_time is None and is_held(await known.memo()):
            with suppress(RunError):  # it has ended meanwhile
                await self.signal(run_id, Signal(id=RESUMED, name=RESUMED, sent=time()))
        return await self._awaited(run_id)

    async def _awaited(self, run_id: str) -> RunRecord:
        """Return a run once it has ended or waits."""
        handle = await self._handle(run_id)
        ended = asyncio.ensure_future(self._ended(handle, run_id))
        waits = pauses(max(self.settings.linger, _FIRST_LOOK), _LAST_LOOK, factor=1.5)
        try:
            while True:
                await asyncio.wait([ended], timeout=next(waits))
                if ended.done():
                    return ended.result()
                progress = await self._progress(handle)
                if progress.get("waiting"):
                    return replace(await self._record(run_id), state="waiting", waits=_waits(progress))
        finally:
            ended.cancel()
            await asyncio.wait([ended])

    async def get(self, run_id: str) -> RunRecord:
        """Implement `DurableEngine.get`."""
        record = await self._record(run_id)
        handle = await self._handle(run_id)
        if record.state not in _OPEN:
            return await self._ended(handle, run_id)
        progress = await self._progress(handle)
        if not progress:  # no worker answers
            return record
        waits = _waits(progress)
        state: RunState = "waiting" if progress.get("waiting") else "running"
        if progress.get("queued"):
            state = "queued"
        return replace(record, state=state, waits=waits, calls=progress.get("calls", 0))

    async def calls(self, run_id: str) -> list[CallRecord]:
        """Implement `DurableEngine.calls`. Raises JournalError where no worker answers for a run that goes on."""
        from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

        from toolexec_temporal.recordings import numbered, read_calls

        handle = await self._handle(run_id)
        known = await self._described(run_id)
        async with _explained(run_id):
            ended: JSONDict = {"paged": True}
            if known.status in (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED):
                with suppress(WorkflowFailureError):
                    ended = await _result(handle)
            if (
                not ended.get("paged") and (await known.memo()).get("kind") != "chain"
            ):  # which has them in its state only
                return numbered([read_call(call) for call in ended["calls"]])
            return await read_calls(handle, run_id)

    async def recording(self, run_id: str) -> tuple[RunRecord, list[CallRecord], list[list[str]]]:
        """Implement `RecordedEngine.recording`."""
        from toolexec_temporal.recordings import read_recording

        known = await self.get(run_id)
        async with _explained(run_id):
            return await read_recording(await self._handle(run_id), known)

    async def signals(self, run_id: str) -> list[Signal]:
        """Implement `DurableEngine.signals`. Raises JournalError where no worker answers."""
        from temporalio.client import WorkflowQueryFailedError

        handle = await self._handle(run_id)
        async with _explained(run_id):
            try:
                given = await handle.query(
                    "signals", result_type=list[dict[str, Any]], rpc_timeout=timedelta(seconds=_QUERY_SECONDS)
                )
            except WorkflowQueryFailedError as error:
                raise JournalError(f"the signals of {run_id} cannot be read: {error}") from error
        return [Signal(**signal) for signal in given]

    async def runs(
        self,
        *,
        states: Sequence[RunState] = (),
        caller: str | None = None,
        limit: int = 100,
        before: float | None = None,
    ) -> list[RunRecord]:
        """Implement `DurableEngine.runs`. What a run waits for is known once it has waited for a moment.
        A run that was begun with another key is left out, and logged."""
        found: list[RunRecord] = []
        async for record, _ in self._listed(states):
            if (
                (not states or record.state in states)
                and (caller is None or record.caller == caller)
                and (before is None or record.created < before)
            ):
                found.append(record)
                if len(found) >= limit:
                    break
        return sorted(found, key=lambda record: -record.created)

    async def _listed(self, states: Sequence[RunState]) -> AsyncGenerator[tuple[RunRecord, float], None]:
        """Give the runs of the server that may be in one of these states, and when each may begin at the earliest."""
        client = await self.client()
        types = ", ".join(f"'{name}'" for name in KINDS.values())
        query = f"WorkflowType IN ({types})"
        if states:
            wanted = sorted({name for state in states for name in _STATUSES[state]})
            query += f" AND ExecutionStatus IN ({', '.join(map(repr, wanted))})"
        async with _explained(""):
            async for each in client.list_workflows(query):
                state = _STATES.get(each.status.name if each.status is not None else "", "running")
                continued = each.status is not None and each.status.name == "CONTINUED_AS_NEW"
                if continued or not each.id.startswith(self.settings.prefix):  # others may have other keys
                    continue
                try:
                    memo = await each.memo()
                except JournalError as error:
                    logger.warning("the run %s is not in the list, as it cannot be read: %s", each.id, error)
                    continue
                run = _summary(each.id.removeprefix(self.settings.prefix), state, memo, each)
                yield run, memo.get("ready") or run.created

    async def signal(self, run_id: str, signal: Signal) -> bool:
        """Implement `DurableEngine.signal`."""
        from temporalio.client import WorkflowExecutionStatus

        known = await self._described(run_id)
        if known.status is not WorkflowExecutionStatus.RUNNING:
            raise _ended_error(run_id)
        handle = await self._handle(run_id)
        waits = {wait.name for wait in _waits(await self._progress(handle))}
        async with _explained(run_id):
            await handle.signal("signal", asdict(signal))
        return signal.name in waits

    async def cancel(self, run_id: str) -> bool:
        """Implement `DurableEngine.cancel`: the sandbox and the calls of the run are stopped, and then it has
        ended. A run whose workflow fails again and again cannot take that in, and is ended at once."""
        handle = await self._handle(run_id)
        pending = (await self._described(run_id)).raw_description.pending_workflow_task
        async with _explained(run_id):
            if pending.attempt >= _STUCK_ATTEMPTS:
                await handle.terminate(reason="cancelled; its workflow failed again and again")
                return True
            await handle.cancel()
        return False

    async def delete(self, run_id: str) -> bool:
        """Implement `DurableEngine.delete`."""
        from temporalio.api.common.v1 import WorkflowExecution
        from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
        from temporalio.client import WorkflowExecutionStatus

        try:
            known = await self._described(run_id)
        except RunError as error:
            if error.code == "run_not_found":
                return False
            raise
        if known.status is WorkflowExecutionStatus.RUNNING:
            raise RunBusyError(f"the run {run_id} has not ended; cancel it first", details={"run_id": run_id})
        client = await self.client()
        async with _explained(run_id):
            await client.workflow_service.delete_workflow_execution(
                DeleteWorkflowExecutionRequest(
                    namespace=self.settings.namespace,
                    workflow_execution=WorkflowExecution(workflow_id=self._name(run_id)),
                )
            )
        return True

    # -- queues and schedules -----------------------------------------------------------------------------------

    async def enqueue(self, run: RunRecord, limits: Queue, *, delay: float) -> RunRecord:
        """Implement `QueuedEngine.enqueue`. The limits are those of the worker that takes the run."""
        run = replace(run, created=run.created or time())
        await self._start(run, RunInput(record_to_json(run), self._rules(), delay=delay), memo_of(run, delay))
        return await self._record(run.id)

    async def queues(self) -> list[QueueRecord]:
        """Implement `QueuedEngine.queues`. A run whose worker was lost counts as one that runs."""
        found: dict[str, list[tuple[RunRecord, float]]] = {}
        async for run, ready in self._listed(_OPEN):
            if run.queue:
                found.setdefault(run.queue, []).append((run, ready))
        return [_counted(name, found[name]) for name in sorted(found)]

    async def add_schedule(
        self, schedule: Schedule, run: RunRecord, limits: Queue | None, *, replace: bool
    ) -> Schedule:
        """Implement `QueuedEngine.add_schedule`: one of Temporal's own. The ID of a run is the name of the schedule, a
        `-` and the time. Raises ConfigurationError for times that Temporal does not have."""
        from temporalio.client import ScheduleActionStartWorkflow
        from temporalio.common import TypedSearchAttributes

        from toolexec_temporal.attributes import first_attributes
        from toolexec_temporal.schedules import add_schedule

        settings = self.settings
        action = ScheduleActionStartWorkflow(
            KINDS[run.kind],
            RunInput(record_to_json(run), self._rules(), scheduled=settings.prefix),
            id=self._name(schedule.name),
            task_queue=self.settings.task_queue,
            memo=memo_of(run),
            typed_search_attributes=first_attributes(run)
            if settings.search_attributes
            else TypedSearchAttributes.empty,
        )
        async with _explained(schedule.name):
            return await add_schedule(await self.client(), self.settings.prefix, schedule, action, replace=replace)

    async def schedules(self) -> list[Schedule]:
        """Implement `QueuedEngine.schedules`. Temporal's index lags by a moment."""
        from toolexec_temporal.schedules import list_schedules

        async with _explained(""):
            return await list_schedules(await self.client(), self.settings.prefix)

    async def remove_schedule(self, name: str) -> bool:
        """Implement `QueuedEngine.remove_schedule`."""
        from toolexec_temporal.schedules import remove_schedule

        async with _explained(name):
            return await remove_schedule(await self.client(), self.settings.prefix, name)

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        """Implement `QueuedEngine.pause_schedule`."""
        from toolexec_temporal.schedules import pause_schedule

        async with _explained(name):
            return await pause_schedule(await self.client(), self.settings.prefix, name, paused=paused)

    async def aclose(self) -> None:
        """Implement `DurableEngine.aclose`; a later use connects again."""
        client, self._client = self._client, None
        if client is not None:
            await asyncio.sleep(
                _GRACE
            )  # threads of the SDK that still hold what they have delivered would abort an exit

    # -- one run ------------------------------------------------------------------------------------------------

    def _name(self, run_id: str) -> str:
        return f"{self.settings.prefix}{run_id}"

    async def _handle(self, run_id: str) -> WorkflowHandle[Any, Any]:
        return (await self.client()).get_workflow_handle(self._name(run_id), result_type=dict[str, Any])

    async def _described(self, run_id: str) -> WorkflowExecutionDescription:
        handle = await self._handle(run_id)
        async with _explained(run_id):
            return await handle.describe()

    async def _record(self, run_id: str) -> RunRecord:
        """Return what the server itself knows of a run."""
        known = await self._described(run_id)
        state = _STATES.get(known.status.name if known.status is not None else "", "running")
        return _summary(run_id, state, await known.memo(), known)

    async def _progress(self, handle: WorkflowHandle[Any, Any]) -> JSONDict:
        """Return what the workflow says of itself; nothing where no worker answers in time."""
        from temporalio.client import WorkflowQueryFailedError
        from temporalio.service import RPCError

        try:
            return await handle.query(
                "progress", result_type=dict[str, Any], rpc_timeout=timedelta(seconds=_QUERY_SECONDS)
            )
        except (RPCError, WorkflowQueryFailedError):
            return {}

    async def _ended(self, handle: WorkflowHandle[Any, Any], run_id: str) -> RunRecord:
        """Wait for the end of a run, and return it with its result."""
        from temporalio.client import WorkflowFailureError
        from temporalio.exceptions import CancelledError, TerminatedError

        state: RunState
        result: JSONDict | None
        async with _explained(run_id):
            try:
                given = await _result(handle)
                state, result = given["state"], given["result"]
                if given.get("paged") and given["result"].get("steps"):
                    result = with_values(given["result"], await self.calls(run_id))
            except WorkflowFailureError as error:
                was_cancelled = isinstance(error.cause, CancelledError | TerminatedError)
                state, result = ("cancelled", None) if was_cancelled else ("failed", {"raised": _lost(error, run_id)})
        return replace(await self._record(run_id), state=state, result=result)


async def _result(handle: WorkflowHandle[Any, Any]) -> JSONDict:
    """Wait for what a workflow ends with: what it returns, or says of its failure.

    A server that ends a request for its last event without one (Temporal's test server does, after a while) is asked
    again: the client library takes that for an error. Raises WorkflowFailureError for one that could not say how it
    ended.
    """
    from temporalio.client import WorkflowFailureError
    from temporalio.exceptions import ApplicationError

    while True:
        try:
            return cast("JSONDict", await handle.result())
        except WorkflowFailureError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type == RUN_FAILED:
                return cast("JSONDict", error.cause.details[0])
            raise
        except RuntimeError as error:
            if _NO_EVENT not in str(error):
                raise
        await asyncio.sleep(_FIRST_LOOK)


def _never_again() -> Any:
    from temporalio.common import WorkflowIDReusePolicy

    return WorkflowIDReusePolicy.REJECT_DUPLICATE


@asynccontextmanager
async def _explained(run_id: str) -> AsyncGenerator[None, None]:
    """Raise errors of the server as those of durable runs."""
    from temporalio.service import RPCError

    from toolexec_temporal.client import translated

    try:
        yield
    except RPCError as error:
        raise translated(error, run_id) from error


def _ended_error(run_id: str) -> RunError:
    return RunError(f"the run {run_id} has ended", code="run_ended", details={"run_id": run_id})


def _lost(error: Exception, run_id: str) -> JSONDict:
    """Return as JSON why a run failed that could not say so itself."""
    reason = error.__cause__ or error
    cause = getattr(reason, "cause", None) or reason
    return error_to_json(RunError(f"the run {run_id} failed on Temporal: {cause}", details={"run_id": run_id}))


def _waits(progress: JSONDict) -> tuple[Wait, ...]:
    return tuple(Wait(**wait) for wait in progress.get("waits", ()))


def _counted(name: str, runs: Sequence[tuple[RunRecord, float]]) -> QueueRecord:
    """Return what there is in a queue, of its runs and when each may begin."""
    of = {state: [run for run, _ in runs if run.state == state] for state in _OPEN}
    now = time()
    return QueueRecord(
        name=name,
        queued=len(of["queued"]),
        delayed=sum(run.state == "queued" and ready > now for run, ready in runs),
        running=len(of["running"]),
        waiting=len(of["waiting"]),
        queued_since=min((run.created for run in of["queued"]), default=None),
        running_since=min((run.started for run in of["running"]), default=None),
    )


def _summary(run_id: str, state: str, memo: Any, known: Any) -> RunRecord:
    ended = known.close_time
    waits = (memo.get("waits") or []) if state == "running" else []
    started = memo.get("started") or 0.0
    if state == "running" and memo.get("queue") and not started:
        state = "queued"
    return read_record(
        {
            "id": run_id,
            "kind": memo.get("kind", "code"),
            "source": "",
            "digest": memo.get("digest", ""),
            "settings": {"parent": memo["parent"]} if memo.get("parent") else {},
            "caller": memo.get("caller", ""),
            "state": "waiting" if waits else state,
            "waits": waits,
            "created": memo.get("created") or known.start_time.timestamp(),
            "updated": (ended or known.start_time).timestamp(),
            "queue": memo.get("queue", ""),
            "priority": memo.get("priority", 0),
            "started": started,
        }
    )
