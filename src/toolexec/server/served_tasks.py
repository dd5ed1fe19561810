"""Calls as MCP tasks: made by the server when a call takes long, watched and answered by later requests.

A client of the newer era offers the extension `io.modelcontextprotocol/tasks`, and the server decides which calls
become tasks. One of 2025-11-25 asks for a task with its call. The work is that of a `SuspendedRun`, and needs no
request to go on. One that is a durable run has the ID of its task, and outlives the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

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
    ToolExecError,
)
from toolexec.exec.facade import Exec
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.redaction import redactor
from toolexec.model.visible import visible_line
from toolexec.server.callers import (
    TASKS_ERA,
    TASKS_EXTENSION,
    RequestContext,
    Requester,
    can_elicit,
    is_modern,
    offers_tasks,
)
from toolexec.server.elicitation import handshake_approver, put_to_client
from toolexec.server.kept_answers import AnswerRights
from toolexec.server.live_tasks import permitted
from toolexec.server.settings import ServeSettings
from toolexec.server.shared_tasks import SharedTasks
from toolexec.server.task_messages import TaskParams, UpdateTaskParams, on_wire, to_handshake, to_wire
from toolexec.server.tasks import StoredTask, TaskOutcome
from toolexec.server.tasks_at_work import TEND_SECONDS, TasksAtWork, reached

logger: logging.Logger = logging.getLogger(__name__)
_RELATED: Final = "io.modelcontextprotocol/related-task"
_SOON_SECONDS: Final = 0.1
_ASKED_AT_MOST: Final = 3
_MESSAGE: Final = 1000
_PAGE: Final = 50


class ServedTasks:
    """The requests of clients about *tasks*, which are at work, or over."""

    def __init__(self, settings: ServeSettings, ex: Exec, tasks: TasksAtWork) -> None:
        self._tasks = tasks
        self._mode = settings.tasks.mode
        self._rights = AnswerRights(ex)
        self._patience = settings.approval_timeout
        self._seal = CursorSeal()

    def serve(self, server: Server[Any]) -> None:
        """Add the requests about tasks to *server*."""
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)
        server.add_request_handler("tasks/update", UpdateTaskParams, self._update)
        server.add_request_handler("tasks/result", TaskParams, self._result)
        server.add_request_handler("tasks/list", PaginatedRequestParams, self._list)

    def marked(self, entries: list[JSONDict], ctx: RequestContext) -> list[JSONDict]:
        """Return entries of `tools/list` that say, where the era needs it, that each may be called as a task."""
        if self._mode == "never" or ctx.protocol_version != TASKS_ERA:
            return entries
        return [{**entry, "execution": {"taskSupport": "optional"}} for entry in entries]

    # -- requests about tasks -----------------------------------------------------------------------------------

    async def _get(self, ctx: RequestContext, params: TaskParams) -> JSONDict:
        task = await self._find(ctx, params.task_id)
        data = to_wire(task)
        if not is_modern(ctx):
            return to_handshake(data)
        if task.status == "input_required":
            questions = await self._tasks.questions(task)
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
        live = self._tasks.find(task.id)
        if live is not None:
            await live.stop(TaskOutcome("cancelled", "cancelled by its client"))
        elif not task.is_over and not self._tasks.store.cancel_task(task.id) and self._tasks.shared is not None:
            await reached(self._tasks.shared.stop(task))  # its server does
        return {} if is_modern(ctx) else to_handshake(to_wire(await self._find(ctx, params.task_id)))

    async def _update(self, ctx: RequestContext, params: UpdateTaskParams) -> JSONDict:
        if not is_modern(ctx):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data="tasks/update")
        task = await self._find(ctx, params.task_id)
        live = self._tasks.find(task.id)
        if task.run is None:
            if live is not None:
                live.run.answer(params.input_responses)
            elif self._tasks.shared is not None:
                replies = {key: on_wire(reply) for key, reply in params.input_responses.items()}
                await reached(self._tasks.shared.answer(task, replies))
            return {}
        waits = await self._tasks.waits(task)
        sent = live.run.durable.sent if live is not None and live.run.durable is not None else frozenset[str]()
        for key, reply in params.input_responses.items():
            if key in waits:
                try:
                    await self._tasks.send(task, key, waits[key][0], reply)
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
        live = self._tasks.find(task.id)
        if task.run is not None:
            await self._ask_until_over(ctx, task)
        elif live is not None:
            ask = handshake_approver(ctx, self._patience, {_RELATED: {"taskId": task.id}}) if can_elicit(ctx) else None
            await live.wait(ask)
        asked: set[str] = set()
        while not (task := await self._find(ctx, params.task_id)).is_over:  # another server runs it
            await self._ask_shared(ctx, task, asked)
            await asyncio.sleep(TEND_SECONDS)
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
        found = self._tasks.store.list_tasks(**whose, limit=_PAGE + 1, offset=start)
        if self._tasks.shared is not None and len(found) <= _PAGE:
            found += await reached(self._of_others(self._tasks.shared, requester, whose, start + len(found)))
        page: JSONDict = {"tasks": [to_handshake(to_wire(self._tasks.now(task))) for task in found[:_PAGE]]}
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
            task = self._tasks.store.get_task(task_id, owner=Requester.of(ctx).key)
        except ConfigurationError as error:
            logger.error("%s", error)
            raise MCPError(code=INTERNAL_ERROR, message="the file of tasks cannot be read") from None
        if task is None and self._tasks.shared is not None:
            found = await reached(self._tasks.shared.find(task_id, Requester.of(ctx).key))
            task = found.task if found is not None else None
        if task is None:
            raise MCPError(code=INVALID_PARAMS, message="task not found, or it has expired")
        return await permitted(self._tasks.now(task), ctx, self._rights)

    # -- questions of durable runs ------------------------------------------------------------------------------

    async def _ask_until_over(self, ctx: RequestContext, task: StoredTask) -> None:
        """Put what a durable run asks to a client of 2025-11-25 while it waits for the result.

        What it does not answer stays open, and is asked again with the next request; what does not fit is asked again.
        """
        asked: Counter[str] = Counter()
        while not (await self._find(ctx, task.id)).is_over:
            waits = await self._tasks.waits(task) if can_elicit(ctx) else {}
            todo = [key for key in waits if asked[key] < _ASKED_AT_MOST]
            for key in todo:
                wait, request = waits[key]
                if await self._put(ctx, task, key, wait, request):
                    asked[key] += 1
                else:
                    asked[key] = _ASKED_AT_MOST
            live = self._tasks.find(task.id)
            pause = _SOON_SECONDS if todo else TEND_SECONDS
            await (asyncio.wait([live.work], timeout=pause) if live is not None else asyncio.sleep(pause))

    async def _put(self, ctx: RequestContext, task: StoredTask, key: str, wait: Wait, request: ElicitRequest) -> bool:
        """Put one question, as long as it is open; return whether there was an answer, be it one that does not fit."""
        asking = asyncio.ensure_future(put_to_client(ctx, request, self._patience, {_RELATED: {"taskId": task.id}}))
        try:
            while not asking.done():
                await asyncio.wait([asking], timeout=TEND_SECONDS)
                if not asking.done() and key not in await self._tasks.waits(task):
                    return False  # it was answered otherwise, or the run has ended
        finally:
            asking.cancel()
        try:
            return await self._tasks.send(task, key, wait, asking.result())
        except InputValidationError:
            return True
        except (MCPError, ValidationError, RunError) as error:
            logger.info("what the run %s waits for was not answered: %s", task.id, type(error).__name__)
            return False

    # -- what servers on other machines know ---------------------------------------------------------------------

    async def _ask_shared(self, ctx: RequestContext, task: StoredTask, asked: set[str]) -> None:
        """Put what a task of another server asks to a client of 2025-11-25, each question once."""
        if self._tasks.shared is None or task.status != "input_required" or not can_elicit(ctx):
            return
        for key, request in (await self._tasks.questions(task)).items():
            if key not in asked:
                asked.add(key)
                try:
                    reply = await put_to_client(ctx, request, self._patience, {_RELATED: {"taskId": task.id}})
                except (MCPError, ValidationError) as error:
                    logger.info("what the task %s asks was not answered: %s", task.id, type(error).__name__)
                else:
                    await reached(self._tasks.shared.answer(task, {key: on_wire(reply)}))

    async def _of_others(
        self, shared: SharedTasks, requester: Requester, whose: Mapping[str, str], start: int
    ) -> list[StoredTask]:
        """Return a page of the tasks of *requester* that only other servers have, as those from *start* on after those
        of this one, and one more."""
        most = self._tasks.settings.max_tasks
        owner, session = whose.get("owner"), whose.get("session")
        here = {task.id for task in self._tasks.store.list_tasks(owner=owner, session=session, limit=most)}
        ids = await shared.list_ids(requester.key, requester.session)
        there = [task_id for task_id in ids if task_id not in here][max(start - len(here), 0) :]
        found = await asyncio.gather(*(shared.find(task_id, requester.key) for task_id in there[: _PAGE + 1]))
        return [each.task for each in found if each is not None]


def _refused(error: ToolExecError) -> MCPError:
    """Return what a client reads of an answer that was not taken."""
    message = visible_line(redactor.text(str(error)), _MESSAGE)
    return MCPError(code=INVALID_PARAMS, message=message, data={"code": error.code})


def _only_of_its_era(ctx: RequestContext, method: str) -> None:
    if ctx.protocol_version != TASKS_ERA:
        raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
