"""One Temporal server as the engine asks it: its runs, their state, their progress and their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from toolexec.errors import JournalError
from toolexec.journal import CallRecord, JSONDict, RunRecord, RunState, pauses
from toolexec_temporal.messages import KINDS, RUN_FAILED, read_call
from toolexec_temporal.run_records import STATES, STATUSES, lost_run, summary_of, waits_of
from toolexec_temporal.settings import TemporalSettings
from toolexec_temporal.sizes import with_values

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle

logger: logging.Logger = logging.getLogger(__name__)
_FIRST_LOOK: Final = 0.5
_LAST_LOOK: Final = 5.0
_NO_EVENT: Final = "No completion event"
QUERY_SECONDS: Final = 3.0
_GRACE: Final = 0.05


class TemporalServer:
    """The server of some settings; it is connected to at the first use."""

    def __init__(self, settings: TemporalSettings) -> None:
        self.settings = settings
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

                    async with explained(""):
                        await check_attributes(client)
                self._client = client
            return self._client

    async def aclose(self) -> None:
        """Let the connection go; a later use connects again."""
        client, self._client = self._client, None
        if client is not None:
            # Threads of the SDK that still hold what they have delivered would abort an exit.
            await asyncio.sleep(_GRACE)

    def id_of(self, run_id: str) -> str:
        """Return the ID of the Temporal workflow of a run."""
        return f"{self.settings.prefix}{run_id}"

    async def handle(self, run_id: str) -> WorkflowHandle[Any, Any]:
        """Return what asks for the Temporal workflow of a run, whether it is there or not."""
        return (await self.client()).get_workflow_handle(self.id_of(run_id), result_type=dict[str, Any])

    async def describe(self, run_id: str) -> WorkflowExecutionDescription:
        """Return the server's own description of it. Raises RunError for a run that is not there."""
        handle = await self.handle(run_id)
        async with explained(run_id):
            return await handle.describe()

    async def record(self, run_id: str) -> RunRecord:
        """Return what the server itself knows of a run."""
        known = await self.describe(run_id)
        state = STATES.get(known.status.name if known.status is not None else "", "running")
        return summary_of(run_id, state, await known.memo(), known)

    async def progress(self, handle: WorkflowHandle[Any, Any]) -> JSONDict:
        """Return what the workflow says of itself; nothing where no worker answers in time."""
        from temporalio.client import WorkflowQueryFailedError
        from temporalio.service import RPCError

        try:
            return await handle.query(
                "progress", result_type=dict[str, Any], rpc_timeout=timedelta(seconds=QUERY_SECONDS)
            )
        except (RPCError, WorkflowQueryFailedError):
            return {}

    async def ended(self, handle: WorkflowHandle[Any, Any], run_id: str) -> RunRecord:
        """Wait for the end of a run, and return it with its result."""
        from temporalio.client import WorkflowFailureError
        from temporalio.exceptions import CancelledError, TerminatedError

        state: RunState
        result: JSONDict | None
        async with explained(run_id):
            try:
                given = await _result(handle)
                state, result = given["state"], given["result"]
                if given.get("paged") and given["result"].get("steps"):
                    result = with_values(given["result"], await self.calls(run_id))
            except WorkflowFailureError as error:
                if isinstance(error.cause, CancelledError | TerminatedError):
                    state, result = "cancelled", None
                else:
                    state, result = "failed", {"raised": lost_run(error, run_id)}
        return replace(await self.record(run_id), state=state, result=result)

    async def calls(self, run_id: str) -> list[CallRecord]:
        """Return the calls of a run. Raises JournalError where no worker answers for a run that goes on."""
        from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

        from toolexec_temporal.recordings import numbered, read_calls

        handle = await self.handle(run_id)
        known = await self.describe(run_id)
        async with explained(run_id):
            ended: JSONDict = {"paged": True}
            if known.status in (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED):
                with suppress(WorkflowFailureError):
                    ended = await _result(handle)
            if not ended.get("paged") and (await known.memo()).get("kind") != "chain":  # a chain keeps only its steps
                return numbered([read_call(call) for call in ended["calls"]])
            return await read_calls(handle, run_id)

    async def awaited(self, run_id: str) -> RunRecord:
        """Return a run once it has ended or waits."""
        handle = await self.handle(run_id)
        ended = asyncio.ensure_future(self.ended(handle, run_id))
        waits = pauses(max(self.settings.linger, _FIRST_LOOK), _LAST_LOOK, factor=1.5)
        try:
            while True:
                await asyncio.wait([ended], timeout=next(waits))
                if ended.done():
                    return ended.result()
                progress = await self.progress(handle)
                if progress.get("waiting"):
                    return replace(await self.record(run_id), state="waiting", waits=waits_of(progress))
        finally:
            ended.cancel()
            await asyncio.wait([ended])

    async def listed(self, states: Sequence[RunState]) -> AsyncGenerator[tuple[RunRecord, float], None]:
        """Give the runs of the server that may be in one of these states, and when each may begin at the earliest."""
        client = await self.client()
        types = ", ".join(f"'{name}'" for name in KINDS.values())
        query = f"WorkflowType IN ({types})"
        if states:
            wanted = sorted({name for state in states for name in STATUSES[state]})
            query += f" AND ExecutionStatus IN ({', '.join(map(repr, wanted))})"
        async with explained(""):
            async for each in client.list_workflows(query):
                state = STATES.get(each.status.name if each.status is not None else "", "running")
                continued = each.status is not None and each.status.name == "CONTINUED_AS_NEW"
                if continued or not each.id.startswith(self.settings.prefix):  # others may have other keys
                    continue
                try:
                    memo = await each.memo()
                except JournalError as error:
                    logger.warning("the run %s is not in the list, as it cannot be read: %s", each.id, error)
                    continue
                run = summary_of(each.id.removeprefix(self.settings.prefix), state, memo, each)
                yield run, memo.get("ready") or run.created


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


@asynccontextmanager
async def explained(run_id: str) -> AsyncGenerator[None, None]:
    """Raise errors of the server as those of durable runs."""
    from temporalio.service import RPCError

    from toolexec_temporal.client import translated

    try:
        yield
    except RPCError as error:
        raise translated(error, run_id) from error
