"""Durable runs on Temporal, for many machines."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from time import time
from typing import TYPE_CHECKING, Any, Final, Unpack

from toolexec.errors import JournalError, RunBusyError, RunError
from toolexec.journal import (
    RESUMED,
    CallRecord,
    JSONDict,
    QueueRecord,
    RunRecord,
    RunState,
    Signal,
)
from toolexec_temporal.messages import (
    KINDS,
    Child,
    Rules,
    RunInput,
    memo_of,
    read_record,
    record_to_json,
)
from toolexec_temporal.run_records import OPEN, queue_of, waits_of
from toolexec_temporal.server import QUERY_SECONDS, TemporalServer, explained
from toolexec_temporal.settings import TemporalSettings

if TYPE_CHECKING:
    from typing import TypedDict

    from temporalio.client import Client

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


_STUCK_ATTEMPTS: Final = 3
"""From which attempt at one task of a workflow on its run counts as stuck: workers that were lost fail one."""


class TemporalEngine:
    """Runs chains, workflows and code on Temporal: `Exec(journal=TemporalEngine(address="localhost:7233"))`.

    The runs are executed by workers (`toolexec temporal worker`) with the same settings and the same tools; this only
    starts them and asks for them. *settings* are those of `TemporalSettings`, given as one object or by keyword. It
    connects at the first use. Raises ConfigurationError for invalid settings.
    """

    def __init__(self, settings: TemporalSettings | None = None, **given: Unpack[_Settings]) -> None:
        self.settings: TemporalSettings = replace(settings or TemporalSettings(), **given)
        self._server = TemporalServer(self.settings)

    async def client(self) -> Client:
        """Return the connection; raises JournalError when the server cannot be reached, and ConfigurationError for
        search attributes that it does not have."""
        return await self._server.client()

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
        return await self._server.awaited(record.id)

    async def fork(
        self, run: RunRecord, calls: Sequence[CallRecord], groups: Sequence[Sequence[str]], *, held: bool
    ) -> RunRecord:
        """Implement `RecordedEngine.fork`."""
        from toolexec_temporal.recordings import fork_input, fork_memo

        run = replace(run, created=time(), owner="", lease=0.0)
        given = fork_input(run, self._rules(), calls, groups, held=held)
        await self._start(run, given, fork_memo(run, held=held), joins=False)
        return await self._server.awaited(run.id)

    async def _start(self, record: RunRecord, given: RunInput, memo: JSONDict, *, joins: bool = True) -> None:
        """Start a run that is not there yet. Raises RunError for an ID that another one has; where it *joins* none,
        also for one that was begun with the same."""
        async with explained(record.id):
            is_new = await self._begun(Child(self._server.id_of(record.id), self.settings.task_queue, given, memo))
        if is_new:
            return
        there = await (await self._server.describe(record.id)).memo()
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
        from temporalio.common import WorkflowIDReusePolicy
        from temporalio.exceptions import WorkflowAlreadyStartedError

        from toolexec_temporal.attributes import first_attributes
        from toolexec_temporal.children import begin_child, parent_of_call

        parent = parent_of_call(self.settings)
        if parent is not None and (is_new := await begin_child(parent, run)) is not None:
            return is_new
        record = read_record(run.given.record)
        client = await self._server.client()
        try:
            await client.start_workflow(
                KINDS[record.kind],
                run.given,
                id=run.id,
                task_queue=run.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
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

        known = await self._server.describe(run_id)
        if known.close_time is None and is_held(await known.memo()):
            with suppress(RunError):  # it has ended meanwhile
                await self.signal(run_id, Signal(id=RESUMED, name=RESUMED, sent=time()))
        return await self._server.awaited(run_id)

    async def get(self, run_id: str) -> RunRecord:
        """Implement `DurableEngine.get`."""
        record = await self._server.record(run_id)
        handle = await self._server.handle(run_id)
        if record.state not in OPEN:
            return await self._server.ended(handle, run_id)
        progress = await self._server.progress(handle)
        if not progress:  # no worker answers
            return record
        waits = waits_of(progress)
        state: RunState = "waiting" if progress.get("waiting") else "running"
        if progress.get("queued"):
            state = "queued"
        return replace(record, state=state, waits=waits, calls=progress.get("calls", 0))

    async def calls(self, run_id: str) -> list[CallRecord]:
        """Implement `DurableEngine.calls`. Raises JournalError where no worker answers for a run that goes on."""
        return await self._server.calls(run_id)

    async def recording(self, run_id: str) -> tuple[RunRecord, list[CallRecord], list[list[str]]]:
        """Implement `RecordedEngine.recording`."""
        from toolexec_temporal.recordings import read_recording

        known = await self.get(run_id)
        async with explained(run_id):
            return await read_recording(await self._server.handle(run_id), known)

    async def signals(self, run_id: str) -> list[Signal]:
        """Implement `DurableEngine.signals`. Raises JournalError where no worker answers."""
        from temporalio.client import WorkflowQueryFailedError

        handle = await self._server.handle(run_id)
        async with explained(run_id):
            try:
                given = await handle.query(
                    "signals", result_type=list[dict[str, Any]], rpc_timeout=timedelta(seconds=QUERY_SECONDS)
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
        async for record, _ in self._server.listed(states):
            if (
                (not states or record.state in states)
                and (caller is None or record.caller == caller)
                and (before is None or record.created < before)
            ):
                found.append(record)
                if len(found) >= limit:
                    break
        return sorted(found, key=lambda record: -record.created)

    async def signal(self, run_id: str, signal: Signal) -> bool:
        """Implement `DurableEngine.signal`."""
        from temporalio.client import WorkflowExecutionStatus

        known = await self._server.describe(run_id)
        if known.status is not WorkflowExecutionStatus.RUNNING:
            raise _ended_error(run_id)
        handle = await self._server.handle(run_id)
        waits = {wait.name for wait in waits_of(await self._server.progress(handle))}
        async with explained(run_id):
            await handle.signal("signal", asdict(signal))
        return signal.name in waits

    async def cancel(self, run_id: str) -> bool:
        """Implement `DurableEngine.cancel`: the sandbox and the calls of the run are stopped, and then it has
        ended. A run whose workflow fails again and again cannot take that in, and is ended at once."""
        handle = await self._server.handle(run_id)
        pending = (await self._server.describe(run_id)).raw_description.pending_workflow_task
        async with explained(run_id):
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
            known = await self._server.describe(run_id)
        except RunError as error:
            if error.code == "run_not_found":
                return False
            raise
        if known.status is WorkflowExecutionStatus.RUNNING:
            raise RunBusyError(f"the run {run_id} has not ended; cancel it first", details={"run_id": run_id})
        client = await self._server.client()
        async with explained(run_id):
            await client.workflow_service.delete_workflow_execution(
                DeleteWorkflowExecutionRequest(
                    namespace=self.settings.namespace,
                    workflow_execution=WorkflowExecution(workflow_id=self._server.id_of(run_id)),
                )
            )
        return True

    # -- queues and schedules -----------------------------------------------------------------------------------

    async def enqueue(self, run: RunRecord, limits: Queue, *, delay: float) -> RunRecord:
        """Implement `QueuedEngine.enqueue`. The limits are those of the worker that takes the run."""
        run = replace(run, created=run.created or time())
        await self._start(run, RunInput(record_to_json(run), self._rules(), delay=delay), memo_of(run, delay))
        return await self._server.record(run.id)

    async def queues(self) -> list[QueueRecord]:
        """Implement `QueuedEngine.queues`. A run whose worker was lost counts as one that runs."""
        found: dict[str, list[tuple[RunRecord, float]]] = {}
        async for run, ready in self._server.listed(OPEN):
            if run.queue:
                found.setdefault(run.queue, []).append((run, ready))
        return [queue_of(name, found[name]) for name in sorted(found)]

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
            id=self._server.id_of(schedule.name),
            task_queue=settings.task_queue,
            memo=memo_of(run),
            typed_search_attributes=first_attributes(run)
            if settings.search_attributes
            else TypedSearchAttributes.empty,
        )
        async with explained(schedule.name):
            client = await self._server.client()
            return await add_schedule(client, settings.prefix, schedule, action, replace=replace)

    async def schedules(self) -> list[Schedule]:
        """Implement `QueuedEngine.schedules`. Temporal's index lags by a moment."""
        from toolexec_temporal.schedules import list_schedules

        async with explained(""):
            return await list_schedules(await self._server.client(), self.settings.prefix)

    async def remove_schedule(self, name: str) -> bool:
        """Implement `QueuedEngine.remove_schedule`."""
        from toolexec_temporal.schedules import remove_schedule

        async with explained(name):
            return await remove_schedule(await self._server.client(), self.settings.prefix, name)

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        """Implement `QueuedEngine.pause_schedule`."""
        from toolexec_temporal.schedules import pause_schedule

        async with explained(name):
            return await pause_schedule(await self._server.client(), self.settings.prefix, name, paused=paused)

    async def aclose(self) -> None:
        """Implement `DurableEngine.aclose`; a later use connects again."""
        await self._server.aclose()


def _ended_error(run_id: str) -> RunError:
    return RunError(f"the run {run_id} has ended", code="run_ended", details={"run_id": run_id})
