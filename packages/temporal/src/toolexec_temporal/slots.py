"""How many runs of a queue take place at once on all workers: Temporal has no such limit, so a workflow keeps it.

The activity that holds the place of a run asks this workflow for a slot first. The workflow signals the run, which
waits for that before it counts its place as held. A slot is free again when the run leaves its place, or has ended
without a word: the next one that waits looks after those that have slots.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.client import Client, RPCError, WorkflowExecutionStatus, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCStatusCode

SLOT: Final = "slot"
"""The signal by which a run learns that it has a slot, with the number of its place."""
_IDLE: Final = 60.0
"""How many seconds the workflow outlives the last run of its queue."""
_RPC: Final = timedelta(seconds=5)


@dataclass(frozen=True)
class SlotHolder:
    """The place of one run, by its number, that has a slot or wants one."""

    workflow_id: str
    run_id: str
    number: int


@dataclass(frozen=True)
class SlotRequest:
    """A wish for one of `limit` slots; those of the lowest `level` come first."""

    holder: SlotHolder
    level: int
    limit: int


@dataclass
class SlotsState:
    """The slots of one queue: how many there are, as the last one who asked said, who has one, and who waits, in the
    order of asking."""

    limit: int = 1
    held: list[SlotHolder] = field(default_factory=list[SlotHolder])
    waiting: list[SlotRequest] = field(default_factory=list[SlotRequest])


@workflow.defn(name="queue_slots", sandboxed=False)
class QueueSlots:
    """Hands out the slots of one queue, by level and then in the order of asking."""

    @workflow.init
    def __init__(self, carried: SlotsState | None = None) -> None:
        self._state = carried or SlotsState()

    @workflow.run
    async def run(self, carried: SlotsState | None = None) -> None:
        """Hand out slots until none has been wanted for a minute."""
        del carried  # which the constructor has taken
        while True:
            if _is_long():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._state)
            if self._can_grant():
                await self._grant()
            elif self._is_wanted():
                await workflow.wait_condition(lambda: self._can_grant() or not self._is_wanted() or _is_long())
            else:
                try:
                    await workflow.wait_condition(self._is_wanted, timeout=_IDLE)
                except TimeoutError:
                    return

    def _is_wanted(self) -> bool:
        return bool(self._state.held or self._state.waiting)

    def _can_grant(self) -> bool:
        return bool(self._state.waiting) and len(self._state.held) < self._state.limit

    async def _grant(self) -> None:
        """Give a free slot to the first who waits."""
        first = min(self._state.waiting, key=lambda request: request.level)
        self._state.waiting.remove(first)
        self._state.held.append(first.holder)
        await self._signal(first.holder)

    async def _signal(self, holder: SlotHolder) -> None:
        run = workflow.get_external_workflow_handle(holder.workflow_id, run_id=holder.run_id)
        try:
            await run.signal(SLOT, holder.number)
        except ApplicationError:  # it has ended
            self.release(holder)

    @workflow.signal
    async def ask(self, request: SlotRequest) -> None:
        """Want a slot. Who has one already learns it again: the worker that asked before may be gone."""
        self._state.limit = request.limit
        if request.holder in self._state.held:
            await self._signal(request.holder)
        elif all(request.holder != known.holder for known in self._state.waiting):
            self._state.waiting.append(request)

    @workflow.signal
    def release(self, holder: SlotHolder) -> None:
        """Give a slot back, or wait for none any more."""
        state = self._state
        state.held[:] = [known for known in state.held if known != holder]
        state.waiting[:] = [request for request in state.waiting if request.holder != holder]

    @workflow.query
    def state(self) -> SlotsState:
        """Return who has slots, and who waits."""
        return self._state

    @workflow.query
    def share(self, holder: SlotHolder, turn: int) -> list[SlotHolder] | None:
        """Return whom one that waits is to look after in its so-and-so-manyth turn, or None if it does not wait.

        Those who wait part all the others among them, and the parts go round: each is looked after once in a turn, and
        soon after even where one who waits takes no turns, as its worker is lost.
        """
        waiting = [request.holder for request in self._state.waiting]
        if holder not in waiting:
            return None
        part = (waiting.index(holder) + turn) % len(waiting)
        return [other for other in (*self._state.held, *waiting)[part :: len(waiting)] if other != holder]


def _is_long() -> bool:
    """Return whether the history is long enough for a new one."""
    return workflow.info().is_continue_as_new_suggested()


class SlotAsker:
    """Gets a slot for the place that the current activity holds, of a queue with *limit* slots."""

    def __init__(self, client: Client, task_queue: str, number: int, limit: int) -> None:
        """*task_queue* is that of these workflows."""
        info = activity.info()
        self._client = client
        self._task_queue = task_queue
        self._id = f"{info.task_queue}-slots"
        self._me = SlotHolder(info.workflow_id or "", info.workflow_run_id or "", number)
        self._level = info.priority.priority_key or 0
        self._limit = limit
        self._turn = 0
        self._is_waiting = True

    async def ask(self) -> None:
        """Ask for a slot; the run itself learns when it has one."""
        await self._client.start_workflow(
            QueueSlots.run,
            None,
            id=self._id,
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="ask",
            start_signal_args=[SlotRequest(self._me, self._level, self._limit)],
        )

    async def release(self) -> None:
        """Give the slot back, or wait for it no longer."""
        await self._release(self._me)

    async def look_after(self) -> None:
        """Give back the slots of runs that have ended, or left their place, and could not say so; only while this one
        waits for a slot itself, and only its share of them."""
        if not self._is_waiting:
            return
        with suppress(RPCError, WorkflowQueryFailedError):  # nothing answers now: another turn comes
            share: list[SlotHolder] | None = await self._slots().query(
                QueueSlots.share, args=[self._me, self._turn], rpc_timeout=_RPC
            )
            self._turn += 1
            self._is_waiting = share is not None
            for holder in share or ():
                if await self._is_gone(holder):
                    await self._release(holder)

    async def _is_gone(self, holder: SlotHolder) -> bool:
        run: WorkflowHandle[Any, Any] = self._client.get_workflow_handle(holder.workflow_id, run_id=holder.run_id)
        try:
            if (await run.describe(rpc_timeout=_RPC)).status != WorkflowExecutionStatus.RUNNING:
                return True
            progress = await run.query("progress", rpc_timeout=_RPC)
        except WorkflowQueryFailedError:
            return False
        except RPCError as error:
            return error.status == RPCStatusCode.NOT_FOUND
        return bool(progress.get("place", holder.number) != holder.number)  # a former version does not say it

    async def _release(self, holder: SlotHolder) -> None:
        try:
            await self._slots().signal(QueueSlots.release, holder)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:  # nothing was wanted of it for a minute, and it has ended
                raise

    def _slots(self) -> WorkflowHandle[QueueSlots, None]:
        handle: WorkflowHandle[QueueSlots, None] = self._client.get_workflow_handle_for(QueueSlots.run, self._id)
        return handle
