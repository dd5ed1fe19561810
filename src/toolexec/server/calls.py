"""The calls of a server's clients: made while their requests last, suspended while a person is asked, or as tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolRequestParams, InputRequiredResult, InputResponseRequestParams

from toolexec.errors import ContextBudgetError
from toolexec.exec.facade import Exec
from toolexec.exec.run_data import origin_from_json, origin_to_json
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Approver, Caller, Origin, acting
from toolexec.server.callers import (
    RequestContext,
    Requester,
    asks_for_task,
    can_be_asked,
    can_elicit,
    connection_of,
    is_modern,
    offers_tasks,
)
from toolexec.server.dispatching import Dispatcher, How
from toolexec.server.durable import DurableCall
from toolexec.server.elicitation import handshake_approver
from toolexec.server.kept_answers import noting
from toolexec.server.kept_calls import KeptCalls
from toolexec.server.kept_results import KeptResults
from toolexec.server.kept_streams import work_of
from toolexec.server.logins.asking import LoginAsk, takes_links
from toolexec.server.logins.links import LoginLinks
from toolexec.server.logs import Line
from toolexec.server.metering import Job, count_reply
from toolexec.server.questions import Ask, client_answerer
from toolexec.server.replies import failure
from toolexec.server.server_state import ServerState
from toolexec.server.settings import ServeSettings
from toolexec.server.suspended import SuspendedRun, SuspendedRuns, digest_of
from toolexec.server.task_messages import announced
from toolexec.server.tasks import StoredTask, new_task_id
from toolexec.server.tasks_at_work import TasksAtWork

_NOTED: Final = "toolexec.session_noted"


class ServedCalls:
    """Makes the calls of one server, whose tools *dispatcher* has. *logins* gives the logins that callers make
    themselves, *is_gone* whether a caller had a key that was taken out; *first_tools* waits for backends that start.
    """

    def __init__(
        self,
        ex: Exec,
        settings: ServeSettings,
        dispatcher: Dispatcher,
        state: ServerState,
        kept_results: KeptResults | None,
        *,
        logins: Callable[[], LoginLinks | None],
        is_gone: Callable[[Caller], bool],
        first_tools: Callable[[], Awaitable[None]],
    ) -> None:
        self._ex = ex
        self._settings = settings
        self._dispatcher = dispatcher
        self._kept_results = kept_results
        self._logins = logins
        self._first_tools = first_tools
        kept = KeptCalls(state.store, state.endpoint)
        self._suspended = SuspendedRuns(settings.suspended_max, settings.approval_timeout, kept)
        self.tasks: TasksAtWork = TasksAtWork(
            settings, ex, self._suspended, self._resume, state.tasks(kept_results), is_gone
        )
        """The calls that have become tasks."""

    async def aclose(self) -> None:
        """Stop all calls, those that wait for answers, too."""
        await self.tasks.aclose()
        await self._suspended.aclose()

    async def call(self, ctx: RequestContext, params: CallToolRequestParams) -> JSONDict | InputRequiredResult:
        """Answer a request of `tools/call`: with the reply, with what its client is asked, or with a task. Raises
        MCPError."""
        requester = Requester.of(ctx)
        self._note_session(ctx, requester)
        args: JSONObject = params.arguments if params.arguments is not None else {}
        left = None
        if params.request_state is not None:
            run = await self._resumed(params, requester, digest_of(params.name, args))
            if run.task is not None:
                async with run.line.open(ctx):
                    return await self._advance(run, ctx, params.name, requester)
            left = run  # by another server: it is made from its beginning
        if not self._dispatcher.has(params.name):
            await self._first_tools()
        wants_task = self._settings.tasks.mode != "never" and asks_for_task(ctx, params.task)
        takes_task = self._task_after(ctx) is not None
        with acting(requester.origin(None)):
            durable = self._durable(params.name, args) if not left and (wants_task or takes_task) else None
            how = How(ctx.protocol_version, durable, requester.idempotency_key(ctx))
            job = self._metered(params.name, args, self._dispatcher.job(params.name, args, how))
        if wants_task and left is None:
            return await self._begin_task(job, ctx, params, requester, durable)
        if left is not None or (is_modern(ctx) and (can_be_asked(ctx) or takes_task)):
            run = left or self._suspendable(requester, params.name, args)
            if durable is not None:
                run.make_durable(durable)
            logins = self._login_ask(requester)
            if logins is not None and durable is None and takes_links(ctx) and self._dispatcher.is_one(params.name):
                job = self._with_login(job, logins, run.ask_client)
            async with run.line.open(ctx):
                self._begin(run, ctx, requester, job, logins, wants_progress=takes_task or _wants_progress(ctx))
                return await self._advance(run, ctx, params.name, requester)
        return await self._at_once(ctx, requester, job, is_one=self._dispatcher.is_one(params.name))

    def _login_ask(self, requester: Requester) -> LoginAsk | None:
        logins = self._logins()
        return LoginAsk(logins, requester.caller) if logins is not None else None

    def _with_login(self, job: Job, logins: LoginAsk, ask: Ask) -> Job:
        """Return the call, made again after its caller has logged in where it was not made for want of that."""

        async def work(origin: Origin, on_progress: ProgressCallback | None) -> JSONDict:
            reply = await job(origin, on_progress)
            if not logins.failed(reply) or not await logins.asked(ask, self._settings.approval_timeout):
                return reply
            return await job(origin, on_progress)

        return work

    def _note_session(self, ctx: RequestContext, requester: Requester) -> None:
        """Have backends learn when the session of a connection is over, if they keep anything for it. Calls of the
        newer era come on no lasting connection: what is kept for their caller ends when it is idle."""
        if is_modern(ctx):
            return
        connection = connection_of(ctx)
        if not connection.state.get(_NOTED):
            connection.state[_NOTED] = True
            connection.exit_stack.callback(self._ex.backends.end_session, requester.session)

    async def _at_once(self, ctx: RequestContext, requester: Requester, job: Job, *, is_one: bool = True) -> JSONDict:
        """Do a job while its request lasts; its client is asked meanwhile, where that is possible. Where it is *one*
        call, not made for want of a login, a client that opens links gets an error with them."""
        logins = self._login_ask(requester)
        links = logins if is_one and not is_modern(ctx) and takes_links(ctx) else None
        try:
            reply = await self._at_once_with(ctx, requester, job, logins)
        except MCPError:
            if links is not None and links.wanted:
                raise links.error(ctx) from None
            raise
        if links is not None and links.failed(reply):
            raise links.error(ctx)
        return reply

    async def _at_once_with(
        self, ctx: RequestContext, requester: Requester, job: Job, logins: LoginAsk | None
    ) -> JSONDict:
        timeout = self._settings.approval_timeout
        ask = handshake_approver(ctx, timeout) if can_elicit(ctx) else None
        line = Line()
        async with line.open(ctx):
            work = work_of(ctx)
            begun = work.begin if work is not None and self._kept_results is not None else None
            answer = client_answerer(ctx, timeout, None)
            origin = replace(_origin(requester, line, ask, logins), answer=answer, on_effect=begun)
            job = noting(job, work.tools if work is not None else set())
            return await self._work(job, requester, origin, line, wants_progress=_wants_progress(ctx))

    async def answer(
        self, ctx: RequestContext, params: InputResponseRequestParams, what: str, args: JSONObject, job: Job
    ) -> JSONDict | InputRequiredResult:
        """Have a job done that is not a call of a tool; see `Answer` in `server/offers.py`."""
        requester = Requester.of(ctx)
        self._note_session(ctx, requester)
        left = None
        if params.request_state is not None:
            run = await self._resumed(params, requester, digest_of(what, args))
            if run.task is not None:
                async with run.line.open(ctx):
                    return await self._replied(run)
            left = run
        if left is None and not (is_modern(ctx) and can_be_asked(ctx)):
            return await self._at_once(ctx, requester, job)
        run = left or self._suspendable(requester, what, args)
        async with run.line.open(ctx):
            self._begin(run, ctx, requester, job, self._login_ask(requester), wants_progress=_wants_progress(ctx))
            return await self._replied(run)

    def _begin(
        self,
        run: SuspendedRun,
        ctx: RequestContext,
        requester: Requester,
        job: Job,
        logins: LoginAsk | None,
        *,
        wants_progress: bool,
    ) -> None:
        """Begin a job that may be suspended, while its client is asked by the answer to its request."""
        ask = run.ask if can_elicit(ctx) else None
        answer = client_answerer(ctx, self._settings.approval_timeout, run.ask_client)
        origin = replace(_origin(requester, run.line, ask, logins), answer=answer, on_effect=run.record.begin)
        run.begin(self._work(noting(job, run.tools), requester, origin, run.line, wants_progress=wants_progress))

    def _suspendable(self, requester: Requester, what: str, args: JSONObject) -> SuspendedRun:
        return SuspendedRun(self._suspended, requester.key, digest_of(what, args), requester.source)

    async def _resumed(self, params: InputResponseRequestParams, requester: Requester, digest: str) -> SuspendedRun:
        """Return the call that a request goes on with; without work where another server has left it."""
        state, replies = params.request_state or "", params.input_responses or {}
        return await self._suspended.resume(state, requester.key, digest, replies, requester.source)

    async def _replied(self, run: SuspendedRun) -> JSONDict | InputRequiredResult:
        result = await self._suspended.advance(run)
        if result is None:
            raise MCPError(code=INTERNAL_ERROR, message="it waits for something; ask again later")
        return result

    async def _advance(
        self, run: SuspendedRun, ctx: RequestContext, name: str, requester: Requester
    ) -> JSONDict | InputRequiredResult:
        """Return the reply of *run*, its questions, or the task that it becomes."""
        durable = run.durable
        announced = None
        try:
            result = await self._suspended.advance(run, self._task_after(ctx))
            if result is None:
                kept = self._kept(run, ctx, requester)
                result = announced = await self.tasks.adopt(run, name, requester, kept=kept)
            if result is None:  # no room for one more task
                result = await self._suspended.advance(run)
        finally:
            if durable is not None and announced is None:
                with anyio.CancelScope(shield=True):  # the reply is all that there is of it
                    await durable.forget()
        if result is None:
            raise MCPError(code=INTERNAL_ERROR, message="it waits, and no more tasks can be kept; call it again later")
        return result

    def _durable(self, name: str, args: JSONObject) -> DurableCall | None:
        """Return the durable run that a call is to be, if it can be one."""
        if not self._settings.tasks.durable or (kept := self._dispatcher.kept(name, args)) is None:
            return None
        return DurableCall(self._ex, new_task_id(), kept=kept)

    def _kept(self, run: SuspendedRun, ctx: RequestContext, requester: Requester) -> JSONDict | None:
        """Return what the reply of a durable run is made with after a restart."""
        if run.durable is None:
            return None
        origin = origin_to_json(requester.origin(None))
        return {"args": dict(run.durable.kept), "version": ctx.protocol_version, "origin": origin}

    async def _resume(self, task: StoredTask, run: SuspendedRun) -> JSONDict:
        """Go on with the durable run of a task that another server has left; return the reply of its call."""
        assert run.durable is not None
        kept = task.run or {}
        origin = run.line.listening(origin_from_json(kept.get("origin") or {}))
        with acting(origin):
            how = How(str(kept.get("version")), run.durable)
            args = kept.get("args") or {}
            job = self._metered(task.tool, args, self._dispatcher.job(task.tool, args, how))
            reply = noting(job, run.tools)(origin, run.line.progress)
            if self._kept_results is None or not origin.caller.id:
                return await reply
            return await self._kept_results.after(reply, origin)

    def _task_after(self, ctx: RequestContext) -> float | None:
        """Return after how many seconds the call of a request becomes a task; None if it does not."""
        settings = self._settings.tasks
        if settings.mode == "never" or not offers_tasks(ctx):
            return None
        return 0.0 if settings.mode == "always" else settings.after

    async def _begin_task(
        self,
        job: Job,
        ctx: RequestContext,
        params: CallToolRequestParams,
        requester: Requester,
        durable: DurableCall | None,
    ) -> JSONDict:
        """Return what announces the task that a client of 2025-11-25 asked for; raises MCPError without room for it."""
        run = SuspendedRun(self._suspended, requester.key, "", requester.source)
        if durable is not None:
            run.make_durable(durable)
        ttl = params.task.ttl / 1000 if params.task is not None and params.task.ttl is not None else None
        origin = _origin(requester, run.line, run.ask if can_elicit(ctx) else None, self._login_ask(requester))
        run.begin(self._work(noting(job, run.tools), requester, origin, run.line, wants_progress=True))
        announcement = await self.tasks.adopt(run, params.name, requester, ttl, self._kept(run, ctx, requester))
        assert run.task is not None
        if announcement is None:
            run.task.cancel()
            raise MCPError(code=INTERNAL_ERROR, message="no more tasks can be kept; call it without one, or later")
        self._suspended.keep(run)
        return announced(announcement)

    def _metered(self, name: str, args: JSONObject, job: Job) -> Job:
        """Return the call with its tokens counted; over a budget of tokens it is not made."""
        meter = self._ex.meter
        if not meter.counts:
            return job

        async def counted(origin: Origin, on_progress: ProgressCallback | None) -> JSONDict:
            try:
                meter.check(origin)
            except ContextBudgetError as error:
                reply = failure(error, None)
            else:
                reply = await job(origin, on_progress)
            count_reply(meter, origin, self._dispatcher.cause(name), args, reply)
            return reply

        return counted

    async def _work(
        self, job: Job, requester: Requester, origin: Origin, line: Line, *, wants_progress: bool
    ) -> JSONDict:
        with acting(origin):
            reply = job(origin, line.progress if wants_progress else None)
            if self._kept_results is None or not requester.is_known_again:
                return await reply
            return await self._kept_results.after(reply, origin)


def _origin(requester: Requester, line: Line, ask: Approver | None, logins: LoginAsk | None) -> Origin:
    """Return the origin of a call whose client is notified by *line* of how it gets on."""
    link = logins.link if logins is not None else None
    return replace(line.listening(requester.origin(ask)), login_link=link)


def _wants_progress(ctx: RequestContext) -> bool:
    return (ctx.meta or {}).get("progress_token") is not None
