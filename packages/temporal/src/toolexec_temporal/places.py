"""The place that a run of a queue holds: an activity on a task queue of its own, for as long as the run takes place.

So Temporal's own limits are those of the queue: how many activities a worker has at once, how many begin in some time
on all workers, and which come first.
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

from toolexec.errors import ConfigurationError
from toolexec.journal import Queue
from toolexec_temporal.activities import beating

__all__ = ["HOLD", "Place", "PlaceKeeper", "check_limits", "level_of", "rate_of"]

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

    async def hold(self, number: int) -> None:
        """Have the place, until it is left, or another worker holds it. The activity of an earlier place holds
        nothing."""
        work = self._work
        if work is None or number != self._number:
            return
        self._is_held = True
        self._holders += 1
        mine = self._holders
        await workflow.wait_condition(lambda: self._work is not work or self._holders != mine)


class PlaceKeeper:
    """The activity of a worker that takes from queues."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name="hold_place")
    async def hold_place(self, number: int) -> None:
        """Hold the place of a run until it leaves it or has ended. A worker that stops gives it to another one, and the
        run goes on."""
        info = activity.info()
        handle = self._client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        async with beating():
            held = asyncio.ensure_future(handle.execute_update(HOLD, number, id=f"{HOLD}.{number}.{info.attempt}"))
            stops = asyncio.ensure_future(activity.wait_for_worker_shutdown())
            try:
                await asyncio.wait({held, stops}, return_when=asyncio.FIRST_COMPLETED)
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


def check_limits(name: str, limits: Queue) -> None:
    """Raise ConfigurationError for a limit that no task queue of Temporal has."""
    if limits.concurrency:
        raise ConfigurationError(
            f"the queue {name} has concurrency = {limits.concurrency}, and Temporal counts what runs for each worker "
            "alone: set worker_concurrency, and leave concurrency 0",
            details={"setting": "queues", "queue": name},
        )


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
