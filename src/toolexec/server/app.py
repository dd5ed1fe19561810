"""The MCP server: everything that an `Exec` can do, for clients of both protocol eras."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from toolexec.errors.extras import extra_needed
from toolexec.model.json_value import JSONDict

with extra_needed("serve", "serving over MCP"):
    import anyio
    from mcp.server.caching import CacheHint

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import (
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    DiscoverResult,
    EmptyResult,
    NotificationParams,
    PaginatedRequestParams,
    RequestParams,
    SetLevelRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolexec.backend.base import Backend
from toolexec.backend.offering import OffersMore
from toolexec.backend.offers import OfferEvent
from toolexec.discovery.index import Index
from toolexec.discovery.pages import CursorSeal
from toolexec.discovery.preparing import Prepares
from toolexec.discovery.view import browsable
from toolexec.errors import ConfigurationError, InvalidCursorError, ToolExecError
from toolexec.exec.facade import Exec
from toolexec.exec.resource_tools import LIST_RESOURCES
from toolexec.model.origin import Caller, Origin, acting
from toolexec.model.settings import checked
from toolexec.net.hosts import origin_of
from toolexec.run.layers.budget import kept_results
from toolexec.run.results import ResultStore
from toolexec.server.auth.live_keys import LiveKeys
from toolexec.server.callers import RequestContext, Requester
from toolexec.server.calls import ServedCalls
from toolexec.server.changes import ChangeNotices
from toolexec.server.dispatching import Dispatcher
from toolexec.server.instructions import instructions
from toolexec.server.kept_answers import AnswerRights
from toolexec.server.kept_results import KeptResults
from toolexec.server.kept_sessions import KeptSessions
from toolexec.server.kept_streams import KeptStreams
from toolexec.server.logins.links import LoginLinks
from toolexec.server.logs import set_log_level
from toolexec.server.lowlevel import Lowlevel, announce_task
from toolexec.server.metering import count_list
from toolexec.server.offers import OFFER_HINTS, ServedOffers
from toolexec.server.served_tasks import ServedTasks
from toolexec.server.server_state import ServerState
from toolexec.server.settings import ServeSettings
from toolexec.server.tasks import TaskStore
from toolexec.server.tools.base import MetaTool
from toolexec.server.tools.catalogue import meta_tools, unlisted_tools

__all__ = ["ToolServer"]

logger: logging.Logger = logging.getLogger(__name__)
_NAMESPACES = 60
_META_TTL_MS = 300_000
_AUTO_WAIT = 2.0  # clients wait for the first list, so a few slow backends hold it up no longer
_HEAD_START = 0.1  # the first answer comes before the backends' processes; a call that needs one starts it by itself


@checked("ToolServer")
class ToolServer:
    """One MCP server over all tools of *ex*.

    `async with ToolServer(ex) as server:` starts the backends without waiting for them, and closes everything, *ex*
    too, at the end. `lowlevel` is the SDK's server, for whatever transport carries it. *tools* are the server's own
    tools (default: those that `settings.expose` names); *results* keeps what is too long for a reply (default: that of
    the budget of *ex*, if its gate has one, so that clients can read by its handles). As one more *endpoint* of a
    server it shows those tools of *ex* that *index* has, if that is given, and leaves *ex* open at its end.

    Raises ConfigurationError for settings that make no sense.
    """

    def __init__(
        self,
        ex: Exec,
        settings: ServeSettings | None = None,
        *,
        tools: Sequence[MetaTool] | None = None,
        results: ResultStore | None = None,
        endpoint: str = "",
        index: Callable[[], Index] | None = None,
    ) -> None:
        self.ex = ex
        self.endpoint = endpoint
        settings = settings if settings is not None else ServeSettings()
        self.settings: ServeSettings = settings
        if settings.tasks.durable and ex.options.journal is None:
            raise ConfigurationError(
                "tasks.durable needs a journal: Exec(journal='runs.db'), or journal in the block [durable]",
                details={"setting": "tasks.durable"},
            )
        self.results: ResultStore = results if results is not None else _result_store(ex, settings)
        unlisted: Sequence[MetaTool] = ()
        if tools is None:
            code = ex.options.enable_code_execution
            expose, language = settings.expose, ex.options.default_language
            tools = meta_tools(expose, code_enabled=code, list_all=settings.list_all, language=language)
            unlisted = () if settings.list_all else unlisted_tools(expose, code_enabled=code, language=language)
        self.state: ServerState = ServerState(settings, endpoint)
        self._kept_results: KeptResults | None = None
        if self.state.is_kept:
            self._kept_results = KeptResults(self.results, self.state.store, settings.state_results, self.state.keys)
        self._dispatcher = Dispatcher(ex, tools, self.results, settings, unlisted, index, self._kept_results)
        own = origin_of(settings.auth.resource_url) if settings.auth.resource_url else ""
        self.logins: LoginLinks | None = LoginLinks(ex.backends, own) if not endpoint else None
        """The logins that callers make themselves, at a page of this server; None until an endpoint is served."""
        self._seal = CursorSeal()
        self.keys: LiveKeys | None = None
        """The API keys of its callers, where they may be taken out: then no task waits for one who had such a key."""
        self._calls = ServedCalls(
            ex,
            settings,
            self._dispatcher,
            self.state,
            self._kept_results,
            logins=lambda: self.logins,
            is_gone=self._is_gone,
            first_tools=self._first_tools,
        )
        self._tasks = self._calls.tasks
        self._served_tasks = ServedTasks(settings, ex, self._tasks)
        self._offers = ServedOffers(ex, settings.page_size, self._calls.answer)
        self._changes = ChangeNotices(ex.index, settings.list_changed_debounce, self._offers.watching.watchers)
        self._stop_watching: list[Callable[[], None]] = []
        self._has_resource_tools = False
        self._listen = ListenHandler(self._changes.bus)
        self._starting: asyncio.Task[None] | None = None
        self._patient_until = 0.0
        self.lowlevel: Server[Any] = self._make_lowlevel()

    @property
    def tasks(self) -> TaskStore:
        """The store of this server's tasks; raises ConfigurationError when its file cannot be used."""
        return self._tasks.store

    @property
    def tasks_at_work(self) -> int:
        """How many tasks this server works on."""
        return len(self._tasks)

    def take_keys(self, keys: LiveKeys) -> None:
        """Have calls of callers whom *keys* let in be made, too, where the gate knows only those of its settings."""
        gate = self.ex.options.own_gate
        if gate is not None:
            known = gate.present
            gate.present = lambda caller: known(caller) or keys.present(caller)

    def _is_gone(self, caller: Caller) -> bool:
        return self.keys is not None and self.keys.is_gone(caller)

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to start the backends and to watch for changes; waits for nothing. Further calls do nothing."""
        if self._starting is None:
            self._stop_watching.append(self.ex.backends.on_backend(self._adopt))
            if self.settings.list_changed:
                self._changes.start()
            wait = self.settings.direct_wait
            wait = min(wait, _AUTO_WAIT) if self.settings.expose == "auto" else wait
            self._patient_until = asyncio.get_running_loop().time() + wait
            self._starting = asyncio.create_task(self._start_backends())

    def _adopt(self, backend: Backend) -> None:
        """Let a backend put its questions to clients, and pass on to them what it says of its resources."""
        relay = getattr(backend, "relay", None)
        if relay is not None:
            relay.active = True
        if isinstance(backend, OffersMore) and self.settings.list_changed:

            def changed(event: OfferEvent) -> None:
                self._changes.notify(self._offers.changed(backend, event))
                if event.kind != "updated":
                    self._offers.watching.follow(backend, updated)

            def updated(uri: str) -> None:
                self._changes.notify(ResourceUpdated(uri=uri))

            self._stop_watching.append(backend.on_offers(changed))
            self._offers.watching.follow(backend, updated)

    async def _start_backends(self) -> None:
        await asyncio.sleep(_HEAD_START)
        try:
            await self.ex.start()
        except Exception:
            logger.exception("the backends were not started")
        self._add_resource_tools()
        if self.settings.tasks.mode != "never":
            self._tasks.start()

    def _add_resource_tools(self) -> None:
        """Add tools for resources and prompts where there are any, and tools are found by searching: there they cost
        no client anything that does not look for them."""
        if self._has_resource_tools or self._dispatcher.exposed() not in ("code", "meta"):
            return
        if any(backend.has_offers for backend in self.ex.resources.backends()):
            self._has_resource_tools = True
            if self.ex.everything.find(LIST_RESOURCES) is not None:  # another endpoint has added them
                return
            try:
                self.ex.add_resource_tools()
            except ToolExecError as error:
                logger.warning("there are no tools for resources and prompts: %s", error.message)

    def notify_changes(self) -> None:
        """Notify clients that they may see other tools, resources and prompts than before, though none has changed; on
        the event loop of this server. Without `settings.list_changed` it does nothing."""
        if self.settings.list_changed:
            for event in (ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()):
                self._changes.notify(event)

    async def aclose(self) -> None:
        """Stop all calls, those that wait for answers too, end all listening, and close *ex* with its backends, unless
        this is one more endpoint."""
        for stop in self._stop_watching:
            stop()
        self._changes.stop()
        await self._offers.watching.aclose()
        self._listen.close()
        await self._calls.aclose()
        await self.state.aclose()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if not self.endpoint:
            await self.ex.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):  # whatever ended the block, no process is left behind
            await self.aclose()

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> AsyncGenerator[dict[str, Any], None]:
        await self.start()
        yield {}

    # -- the SDK's server ---------------------------------------------------------------------------------------

    def _make_lowlevel(self) -> Server[Any]:
        settings = self.settings
        varies = settings.expose in ("direct", "auto")
        hint = CacheHint() if varies else CacheHint(ttl_ms=_META_TTL_MS, scope="public")
        server = Lowlevel(
            settings.name,
            version=settings.version,
            title=settings.title or None,
            cache_hints={"tools/list": hint, **OFFER_HINTS},
            lifespan=self._lifespan,
            get_tool_input_schema=self._dispatcher.input_schema,
            on_subscriptions_listen=self._listen_for if settings.list_changed else None,
        )
        server.offered = self._offers.offered
        server.describe = self._instructions
        server.notes_changes = settings.list_changed
        server.add_request_handler("server/discover", RequestParams, self._discover)
        server.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)
        server.add_request_handler("tools/list", PaginatedRequestParams, self._list)
        server.add_request_handler("tools/call", CallToolRequestParams, self._calls.call)
        self._offers.serve(server)
        if settings.list_changed:
            server.add_notification_handler("notifications/initialized", NotificationParams, self._changes.remember)
        if settings.tasks.mode != "never":
            self._served_tasks.serve(server)
            server.middleware.append(announce_task)
            server.makes_tasks = True
        server.middleware.append(self._instruct)
        server.answer_rights = AnswerRights(self.ex)
        if self._kept_results is not None:
            server.kept_sessions = KeptSessions(self.state.store, settings.http.session_idle, self.endpoint)
            server.kept_streams = KeptStreams(self.state.store, self._kept_results, self.endpoint, self.state.keys)
            server.middleware.append(server.kept_sessions.note)
        server.middleware.append(self.state.sealed)
        return server

    async def _instruct(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Answer a handshake with the instructions for who makes it: the SDK has them before it knows the caller."""
        result = await call_next(ctx)
        if ctx.method == "initialize" and isinstance(result, dict):
            origin = Requester.of(ctx).origin(None)
            words = self._instructions(origin)
            self.ex.meter.count(origin, "instructions", words, again=True)
            return {**result, "instructions": words}
        return result

    def _instructions(self, origin: Origin | None = None) -> str:
        """Return the instructions for *origin* (None: an anonymous one), without what is hidden from it."""
        settings, ex = self.settings, self.ex
        if settings.instructions:
            return settings.instructions
        with acting(origin or Origin()):
            index, _ = ex.visible()
            ready = not isinstance(index, Prepares) or index.is_prepared
            tools = len(index) if ready else 0
            exposed = self._dispatcher.exposed()
            named = ready and exposed == "code"  # with `meta`, list_namespaces has them
            page = browsable(index).namespaces_page(_NAMESPACES).items if named else ()
        return instructions(
            exposed,
            tools=tools,
            namespaces=[name for name in page if name],
            code_enabled=ex.options.enable_code_execution,
            also=self._dispatcher.unlisted,
        )

    async def _discover(self, ctx: RequestContext, params: RequestParams) -> DiscoverResult:
        origin = Requester.of(ctx).origin(None)
        words = self._instructions(origin)
        self.ex.meter.count(origin, "instructions", words, again=True)
        return DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=self.lowlevel.get_capabilities(protocol_version=ctx.protocol_version),
            instructions=words,
        )

    async def _listen_for(
        self, ctx: RequestContext, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve a stream of changes, of those resources among others that the caller may know of."""
        async with contextlib.AsyncExitStack() as stack:
            wanted = params.notifications
            if wanted.resource_subscriptions:
                with acting(Requester.of(ctx).origin(None)):
                    uris = await self._offers.watching.watch_all(stack, stack, wanted.resource_subscriptions)
                wanted = wanted.model_copy(update={"resource_subscriptions": uris or None})
            with self._changes.bus.stream(stack):
                return await self._listen(ctx, params.model_copy(update={"notifications": wanted}))

    async def _set_level(self, ctx: RequestContext, params: SetLevelRequestParams) -> EmptyResult:
        set_log_level(ctx, params.level)
        return EmptyResult()

    # -- tools/list ---------------------------------------------------------------------------------------------

    async def _list(self, ctx: RequestContext, params: PaginatedRequestParams) -> JSONDict:
        requester = Requester.of(ctx)
        await self._first_tools()
        self._add_resource_tools()
        with acting(requester.origin(None)):
            listed = self._dispatcher.listing(ctx.protocol_version)
        question = ["tools/list", requester.key]
        try:
            start = 0 if params.cursor is None else self._seal.read(params.cursor, listed.version, question)
        except InvalidCursorError:
            raise MCPError(code=INVALID_PARAMS, message="invalid cursor") from None
        end = start + self.settings.page_size
        if self.ex.meter.counts:
            count_list(self.ex.meter, requester.origin(None), listed.entries[start:end], first=not start)
        entries = self._served_tasks.marked(listed.entries[start:end], ctx)
        page: JSONDict = {"tools": entries, "resultType": "complete"}
        if end < len(listed.entries):
            page["nextCursor"] = self._seal.make(end, listed.version, question)
        return page

    async def _first_tools(self) -> None:
        """Wait for the tools of backends that are still starting, where clients see the tools themselves.

        Many clients ask once and never again, and some call what they saw the last time. All that wait do so until the
        same moment, `direct_wait` seconds after the server has started.
        """
        starting = self._starting
        if self._dispatcher.exposed() in ("direct", "auto") and starting is not None and not starting.done():
            left = self._patient_until - asyncio.get_running_loop().time()
            if left > 0:
                await asyncio.wait([starting], timeout=left)


def _result_store(ex: Exec, settings: ServeSettings) -> ResultStore:
    kept = kept_results(ex.options.own_gate)
    if kept is None:
        return ResultStore() if settings.max_result_bytes is None else ResultStore(settings.max_result_bytes)
    if settings.max_result_bytes is not None:
        raise ConfigurationError(
            "max_result_bytes and the budget of the Exec's gate both say how long a result may be; give only one",
            details={"setting": "max_result_bytes"},
        )
    return kept
