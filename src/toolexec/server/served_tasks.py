"""Calls as MCP tasks: made by the server when a call takes long, watched and answered by later requests.

A client of the newer era offers the extension `io.modelcontextprotocol/tasks`, and the server decides which calls
become tasks. One of 2025-11-25 asks for a task with its call. The work is that of a `SuspendedRun`, and needs no
request to go on. One that is a durable run has the ID of its task, and outlives the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ElicitRequest,
    PaginatedRequestParams,
)
from pydantic import ValidationError

from toolexec.discovery.pages import CursorSeal
from toolexec.durable.journal import Wait
from toolexec.errors import (
    ConfigurationError,
    InputValidationError,
    InvalidCursorError,
    RunError,
    StateError,
    ToolExecError,
)
from toolexec.exec.facade import Exec
from toolexec.exec.run_data import origin_from_json
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Caller
from toolexec.model.redaction import redactor
from toolexec.model.visible import visible_line
from toolexec.process.poll import pauses
from toolexec.server.callers import (
    TASKS_ERA,
    TASKS_EXTENSION,
    RequestContext,
    Requester,
    can_elicit,
    is_modern,
    offers_tasks,
)
from toolexec.server.durable import DurableCall, questions_of, send_answer
from toolexec.server.elicitation import handshake_approver, put_to_client, question
from toolexec.server.kept_answers import AnswerRights
from toolexec.server.live_tasks import LEFT, LiveTask, outcome_of, permitted
from toolexec.server.settings import ServeSettings
from toolexec.server.shared_tasks import SharedTasks
from toolexec.server.suspended import Outcome, SuspendedRun, SuspendedRuns
from toolexec.server.task_messages import MARK, TaskParams, UpdateTaskParams, on_wire, to_handshake, to_wire
from toolexec.server.tasks import StoredTask, TaskOutcome, TaskStore, TooManyTasksError

__all__ = ["ServedTasks"]

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")
_RELATED: Final = "io.modelcontextprotocol/related-task"
_TEND_SECONDS: Final = 0.5
_SOON_SECONDS: Final = 0.1
_ADOPT_SECONDS: Final = 5.0
_ASKED_AT_MOST: Final = 3
_Resume: TypeAlias = Callable[[StoredTask, SuspendedRun], Awaitable[Outcome]]
"""Goes on with the durable run of a task that another server has left, and returns the reply of its call."""
_BEAT_SECONDS: Final = 1.0
_MESSAGE: Final = 1000
_PAGE: Final = 50


class ServedTasks:
    """The tasks of one server. The file of them is opened by the first request that needs it, or by `start`."""

    def __init__(
        self,
        settings: ServeSettings,
        ex: Exec,
        runs: SuspendedRuns,
        resume: _Resume,
        shared: SharedTasks | None = None,
        is_gone: Callable[[Caller], bool] = lambda _: False,
    ) -> None:
        self._is_gone = is_gone
        self.settings = settings.tasks
        self._ex = ex
        self._rights = AnswerRights(ex)
        self._runs = runs
        self._resume = resume
        self._patience = settings.approval_timeout
        self._closing = False
        self._cancelling: set[asyncio.Task[None]] = set()
        self._store: TaskStore | None = None
        self._live: dict[str, LiveTask] = {}
        self._tending: asyncio.Task[None] | None = None
        self._seal = CursorSeal()
        self._shared = shared
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

    def serve(self, server: Server[Any]) -> None:
        """Add the requests about tasks to *server*."""
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)
        server.add_request_handler("tasks/update", UpdateTaskParams, self._update)
        server.add_request_handler("tasks/result", TaskParams, self._result)
        server.add_request_handler("tasks/list", PaginatedRequestParams, self._list)

    def marked(self, entries: list[JSONDict], ctx: RequestContext) -> list[JSONDict]:
        """Return entries of `tools/list` that say, where the era needs it, that each may be called as a task."""
        if self.settings.mode == "never" or ctx.protocol_version != TASKS_ERA:
            return entries
        return [{**entry, "execution": {"taskSupport": "optional"}} for entry in entries]

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
        if self._shared is not None and not run_id:
            live.shared = asyncio.create_task(self._shared.begin(task))
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

    def for_handshake(self, announcement: JSONDict) -> JSONDict:
        """Return the answer that announces a task to a client of 2025-11-25, as the SDK lets it pass."""
        return {"content": [], "_meta": {MARK: to_handshake(announcement)}}

    # -- requests about tasks -----------------------------------------------------------------------------------

    async def _get(self, ctx: RequestContext, params: TaskParams) -> JSONDict:
        task = await self._find(ctx, params.task_id)
        data = to_wire(task)
        if not is_modern(ctx):
            return to_handshake(data)
        if task.status == "input_required":
            questions = await self._questions(task)
            if questions and can_elicit(ctx):
                data["inputRequests"] = {key: on_wire(request) for key, request in questions.items()}
            elif task.run is not None:  # this client cannot answer: the operator of the server can
                data["status"] = "working"
        elif task.status in ("completed", "failed"):
            data["result" if task.status == "completed" else "error"] = task.outcome
        return {"resultType": "complete", **data}

    async def _cancel(self, ctx: RequestContext, params: TaskParams) -> JSONDict:
        task = await self._find(ctx, params.task_id)
        if task.is_over and not is_modern(ctx):
            raise MCPError(code=INVALID_PARAMS, message=f"the task is over already: {task.status}")
        live = self._live.get(task.id)
        if live is not None:
            await live.stop(TaskOutcome("cancelled", "cancelled by its client"))
        elif not task.is_over and not self.store.cancel_task(task.id) and self._shared is not None:
            await _reached(self._shared.stop(task))  # its server does
        return {} if is_modern(ctx) else to_handshake(to_wire(await self._find(ctx, params.task_id)))

    async def _update(self, ctx: RequestContext, params: UpdateTaskParams) -> JSONDict:
        if not is_modern(ctx):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data="tasks/update")
        task = await self._find(ctx, params.task_id)
        live = self._live.get(task.id)
        if task.run is None:
            if live is not None:
                live.run.answer(params.input_responses)
            elif self._shared is not None:
                replies = {key: on_wire(reply) for key, reply in params.input_responses.items()}
                await _reached(self._shared.answer(task, replies))
            return {}
        waits = await self._waits(task)
        sent = live.run.durable.sent if live is not None and live.run.durable is not None else frozenset[str]()
        for key, reply in params.input_responses.items():
            if key in waits:
                try:
                    await self._send(task, key, waits[key][0], reply)
                except ToolExecError as error:
                    raise _refused(error) from None
            elif key not in sent:
                text = f"the task does not ask {visible_line(key, _MESSAGE)} now; read what it asks with tasks/get"
                raise MCPError(code=INVALID_PARAMS, message=text, data={"code": "not_asked"})
        return {}

    async def _result(self, ctx: RequestContext, params: TaskParams) -> JSONDict:
        """Wait for the result of a task of 2025-11-25, and put its questions to the client meanwhile."""
        _only_of_its_era(ctx, "tasks/result")
        task = await self._find(ctx, params.task_id)
        live = self._live.get(task.id)
        if task.run is not None:
            await self._ask_until_over(ctx, task)
        elif live is not None:
            ask = handshake_approver(ctx, self._patience, {_RELATED: {"taskId": task.id}}) if can_elicit(ctx) else None
            await live.wait(ask)
        asked: set[str] = set()
        while not (task := await self._find(ctx, params.task_id)).is_over:  # another server runs it
            await self._ask_shared(ctx, task, asked)
            await asyncio.sleep(_TEND_SECONDS)
        if task.status == "completed":
            data = dict(task.outcome or {})
            return {**data, "_meta": {**(data.get("_meta") or {}), _RELATED: {"taskId": task.id}}}
        error: JSONObject = task.outcome or {}
        raise MCPError(
            code=error.get("code", INTERNAL_ERROR),
            message=error.get("message", f"the task is {task.status}: {task.message}"),
            data=error.get("data"),
        )

    async def _list(self, ctx: RequestContext, params: PaginatedRequestParams) -> JSONDict:
        _only_of_its_era(ctx, "tasks/list")
        requester = Requester.of(ctx)
        whose = {"owner": requester.key} if requester.key else {"session": requester.session}
        about = ["tasks/list", *whose.values()]
        try:
            start = 0 if params.cursor is None else self._seal.read(params.cursor, 0, about)
        except InvalidCursorError:
            raise MCPError(code=INVALID_PARAMS, message="invalid cursor") from None
        found = self.store.list_tasks(**whose, limit=_PAGE + 1, offset=start)
        if self._shared is not None and len(found) <= _PAGE:
            found += await _reached(self._of_others(self._shared, requester, whose, start + len(found)))
        page: JSONDict = {"tasks": [to_handshake(to_wire(self._now(task))) for task in found[:_PAGE]]}
        if len(found) > _PAGE:
            page["nextCursor"] = self._seal.make(start + _PAGE, 0, about)
        return page

    async def _find(self, ctx: RequestContext, task_id: str) -> StoredTask:
        """Return a task of the caller of *ctx* as it is now; raises MCPError for any other one."""
        if is_modern(ctx) and not offers_tasks(ctx):
            needed = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
            raise MCPError(
                code=MISSING_REQUIRED_CLIENT_CAPABILITY, message="Missing required client capability", data=needed
            )
        if not is_modern(ctx):
            _only_of_its_era(ctx, ctx.method)
        try:
            task = self.store.get_task(task_id, owner=Requester.of(ctx).key)
        except ConfigurationError as error:
            logger.error("%s", error)
            raise MCPError(code=INTERNAL_ERROR, message="the file of tasks cannot be read") from None
        if task is None and self._shared is not None:
            found = await _reached(self._shared.find(task_id, Requester.of(ctx).key))
            task = found.task if found is not None else None
        if task is None:
            raise MCPError(code=INVALID_PARAMS, message="task not found, or it has expired")
        return await permitted(self._now(task), ctx, self._rights)

    # -- questions of durable runs ------------------------------------------------------------------------------

    async def _questions(self, task: StoredTask) -> dict[str, ElicitRequest]:
        """Return what is asked and not answered yet, by key."""
        if task.run is not None:
            return {key: request for key, (_, request) in (await self._waits(task)).items()}
        live = self._live.get(task.id)
        if live is None and self._shared is not None:
            found = await _reached(self._shared.find(task.id, task.owner))
            return {key: ElicitRequest.model_validate(each) for key, each in found.asks.items()} if found else {}
        asked = live.run.questions() if live is not None else {}
        return {key: question(request) for key, request in asked.items()}

    async def _waits(self, task: StoredTask) -> dict[str, tuple[Wait, ElicitRequest]]:
        """Return what a durable run waits for, with its questions, by key; also of one that another server has."""
        live = self._live.get(task.id)
        durable = live.run.durable if live is not None else None
        if durable is not None and durable.has_looked:
            return questions_of(durable.open_waits)
        with suppress(ToolExecError):
            run = await self._ex.runs.get(task.id)
            return questions_of(run.waits if run.state == "waiting" else ())
        return {}

    async def _send(self, task: StoredTask, key: str, wait: Wait, reply: object) -> bool:
        """Send a durable run an answer; return whether it was one. Raises as `send_answer` does."""
        sent = await send_answer(self._ex, task.id, wait, reply)
        live = self._live.get(task.id)
        if sent and live is not None and live.run.durable is not None:
            live.run.durable.answered.add(key)
        return sent

    async def _ask_until_over(self, ctx: RequestContext, task: StoredTask) -> None:
        """Put what a durable run asks to a client of 2025-11-25 while it waits for the result.

        What it does not answer stays open, and is asked again with the next request; what does not fit is asked again.
        """
        asked: Counter[str] = Counter()
        while not (await self._find(ctx, task.id)).is_over:
            waits = await self._waits(task) if can_elicit(ctx) else {}
            todo = [key for key in waits if asked[key] < _ASKED_AT_MOST]
            for key in todo:
                wait, request = waits[key]
                if await self._put(ctx, task, key, wait, request):
                    asked[key] += 1
                else:
                    asked[key] = _ASKED_AT_MOST
            live = self._live.get(task.id)
            pause = _SOON_SECONDS if todo else _TEND_SECONDS
            await (asyncio.wait([live.work], timeout=pause) if live is not None else asyncio.sleep(pause))

    async def _put(self, ctx: RequestContext, task: StoredTask, key: str, wait: Wait, request: ElicitRequest) -> bool:
        """Put one question, as long as it is open; return whether there was an answer, be it one that does not fit."""
        asking = asyncio.ensure_future(put_to_client(ctx, request, self._patience, {_RELATED: {"taskId": task.id}}))
        try:
            while not asking.done():
                await asyncio.wait([asking], timeout=_TEND_SECONDS)
                if not asking.done() and key not in await self._waits(task):
                    return False  # it was answered otherwise, or the run has ended
        finally:
            asking.cancel()
        try:
            return await self._send(task, key, wait, asking.result())
        except InputValidationError:
            return True
        except (MCPError, ValidationError, RunError) as error:
            logger.info("what the run %s waits for was not answered: %s", task.id, type(error).__name__)
            return False

    def _now(self, task: StoredTask) -> StoredTask:
        live = self._live.get(task.id)
        return task if live is None else live.look()

    # -- while tasks are at work --------------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Keep how far the tasks have come, stop those that are to stop or have had their time, and be seen alive.

        Where tasks are durable, look for those of servers that have died.
        """
        looked = time.monotonic()
        while self._live or self.settings.durable:
            await asyncio.sleep(_TEND_SECONDS)
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
        if live.shared is not None and self._shared is not None and not live.is_finishing:
            live.is_finishing = True
            finishing = asyncio.create_task(self._finish(self._shared, live.shared, live.task, live.outcome))
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

    # -- what servers on other machines know ---------------------------------------------------------------------

    async def _beat(self) -> None:
        """Have other servers know how far the tasks have come, and do what they want of them."""
        while shared := [live for live in self._live.values() if live.shared is not None]:
            await asyncio.sleep(_BEAT_SECONDS)
            await asyncio.gather(*(self._beat_one(live) for live in shared if live.outcome is None))

    async def _beat_one(self, live: LiveTask) -> None:
        assert self._shared is not None
        try:
            asks = {key: on_wire(request) for key, request in (await self._questions(live.task)).items()}
            found = await self._shared.beat(live.look(), asks)
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

    async def _ask_shared(self, ctx: RequestContext, task: StoredTask, asked: set[str]) -> None:
        """Put what a task of another server asks to a client of 2025-11-25, each question once."""
        if self._shared is None or task.status != "input_required" or not can_elicit(ctx):
            return
        for key, request in (await self._questions(task)).items():
            if key not in asked:
                asked.add(key)
                try:
                    reply = await put_to_client(ctx, request, self._patience, {_RELATED: {"taskId": task.id}})
                except (MCPError, ValidationError) as error:
                    logger.info("what the task %s asks was not answered: %s", task.id, type(error).__name__)
                else:
                    await _reached(self._shared.answer(task, {key: on_wire(reply)}))

    async def _of_others(
        self, shared: SharedTasks, requester: Requester, whose: Mapping[str, str], start: int
    ) -> list[StoredTask]:
        """Return a page of the tasks of *requester* that only other servers have, as those from *start* on after those
        of this one, and one more."""
        most = self.settings.max_tasks
        owner, session = whose.get("owner"), whose.get("session")
        here = {task.id for task in self.store.list_tasks(owner=owner, session=session, limit=most)}
        ids = await shared.list_ids(requester.key, requester.session)
        there = [task_id for task_id in ids if task_id not in here][max(start - len(here), 0) :]
        found = await asyncio.gather(*(shared.find(task_id, requester.key) for task_id in there[: _PAGE + 1]))
        return [each.task for each in found if each is not None]

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


async def _reached(asked: Awaitable[T]) -> T:
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


def _refused(error: ToolExecError) -> MCPError:
    """Return what a client reads of an answer that was not taken."""
    message = visible_line(redactor.text(str(error)), _MESSAGE)
    return MCPError(code=INVALID_PARAMS, message=message, data={"code": error.code})


def _only_of_its_era(ctx: RequestContext, method: str) -> None:
    if ctx.protocol_version != TASKS_ERA:
        raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
