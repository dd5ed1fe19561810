"""The place that a run of a queue holds: an activity on a task queue of its own, for as long as the run takes place.

So Temporal's own limits are those of the queue: how many activities a worker has at once, how many begin in some time
on all workers, and which come first. How many take place on all workers at once is for `slots`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.client import (
    Client,
    RPCError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCStatusCode

from toolexec.journal import Queue
from toolexec_temporal.activities import beating
from toolexec_temporal.slots import SlotAsker

HOLD: Final = "hold"
"""The update by which an activity holds the place of its run."""
_FOREVER: Final = timedelta(days=3650)
_AGAIN: Final = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10))
_PATIENCE: Final = 5.0
"""How many seconds a run that has ended waits for the activity of its place, whose worker may be gone."""
_FIRST, _USUAL, _LAST = 1, 3, 5


class Place:
    """The place of one run, in its workflow. A run without a queue needs none: it always has one."""

    def __init__(self, queue: str, priority: int, heartbeat: float, *, has_begun: bool) -> None:
        """*queue* is the task queue of places; one that *has_begun* comes before all that have not."""
        self._queue = queue
        self._priority = priority
        self._heartbeat = timedelta(seconds=heartbeat)
        self.has_begun = has_begun
        self._number = 0
        self._holders = 0
        self._takers = 0
        self._slot = 0
        self._work: asyncio.Task[Any] | None = None
        self._is_held = not queue

    async def take(self) -> None:
        """Return once the run has its place."""
        if not self._is_held:
            if self._work is None:
                self._ask()
            self._takers += 1
            try:
                await workflow.wait_condition(lambda: self._is_held)
            finally:
                self._takers -= 1
        self.has_begun = True

    @property
    def is_wanted(self) -> bool:
        """Whether something of the run waits for the place."""
        return self._takers > 0

    def leave(self) -> None:
        """Give the place to another run, or wait for it no longer."""
        work, self._work = self._work, None
        if work is None:
            return
        if self._is_held:  # its activity ends by itself, when it is answered
            self._is_held = False
        else:
            work.cancel()

    async def give_back(self) -> None:
        """Leave the place as the run ends, and let its activity end before that."""
        work = self._work
        self.leave()
        if work is not None:
            await asyncio.wait([work], timeout=_PATIENCE)

    def _ask(self) -> None:
        self._number += 1
        self._work = workflow.start_activity(
            "hold_place",
            self._number,
            activity_id=f"?place.{self._number}",
            task_queue=self._queue,
            start_to_close_timeout=_FOREVER,
            heartbeat_timeout=self._heartbeat,
            retry_policy=_AGAIN,
            priority=Priority(priority_key=_FIRST if self.has_begun else level_of(self._priority)),
        )
        self._work.add_done_callback(_seen)

    @property
    def number(self) -> int:
        """Return the number of the place that it has or has asked for, 0 for none."""
        return self._number if self._work is not None else 0

    def take_slot(self, number: int) -> None:
        """Note that the place of this number has a slot."""
        self._slot = number

    async def hold(self, number: int, *, with_slot: bool = False) -> None:
        """Have the place, until it is left, or another worker holds it; *with_slot* only once there is a slot for it.
        The activity of an earlier place holds nothing."""
        work = self._work
        if work is None or number != self._number:
            return
        self._holders += 1
        mine = self._holders

        def is_over() -> bool:
            return self._work is not work or self._holders != mine

        if with_slot:
            await workflow.wait_condition(lambda: self._slot == number or is_over())
            if is_over():
                return
        self._is_held = True
        await workflow.wait_condition(is_over)


class PlaceKeeper:
    """The activity of a worker that takes from the queue *limits* are those of; its slots are kept on *task_queue*."""

    def __init__(self, client: Client, task_queue: str, limits: Queue) -> None:
        self._client = client
        self._task_queue = task_queue
        self._limits = limits

    @activity.defn(name="hold_place")
    async def hold_place(self, number: int) -> None:
        """Hold the place of a run until it leaves it or has ended. A worker that stops gives it to another one, and the
        run goes on."""
        if not self._limits.concurrency:
            await self._hold(number, None)
            return
        slot = SlotAsker(self._client, self._task_queue, number, self._limits.concurrency)
        try:
            await slot.ask()
            await self._hold(number, slot)
        except asyncio.CancelledError:
            if _is_unwanted():  # else another worker holds the place next, and the slot is still its own
                await slot.release()
            raise
        await slot.release()

    async def _hold(self, number: int, slot: SlotAsker | None) -> None:
        """Return when the run has left the place, and raise where this worker has to."""
        info = activity.info()
        handle = self._client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        args = [number] if slot is None else [number, True]
        async with beating():
            held = asyncio.ensure_future(handle.execute_update(HOLD, args=args, id=f"{HOLD}.{number}.{info.attempt}"))
            stops = asyncio.ensure_future(activity.wait_for_worker_shutdown())
            try:
                await _first_of({held, stops}, slot)
            finally:
                stops.cancel()
                held.cancel()
                await asyncio.wait({held, stops})
        if held.cancelled() or isinstance(held.exception(), WorkflowUpdateRPCTimeoutOrCancelledError):
            benign = ApplicationErrorCategory.BENIGN  # another worker takes it: no reason for a warning
            raise ApplicationError("this worker holds the place no longer", category=benign)
        error = held.exception()
        is_over = isinstance(error, WorkflowUpdateFailedError) or (
            isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND
        )
        if error is not None and not is_over:
            raise error


async def _first_of(tasks: set[asyncio.Future[Any]], slot: SlotAsker | None) -> None:
    """Return when one of *tasks* is done; look after the slots of others meanwhile."""
    pause = activity.info().heartbeat_timeout
    every = None if slot is None or pause is None else pause.total_seconds()
    while not (await asyncio.wait(tasks, timeout=every, return_when=asyncio.FIRST_COMPLETED))[0]:
        if slot is not None:
            await slot.look_after()


def _is_unwanted() -> bool:
    """Return whether the run wants its place no longer, and the current activity was cancelled for that."""
    details = activity.cancellation_details()
    return details is not None and (details.cancel_requested or details.not_found)


def places_of(limits: Queue) -> int:
    """Return how many places one worker holds at once. Where all workers together hold fewer, one takes no more than
    these: the others wait at the server, in the order of their priorities.

    >>> [places_of(Queue(concurrency=number, worker_concurrency=3)) for number in (0, 2, 5)]
    [3, 2, 3]
    """
    return min(limits.concurrency or limits.worker_concurrency, limits.worker_concurrency)


def rate_of(limits: Queue) -> float | None:
    """Return how many runs of a queue begin in a second, on all workers together; None for any number."""
    if limits.rate is None:
        return None
    number, seconds = limits.rate
    return number / seconds


def level_of(priority: int) -> int:
    """Return which of Temporal's five levels a priority is: those of runs that go on come before all others.

    >>> [level_of(priority) for priority in (-100, -1, 0, 1, 2, 100)]
    [2, 2, 3, 4, 5, 5]
    """
    return max(_FIRST + 1, min(_USUAL + priority, _LAST))


def _seen(work: asyncio.Task[Any]) -> None:
    """Look at how an activity ended that nothing waits for, so that its error counts as seen."""
    _ = work.cancelled() or work.exception()
