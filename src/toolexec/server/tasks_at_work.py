"""The tasks that one server works on: begun, watched, kept, and ended; and what they ask meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, ElicitRequest
from pydantic import ValidationError

from toolexec.durable.journal import Wait
from toolexec.errors import ConfigurationError, StateError, ToolExecError
from toolexec.exec.facade import Exec
from toolexec.exec.run_data import origin_from_json
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Caller
from toolexec.process.poll import pauses
from toolexec.server.callers import Requester
from toolexec.server.durable import DurableCall, questions_of, send_answer
from toolexec.server.elicitation import question
from toolexec.server.live_tasks import LEFT, LiveTask, outcome_of
from toolexec.server.settings import ServeSettings, TaskSettings
from toolexec.server.shared_tasks import SharedTasks
from toolexec.server.suspended import Outcome, SuspendedRun, SuspendedRuns
from toolexec.server.task_messages import UpdateTaskParams, on_wire, to_wire
from toolexec.server.tasks import StoredTask, TaskOutcome, TaskStore, TooManyTasksError

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")
TEND_SECONDS: Final = 0.5
"""How often one looks how far tasks are."""
_ADOPT_SECONDS: Final = 5.0
_BEAT_SECONDS: Final = 1.0
_Resume: TypeAlias = Callable[[StoredTask, SuspendedRun], Awaitable[Outcome]]
"""Goes on with the durable run of a task that another server has left, and returns the reply of its call."""


class TasksAtWork:
    """The tasks of one server, each the work of a `SuspendedRun`. The file of them is opened by what needs it first."""

    def __init__(
        self,
        settings: ServeSettings,
        ex: Exec,
        runs: SuspendedRuns,
        resume: _Resume,
        shared: SharedTasks | None = None,
        is_gone: Callable[[Caller], bool] = lambda _: False,
    ) -> None:
        """*shared* is what servers on other machines know of these tasks, *is_gone* whether a caller had a key that was
        taken out."""
        self.settings: TaskSettings = settings.tasks
        self.shared: SharedTasks | None = shared
        self._is_gone = is_gone
        self._ex = ex
        self._runs = runs
        self._resume = resume
        self._patience = settings.approval_timeout
        self._closing = False
        self._cancelling: set[asyncio.Task[None]] = set()
        self._store: TaskStore | None = None
        self._live: dict[str, LiveTask] = {}
        self._tending: asyncio.Task[None] | None = None
        self._sharing: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None

    @property
    def store(self) -> TaskStore:
        """Where the tasks are kept; raises ConfigurationError when that file cannot be used."""
        if self._store is None:
            self._store = TaskStore(self.settings)
        return self._store

    def __len__(self) -> int:
        """Return how many tasks are at work."""
        return len(self._live)

    def find(self, task_id: str) -> LiveTask | None:
        """Return a task that is at work here."""
        return self._live.get(task_id)

    def now(self, task: StoredTask) -> StoredTask:
        """Return a task as it is now, which may not be kept yet."""
        live = self._live.get(task.id)
        return task if live is None else live.look()

    def start(self) -> None:
        """Go on with the durable runs that servers before this one have left, now and later."""
        if not self.settings.durable or self._closing:
            return
        try:
            self._go_on_with_lost()
        except ConfigurationError as error:
            logger.error("%s", error)
        self._begin_to_tend()

    def _go_on_with_lost(self) -> None:
        for task in self.store.claim_lost():
            run = SuspendedRun(self._runs, task.owner, "", task.source)
            run.make_durable(DurableCall(self._ex, task.id, resumed=True))
            run.begin(self._resume(task, run))
            self._runs.keep(run)
            self._watch(task, run, origin_from_json((task.run or {}).get("origin") or {}).caller)

    # -- a call becomes a task ----------------------------------------------------------------------------------

    async def adopt(
        self,
        run: SuspendedRun,
        tool: str,
        requester: Requester,
        ttl: float | None = None,
        kept: JSONDict | None = None,
    ) -> JSONDict | None:
        """Make *run*, which has begun, a task, and return what announces it; None where no task can be kept. *kept* is
        what a durable one's reply is made with."""
        run_id = run.durable.run_id if run.durable is not None else ""
        try:
            task = self.store.create(
                tool,
                owner=requester.key,
                session=requester.session,
                source=requester.source,
                ttl=ttl,
                run_id=run_id,
                run=(kept or {}) if run_id else None,
            )
        except (TooManyTasksError, ConfigurationError) as error:
            logger.warning("a call of %s does not become a task: %s", tool, error)
            return None
        run.become_task(self._patience)
        live = self._watch(task, run, requester.caller)
        if self.shared is not None and not run_id:
            live.shared = asyncio.create_task(self.shared.begin(task))
            if self._beating is None or self._beating.done():
                self._beating = asyncio.create_task(self._beat())
            await asyncio.wait([live.shared])
        return {"resultType": "task", **to_wire(task)}

    def _watch(self, task: StoredTask, run: SuspendedRun, caller: Caller) -> LiveTask:
        assert run.task is not None
        live = self._live[task.id] = LiveTask(task, run, run.task, caller)
        run.task.add_done_callback(lambda _: self._ended(live))
        self._begin_to_tend()
        return live

    def _begin_to_tend(self) -> None:
        if self._tending is None or self._tending.done():
            self._tending = asyncio.create_task(self._tend())

    # -- while they are at work --------------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Keep how far the tasks have come, stop those that are to stop or have had their time, and be seen alive.

        Where tasks are durable, look for those of servers that have died.
        """
        looked = time.monotonic()
        while self._live or self.settings.durable:
            await asyncio.sleep(TEND_SECONDS)
            if self.settings.durable and time.monotonic() - looked >= _ADOPT_SECONDS:
                looked = time.monotonic()
                with suppress(ConfigurationError):
                    self._go_on_with_lost()
            if not self._live:
                continue
            for live in list(self._live.values()):
                with suppress(ConfigurationError):  # what is kept is late by one round
                    self._keep(live)
            with suppress(ConfigurationError):
                for task_id in self.store.stops():
                    if (live := self._live.get(task_id)) is not None:
                        live.begin_to_stop(TaskOutcome("cancelled", "cancelled, but not by its client"))

    def _keep(self, live: LiveTask) -> None:
        if live.outcome is not None:
            self._ended(live)  # it could not be kept when it ended
            return
        before, now = live.kept, live.look()
        if now.created + now.ttl <= time.time():
            live.begin_to_stop(TaskOutcome("cancelled", "its time was over"))
        elif now.status == "input_required" and self._is_gone(live.caller):
            live.begin_to_stop(LEFT)
        elif (now.status, now.message) != (before.status, before.message):
            self.store.note(now.id, now.status, now.message)
            live.kept = now

    def _ended(self, live: LiveTask) -> None:
        if self._closing and live.outcome is None and live.run.durable is not None and live.work.cancelled():
            with suppress(ConfigurationError):  # else the next server finds that this one has died
                self.store.release(live.task.id)
            self._live.pop(live.task.id, None)
            return
        live.outcome = live.outcome or outcome_of(live.work, live.run)
        if live.shared is not None and self.shared is not None and not live.is_finishing:
            live.is_finishing = True
            finishing = asyncio.create_task(self._finish(self.shared, live.shared, live.task, live.outcome))
            self._sharing.add(finishing)
            finishing.add_done_callback(self._sharing.discard)
        if live.run.durable is not None and live.work.cancelled():
            cancelling = asyncio.create_task(live.run.durable.cancel())
            self._cancelling.add(cancelling)
            cancelling.add_done_callback(self._cancelling.discard)
        try:
            self.store.finish(live.task.id, live.outcome)
        except ConfigurationError as error:
            logger.error("the result of a task is kept in memory only: %s", error)
        else:
            self._live.pop(live.task.id, None)

    # -- what they ask --------------------------------------------------------------------------------------------

    async def questions(self, task: StoredTask) -> dict[str, ElicitRequest]:
        """Return what is asked and not answered yet, by key."""
        if task.run is not None:
            return {key: request for key, (_, request) in (await self.waits(task)).items()}
        live = self._live.get(task.id)
        if live is None and self.shared is not None:
            found = await reached(self.shared.find(task.id, task.owner))
            return {key: ElicitRequest.model_validate(each) for key, each in found.asks.items()} if found else {}
        asked = live.run.questions() if live is not None else {}
        return {key: question(request) for key, request in asked.items()}

    async def waits(self, task: StoredTask) -> dict[str, tuple[Wait, ElicitRequest]]:
        """Return what a durable run waits for, with its questions, by key; also of one that another server has."""
        live = self._live.get(task.id)
        durable = live.run.durable if live is not None else None
        if durable is not None and durable.has_looked:
            return questions_of(durable.open_waits)
        with suppress(ToolExecError):
            run = await self._ex.runs.get(task.id)
            return questions_of(run.waits if run.state == "waiting" else ())
        return {}

    async def send(self, task: StoredTask, key: str, wait: Wait, reply: object) -> bool:
        """Send a durable run an answer; return whether it was one. Raises as `send_answer` does."""
        sent = await send_answer(self._ex, task.id, wait, reply)
        live = self._live.get(task.id)
        if sent and live is not None and live.run.durable is not None:
            live.run.durable.answered.add(key)
        return sent

    # -- what servers on other machines know ---------------------------------------------------------------------

    async def _beat(self) -> None:
        """Have other servers know how far the tasks have come, and do what they want of them."""
        while shared := [live for live in self._live.values() if live.shared is not None]:
            await asyncio.sleep(_BEAT_SECONDS)
            await asyncio.gather(*(self._beat_one(live) for live in shared if live.outcome is None))

    async def _beat_one(self, live: LiveTask) -> None:
        assert self.shared is not None
        try:
            asks = {key: on_wire(request) for key, request in (await self.questions(live.task)).items()}
            found = await self.shared.beat(live.look(), asks)
            if found is not None and found.answers:
                given = {"taskId": live.task.id, "inputResponses": found.answers}
                live.run.answer(UpdateTaskParams.model_validate(given).input_responses)
            if found is not None and found.stop:
                live.begin_to_stop(TaskOutcome("cancelled", "cancelled by its client"))
        except (ToolExecError, ValidationError) as error:
            logger.warning("other servers do not know how far a task is: %s", type(error).__name__)

    async def _finish(
        self, shared: SharedTasks, begun: asyncio.Task[bool], task: StoredTask, outcome: TaskOutcome
    ) -> None:
        """Have other servers know how a task ended, as soon as their store can be reached."""
        await begun  # where it is not known to be kept, it may be all the same
        for pause in pauses(0.1, _ADOPT_SECONDS):
            try:
                await shared.finish(task, outcome)
                return
            except StateError as error:
                logger.warning("other servers do not know how a task ended: %s", error)
            except ConfigurationError as error:
                logger.error("other servers do not know how a task ended: %s", error)
                return
            if self._closing or time.time() >= task.created + task.ttl:
                return
            await asyncio.sleep(pause)

    async def aclose(self) -> None:
        """Stop all tasks, which have failed then, but for durable runs, and release the file."""
        self._closing = True
        stopped = "interrupted: the server was stopped before it was done"
        failed = TaskOutcome("failed", stopped, {"code": INTERNAL_ERROR, "message": stopped})
        ending = [live.run.stop() if live.run.durable else live.stop(failed) for live in list(self._live.values())]
        await asyncio.gather(*ending)
        await asyncio.gather(*self._cancelling)
        if self._sharing:
            await asyncio.wait(self._sharing, timeout=_ADOPT_SECONDS)
        for each in [*self._sharing, *([self._beating] if self._beating is not None else ())]:
            each.cancel()
            await asyncio.wait([each])
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait([self._tending])
        if self._store is not None:
            self._store.close()


async def reached(asked: Awaitable[T]) -> T:
    """Return what the store of shared tasks gives; raises MCPError where it cannot be reached."""
    try:
        return await asked
    except (ConfigurationError, StateError) as error:
        logger.error("%s", error)
        raise MCPError(
            code=INTERNAL_ERROR,
            message="the store of tasks cannot be reached; try again later",
            data={"reason": "state_unavailable", "retryable": True},
        ) from None
