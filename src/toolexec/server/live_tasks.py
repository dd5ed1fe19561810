"""A task whose work is done by this server: how far it is, what it asks, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from toolexec.model.call import Progress
from toolexec.model.origin import Approver, Caller
from toolexec.model.redaction import redactor
from toolexec.model.visible import visible_line
from toolexec.server.callers import RequestContext, Requester
from toolexec.server.durable import words_of
from toolexec.server.kept_answers import DENIED, AnswerRights, cut_off
from toolexec.server.kept_streams import work_of
from toolexec.server.suspended import SuspendedRun
from toolexec.server.tasks import StoredTask, TaskOutcome

logger: logging.Logger = logging.getLogger(__name__)
LEFT: Final = TaskOutcome("cancelled", "the API key of its caller was taken out or has expired: no one can answer it")
"""How a task ends that asks a caller who does not come back."""
_MESSAGE: Final = 1000


class LiveTask:
    """A task whose work is done by this server for *caller*. `kept` is what the file says of it, `outcome` how it
    ends."""

    def __init__(self, task: StoredTask, run: SuspendedRun, work: asyncio.Task[Any], caller: Caller) -> None:
        self.task = task
        self.caller = caller
        self.run = run
        self.work = work
        self.kept = task
        self.outcome: TaskOutcome | None = None
        self.shared: asyncio.Task[bool] | None = None  # whether others know of it
        self.is_finishing = False
        self._seen = task
        self._asking = asyncio.Lock()

    def look(self) -> StoredTask:
        """Return the task as it is now."""
        before = self._seen
        if self.outcome is not None:
            status, message, data = self.outcome.status, self.outcome.message, self.outcome.data
            before = replace(before, tools=self.outcome.tools)
        else:
            durable = self.run.durable
            if durable is not None and not durable.has_looked:
                return before
            waits = durable.open_waits if durable is not None else ()
            asks = self.run.asks or any(wait.kind != "time" for wait in waits)
            status = "input_required" if asks else "working"
            message, data = words_of(waits) or _in_words(self.run.line.latest), None
        if (status, message) != (before.status, before.message):
            self._seen = replace(before, status=status, message=message, updated=time.time(), outcome=data)
        return self._seen

    async def wait(self, ask: Approver | None) -> None:
        """Wait until the task is over; with *ask*, have it put the questions of the work, one request at a time."""
        if ask is None:
            await asyncio.wait([self.work])
            return
        async with self._asking:
            while self.outcome is None and not self.work.done():
                await self.run.stirred()
                await self.run.put(ask)

    def begin_to_stop(self, outcome: TaskOutcome) -> None:
        """Have the work end, and the task with this *outcome*, unless it is over."""
        if not self.work.done() and self.outcome is None:
            self.outcome = outcome
            self.work.cancel()

    async def stop(self, outcome: TaskOutcome) -> None:
        """End the work, whatever it does, and the task with this *outcome*, unless it is over."""
        self.begin_to_stop(outcome)
        await self.run.stop()


def outcome_of(work: asyncio.Task[Any], run: SuspendedRun) -> TaskOutcome:
    """Return how the work of *run* ended that nothing has stopped."""
    durable, tools = run.durable, frozenset(run.tools)
    if durable is not None and durable.cancelled:
        return TaskOutcome("cancelled", "its run was cancelled")
    if durable is not None and durable.lost:
        lost = "interrupted: the server that ran it ended before its run was written down"
        return TaskOutcome("failed", lost, {"code": INTERNAL_ERROR, "message": lost})
    if work.cancelled():
        return TaskOutcome("cancelled", "the server stopped it")
    error = work.exception()
    if error is None:
        return TaskOutcome("completed", "", work.result(), tools)
    if isinstance(error, MCPError):
        return TaskOutcome("failed", error.message, error.error.model_dump(exclude_none=True), tools)
    logger.error("the work of a task failed inside of the server", exc_info=error)
    return TaskOutcome("failed", "internal error", {"code": INTERNAL_ERROR, "message": "internal error"})


async def permitted(task: StoredTask, ctx: RequestContext, rights: AnswerRights) -> StoredTask:
    """Return a task as the caller of *ctx* may have it now: as one that failed where it may not have the result. What
    the request is answered with comes of the same tools."""
    if not task.tools:
        return task
    if (work := work_of(ctx)) is not None:
        work.tools.update(task.tools)
    if await rights.allows(Requester.of(ctx).caller, task.tools):
        return task
    return replace(task, status="failed", message=DENIED, outcome=cut_off(DENIED, "denied"))


def _in_words(progress: Progress | None) -> str:
    if progress is None:
        return ""
    total = "" if progress.total is None else f" of {progress.total:g}"
    return f"{visible_line(redactor.text(progress.message), _MESSAGE)} ({progress.done:g}{total})".lstrip()
