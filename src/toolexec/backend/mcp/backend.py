"""Tools of an MCP server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from mcp import Client, MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import METHOD_NOT_FOUND, RootsListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolexec.backend.attempt import Attempt
from toolexec.backend.base import BackendStatus, ToolsListener
from toolexec.backend.catalog import AT_ONCE
from toolexec.backend.figures import CallFigures
from toolexec.backend.mcp.call_failures import failure_of, is_final, is_loss, lost, undelivered
from toolexec.backend.mcp.choosing import Chosen
from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.mcp.connection import MCPConnection, sandbox_of
from toolexec.backend.mcp.convert import convert_reply, convert_tools
from toolexec.backend.mcp.failures import describe_failure
from toolexec.backend.mcp.instances import Instances
from toolexec.backend.mcp.listing import Listing, read_listing
from toolexec.backend.mcp.offers import ask_offer, linked, may_offer, narrowed, read_offers
from toolexec.backend.mcp.plain_calls import is_traced
from toolexec.backend.mcp.relay import Relay
from toolexec.backend.mcp.sandbox import MakeServerSandbox
from toolexec.backend.mcp.tasks import call_as_task
from toolexec.backend.mcp.transport import Delivery, delivery
from toolexec.backend.offers import Offered, OfferEvent, OfferListener, Offers
from toolexec.backend.providers.caching import for_caller_only
from toolexec.backend.secrets.callers import known_caller
from toolexec.errors import (
    BackendDisabledError,
    BackendNotFoundError,
    ConfigurationError,
    ExecutionError,
    InputValidationError,
    ToolExecError,
    ToolTimeoutError,
    Violation,
)
from toolexec.model.binding import BindingKind, MCPBinding, MCPMethod
from toolexec.model.bound import Bound
from toolexec.model.call import Progress, ProgressCallback, ToolCall, note_login, tell
from toolexec.model.content import ToolReply
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONDict, JSONObject, NotJSONError, own_args
from toolexec.model.origin import Origin
from toolexec.model.tool import Tool
from toolexec.net.oauth.login import log_in
from toolexec.net.oauth.session import LoginStatus, OAuthSession

if TYPE_CHECKING:
    from toolexec.model.transform import Transforms

IDEMPOTENCY_KEY: Final = "toolexec/idempotency_key"
"""The key of a request's `_meta` that has the idempotency key of the call."""

logger: logging.Logger = logging.getLogger(__name__)
_UNKNOWN: Final = frozenset(("resources", "subscribe", "prompts", "completion"))


class _Send(Protocol):
    """Asks the server for one thing."""

    def __call__(self, *, client: Client) -> Awaitable[ToolReply]: ...


class MCPBackend:
    """Hosts the tools of one MCP server, in either protocol era, over stdio, streamable HTTP or SSE.

    It never fails to start: a server that cannot be reached leaves the backend unavailable, with the reason in its
    status, and is tried again within the server's restart budget. A server that dies is started again; calls that were
    under way fail with ConnectionLostError. When the server's tools change, so do the backend's.

    With the server's `isolation`, or a login of each caller, calls go to instances of it, of each session or caller;
    see `MCPServer`. Changes of single resources are not passed on then, as they may differ in each. *caller* is whose
    instance this is, where each has a login. *sandboxes* makes the sandbox of a server that has
    one; `Exec.add_mcp` and the files of settings give it, and without it such a server is refused: ConfigurationError.
    """

    kind: BindingKind = "mcp"

    def __init__(self, server: MCPServer, *, caller: str = "", sandboxes: MakeServerSandbox | None = None) -> None:
        self.server = server
        self.name: str = server.name
        self.enabled: bool = server.enabled
        self.relay: Relay = Relay(server.name, server.questions)
        self._chosen = Chosen(server)
        self._sandboxes = sandboxes
        if server.boxed is not None:
            sandbox_of(server, sandboxes)
        self._connection = MCPConnection(
            server, self._read_tools, self._take_event, self.relay, caller=caller, sandboxes=sandboxes
        )
        self._tools: dict[str, Tool] = {}
        self._skipped: dict[str, str] = {}
        self._listed = False
        self._listeners: list[ToolsListener] = []
        self._remote_names: dict[str, str] = {}
        self._task_tools: set[str] = set()
        self._figures = CallFigures()
        self._begun = self._shown = 0  # the readings of the tools, by number
        self._offers: Offers | None = None
        self._known_offers: Offers = Offers()
        self._offer_changes = 0
        self._transforms: Transforms | None = None
        self._reading = asyncio.Lock()
        self._offer_listeners: list[OfferListener] = []
        self._watched: Counter[str] = Counter()
        is_whole = server.apart != "shared" and not caller
        self._instances = Instances(server, self._instance) if is_whole else None

    def status(self) -> BackendStatus:
        """Return how the server is."""
        reason = self._connection.reason if self.enabled else "switched off"
        where: JSONDict = {"transport": self.server.transport if self.server.url else "stdio"}
        if self.server.boxed is not None:
            where["sandbox"] = self.server.boxed.engine
        return BackendStatus(
            name=self.name,
            kind="mcp",
            enabled=self.enabled,
            available=self.enabled and self._connection.state == "ready",
            reason=reason,
            tools=len(self._tools),
            skipped=self._skipped | {name: str(why) for name, why in self._known_offers.faults.items()},
            info=where | self._connection.info() | self._figures.info() | self._isolated(),
        )

    async def start(self) -> None:
        """Connect and list the tools; returns after the first attempt, also when it failed (see `status`)."""
        if self.enabled:
            await self._connection.start()

    async def aclose(self) -> None:
        """Close the connection, and all instances, and end the server's process with all that it started."""
        if self._instances is not None:
            await self._instances.aclose()
        await self._connection.aclose()

    def follow(self, before: object) -> None:
        """Answer what the server asks as *before* does, whose place this takes; to be called before the start, as a
        server learns then what it may ask."""
        if isinstance(before, MCPBackend):
            self.relay.active = before.relay.active

    def end_session(self, session: str) -> None:
        """Close the instances of a session that is over; see `KeepsSessions.end_session`."""
        if self._instances is not None:
            self._instances.end_session(session)

    def prepare_choice(self, server: MCPServer) -> Callable[[], None]:
        """Check the patterns of *server*, which is the one of now but for them, and return what has them hold.

        That is called on the event loop: what they leave out is gone at once, while the connection, all instances and
        calls go on; what they add is there after the next `refresh`. Raises ConfigurationError for patterns that cannot
        be used.
        """
        chosen = Chosen(server)

        def exchange() -> None:
            self.server, self._chosen = server, chosen
            self._keep_chosen()
            if self._listed:
                self._announce()
            self._known_offers = narrowed(self._known_offers, chosen)
            for instance in self._instances.backends() if self._instances is not None else ():
                instance.prepare_choice(replace(server, isolation="shared"))()
            self._take_event(OfferEvent("resources"))
            self._take_event(OfferEvent("prompts"))

        return exchange

    def _keep_chosen(self) -> None:
        takes = self._chosen.tools.takes
        self._tools = {name: tool for name, tool in self._tools.items() if takes(name)}

    def _instance(self, origin: Origin) -> MCPBackend:
        """Return one more connection to the server, for one session or caller."""
        caller = self._whose_login(origin)
        made = MCPBackend(replace(self.server, isolation="shared"), caller=caller, sandboxes=self._sandboxes)
        made.relay.active = self.relay.active
        if self._transforms is not None:  # what callers know of is what the main connection lists
            made.show_offers(self._transforms.apart())
        return made

    def _isolated(self) -> JSONDict:
        if self._instances is None:
            return {}
        logins: JSONDict = {"logins": "one per caller"} if self.server.logs_in_callers else {}
        return {"isolation": self.server.apart, "instances": len(self._instances)} | logins

    def _whose_login(self, origin: Origin) -> str:
        """Return the caller whose login calls of *origin* are made with; empty where all have the same. Raises
        PolicyError for a caller that is not known, where each has one."""
        return known_caller(f"MCP server {self.name}", origin.caller) if self.server.logs_in_callers else ""

    async def list_tools(self) -> Sequence[Tool]:
        """Return the server's tools as last read; connects first if that has not happened yet.

        Raises BackendUnavailableError when they were never read.
        """
        if not self._listed and self.enabled:
            await self._connection.client()
        return list(self._tools.values())

    def bind(self, tool: Tool) -> MCPBinding:
        """Return the binding of one of these tools, with the name that the server knows it by."""
        return MCPBinding(self.name, self._remote_names.get(tool.id, tool.name), self._connection.target.destination)

    def on_tools(self, listener: ToolsListener) -> Callable[[], None]:
        """Have *listener* called with all tools after each listing, and now if there was one; see `LiveBackend`."""
        self._listeners.append(listener)
        if self._listed:
            self._tell(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    async def call(self, name: str, call: ToolCall) -> ToolReply:
        """Call the server's tool; see `Backend.call`. Cancelling notifies the server."""
        return await self._answer(name, call, call.on_progress)

    async def refresh(self) -> BackendStatus:
        """List the server's tools again; see `RefreshableBackend.refresh`."""
        if self.enabled:
            try:
                await self._read_tools(await self._connection.client())
            except Exception as error:
                reason = describe_failure(self._connection.target, error)
                self._figures.last_error = error.message if isinstance(error, ToolExecError) else reason
                logger.warning("MCP server %s: cannot list its tools: %s", self.name, self._figures.last_error)
        return self.status()

    async def log_in(
        self,
        show: Callable[[str, str], Awaitable[object]],
        *,
        device: bool = False,
        scopes: Sequence[str] = (),
        caller: str = "",
    ) -> LoginStatus:
        """Log in to the server, and connect with that; see `LoginBackend.log_in`. Where each caller has a login, the
        one without a caller lists the tools, and no call is made with it."""
        if not caller:
            await self.start()
        login = await self.login_of(caller)
        await login.probe()
        status = await log_in(login, show, device=device, scopes=scopes)
        if caller:
            self._end_caller(caller)
            return status
        if self._instances is not None:
            await self._instances.close_all()  # the next ones use the login
        await self.refresh()
        return status

    def _end_caller(self, caller: str) -> None:
        if self._instances is not None:
            self._instances.end_caller(caller)

    async def log_out(self, *, caller: str = "") -> bool:
        """Forget the login to the server; see `LoginBackend.log_out`."""
        login = await self.login_of(caller)
        if caller:
            self._end_caller(caller)
        elif self._instances is not None:
            await self._instances.close_all()
        return await login.logout()

    async def login_of(self, caller: str) -> OAuthSession:
        """Return the login of *caller*, or the server's; see `LoginBackend.login_of`."""
        if caller and not self.server.logs_in_callers:
            why = 'has one login for all callers; set per = "caller" in its auth'
            raise ConfigurationError(f"MCP server {self.name} {why}")
        connection = self._connection
        login = await (connection.find_login_of(caller) if caller else connection.find_login())
        if login is None:
            why = "its headers have an Authorization" if self.server.url else "it is a command"
            raise ConfigurationError(f"MCP server {self.name} takes no login: {why}")
        return login

    async def _answer(self, name: str, call: ToolCall, on_progress: ProgressCallback | None) -> ToolReply:
        begun = time.perf_counter()
        try:
            reply = await self.reply(name, call, on_progress)
        except ToolExecError as error:
            self._figures.failed(error.message)
            raise
        self._figures.answered(begun)
        return reply

    async def reply(self, name: str, call: ToolCall, on_progress: ProgressCallback | None) -> ToolReply:
        """Return the reply of a call: made here, or by the instance for the one whose call it is; raises as `call`."""
        if self._instances is None or not self.enabled:
            with self.relay.during(call):
                return await self._ask(name, call, on_progress)
        login = self._whose_login(call.origin)
        with self._instances.used_by(call.origin) as instance:
            if login:
                note_login(call, login)
            if self._method(call) != "tools/call":
                await instance.offers()  # by which it says what the ID of a resource means there
            reply = await instance.reply(name, call, on_progress)
        return for_caller_only(reply) if login else reply

    async def _ask(self, name: str, call: ToolCall, on_progress: ProgressCallback | None) -> ToolReply:
        if not self.enabled:
            raise BackendDisabledError(f"MCP server {self.name} is switched off", backend=self.name)
        try:
            is_json = isinstance(call, Attempt) and call.is_json
            args = call.args or {} if is_json else own_args(call.args or {})
        except NotJSONError as error:  # it could not be sent, and the attempt would cost the connection
            raise InputValidationError(error.violations, tool_id=call.tool_id, op="validate_input") from None
        report = _progress_reporter(on_progress) if on_progress is not None else None
        meta = {IDEMPOTENCY_KEY: call.idempotency_key} if call.idempotency_key else None
        method = self._method(call)
        if method == "tools/call":
            if not self._chosen.tools.takes(name):
                message = f"the settings of MCP server {self.name} leave out its tool {name[:200]}"
                raise BackendNotFoundError(message, backend=self.name)
            send = partial(self._call_tool, name, args, report, meta)
        else:
            name = self._checked_offer(call, name, args)
            send = partial(ask_offer, backend=self.name, method=method, remote=name, args=args)
        client = await self._client(call)
        if self.relay.has_roots_of_another(call) and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await client.session.send_notification(RootsListChangedNotification())
        if not self.server.url:
            return await self._call(client, name, send)
        wire = self._connection.wire
        try:
            return await self._deliver(client, name, send)
        except _UndeliveredError:
            # The server was away, or has forgotten the session: it has certainly not acted on this call.
            await self._connection.report_lost(client, wire)
        try:
            return await self._deliver(await self._client(call), name, send)
        except _UndeliveredError as error:
            raise error.failure from error

    async def _deliver(self, client: Client, name: str, send: _Send) -> ToolReply:
        """Make the call over HTTP. Raises _UndeliveredError where the server has certainly not acted on it."""
        sent = Delivery()
        try:
            with Bound(delivery, sent):
                return await self._call(client, name, send)
        except ExecutionError as error:
            if not sent.refused:
                raise
            raise _UndeliveredError(undelivered(f"{self.name}:{name}", self.name, error, sent)) from error

    async def _client(self, call: ToolCall) -> Client:
        """Wait for the connection; a call that runs out of time meanwhile says that it never began."""
        call.waiting = f"a connection to the MCP server {self.name}"
        client = await self._connection.client()
        call.waiting = ""
        return client

    async def _call_tool(
        self, name: str, args: JSONObject, report: ProgressFnT | None, meta: Any, client: Client
    ) -> ToolReply:
        calls, version = self._connection.wire.calls, client.protocol_version
        is_plain = not self.server.url and report is None and version not in MODERN_PROTOCOL_VERSIONS
        if name in self._task_tools:
            reply = convert_reply(await call_as_task(client, name, dict(args), report, meta))
        elif is_plain and calls is not None and not is_traced():
            reply = await calls.call(name, args, meta, version)
        else:
            reply = convert_reply(await client.call_tool(name, dict(args), progress_callback=report, meta=meta))
        if client.server_capabilities.resources is None:
            return reply
        return replace(reply, content=[linked(part, self.name) for part in reply.content])

    async def _call(self, client: Client, name: str, send: _Send) -> ToolReply:
        wire = self._connection.wire
        try:
            return await send(client=client)
        except ToolExecError:
            raise
        except Exception as error:
            if not is_loss(error):
                failure = failure_of(name, error, self.server, self._connection)
                raise failure from error
            cause = error
        reason = await self._connection.report_lost(client, wire) if is_final(cause) else str(cause)
        raise lost(name, cause, self._connection.target.redact(reason), self.name, wire.too_long) from cause

    # -- resources and prompts ----------------------------------------------------------------------------------

    @property
    def may_offer(self) -> frozenset[str]:
        """What the server says that it has; see `OffersMore.may_offer`."""
        if not self.enabled:
            return frozenset()
        capabilities = self._connection.capabilities
        found = may_offer(capabilities) if capabilities is not None else _UNKNOWN
        return found if self._instances is None else found - {"subscribe"}

    @property
    def has_offers(self) -> bool:
        """Whether the server has said that it has resources or prompts."""
        capabilities = self._connection.capabilities
        return self.enabled and capabilities is not None and bool({"resources", "prompts"} & may_offer(capabilities))

    async def offers(self) -> Offers:
        """Return the server's resources and prompts, read now where they have changed or are not known.

        Raises BackendDisabledError, BackendUnavailableError, and ExecutionError for lists that cannot be read.
        """
        if not self.enabled:
            raise BackendDisabledError(f"MCP server {self.name} is switched off", backend=self.name)
        client = await self._connection.client()
        async with self._reading:
            if self._offers is not None:
                return self._offers
            changes = self._offer_changes
            self._known_offers = found = await self._read_offers(client)
            if changes == self._offer_changes:  # else it is read again the next time
                self._offers = found
            return found

    async def _read_offers(self, client: Client) -> Offers:
        seconds = self.server.connect_timeout
        try:
            async with asyncio.timeout(seconds):
                namespace, destination = self.server.namespace or self.name, self._connection.target.destination
                found = await read_offers(client, self.name, namespace, destination, self._chosen)
        except TimeoutError:
            message = f"MCP server {self.name} has not listed its resources and prompts within {seconds:g} s"
            raise ToolTimeoutError(message, backend=self.name) from None
        except Exception as error:
            raise failure_of("its lists", error, self.server, self._connection) from error
        if self._transforms is None:
            return found
        from toolexec.backend.shown_offers import shown_offers

        return shown_offers(found, self._transforms)

    def offered(self, offer_id: str) -> Offered | None:
        """Return the offer with this ID, of those that were read last."""
        return self._known_offers.find(offer_id)

    def show_offers(self, transforms: Transforms) -> None:
        """Have what the server offers be as *transforms* show it; see `OffersMore.show_offers`."""
        is_change = self._transforms is not None
        self._transforms = transforms
        if is_change:
            for instance in self._instances.backends() if self._instances is not None else ():
                instance.show_offers(transforms.apart())
            self._take_event(OfferEvent("resources"))
            self._take_event(OfferEvent("prompts"))

    def on_offers(self, listener: OfferListener) -> Callable[[], None]:
        """Have *listener* called with what has changed; see `OffersMore.on_offers`."""
        self._offer_listeners.append(listener)

        def stop() -> None:
            if listener in self._offer_listeners:
                self._offer_listeners.remove(listener)

        return stop

    async def watch(self, uri: str) -> None:
        """Subscribe to changes of the resource; raises BackendUnavailableError and ExecutionError, the latter also
        where each session or caller has an instance of the server."""
        if self._instances is not None:
            message = f"MCP server {self.name} has other resources for each {self.server.apart}; read {uri[:200]}"
            raise ExecutionError(f"{message} again instead of subscribing to it", backend=self.name)
        self._watched[uri] += 1
        if self._watched[uri] > 1:
            return
        try:
            await self._connection.subscribe(uri)
        except BaseException as error:
            self._forget_watch(uri)
            if not isinstance(error, Exception) or isinstance(error, ToolExecError):
                raise
            raise failure_of(uri[:200], error, self.server, self._connection) from error

    async def unwatch(self, uri: str) -> None:
        """End a subscription that `watch` began."""
        if self._watched[uri] > 0 and self._forget_watch(uri):
            await self._connection.unsubscribe(uri)

    def _forget_watch(self, uri: str) -> bool:
        self._watched[uri] -= 1
        if self._watched[uri] > 0:
            return False
        del self._watched[uri]
        return True

    def _take_event(self, event: OfferEvent) -> None:
        if event.kind != "updated":
            self._offers = None  # read again at the next question
            self._offer_changes += 1
        for listener in list(self._offer_listeners):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener to changes of MCP server %s failed", self.name)

    def _method(self, call: ToolCall) -> MCPMethod:
        binding = call.entry.binding if isinstance(call, Attempt) else None
        return binding.method if isinstance(binding, MCPBinding) else "tools/call"

    def _checked_offer(self, call: ToolCall, name: str, args: JSONObject) -> str:
        """Return what to ask the server for; what was decided on must be what is asked for, so that a rule about one
        resource is not passed by the ID of another one."""
        offered = self._known_offers.find(call.tool_id)
        if offered is None:
            raise BackendNotFoundError(f"MCP server {self.name} has no {call.tool_id} any more", backend=self.name)
        if offered.kind in ("resource", "template"):
            uri = args.get("uri")
            meant = self._known_offers.of_uri(uri) if isinstance(uri, str) else None
            if meant is None or meant.id != offered.id:
                found = Violation(path="/uri", keyword="const", message=f"it is not a URI of {call.tool_id}")
                raise InputValidationError((found,), tool_id=call.tool_id, op="validate_input")
            return str(uri)
        if offered.kind == "completion" and not self._known_offers.completes(args.get("ref")):
            message = f"{self.name} offers no such prompt or template"
            found = Violation(path="/ref", keyword="const", message=message)
            raise InputValidationError((found,), tool_id=call.tool_id, op="validate_input")
        return name

    async def stream(self, name: str, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Yield the server's progress, then the reply; see `StreamingBackend.stream`."""
        queue: asyncio.Queue[Progress | None] = asyncio.Queue()
        task = asyncio.ensure_future(self._answer(name, call, queue.put_nowait))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (progress := await queue.get()) is not None:
                yield StreamEvent(kind="progress", data=progress.to_dict())
            yield StreamEvent(kind="done", data=task.result())
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _read_tools(self, client: Client) -> None:
        self._begun += 1
        number = self._begun
        listing = await self._list(client)
        if self._chosen.tools.narrows:
            listing.tools = [tool for tool in listing.tools if self._chosen.tools.takes(tool.name)]
        convert = partial(convert_tools, listing.tools, self.server.namespace or self.name)
        tools, skipped = await asyncio.to_thread(convert) if len(listing.tools) > AT_ONCE else convert()
        if number < self._shown:
            return  # one that began later was there sooner
        self._shown = number
        self._skipped = skipped | self._connection.take_faults() | listing.faults
        self._tools = tools
        self._keep_chosen()  # other ones may have been chosen meanwhile
        self._remote_names = {tool.id: remote for remote, tool in tools.items()}
        self._task_tools = {
            tool.name for tool in listing.tools if tool.execution and tool.execution.task_support == "required"
        }
        for reason in list(self._skipped.items())[:20]:
            logger.warning("MCP server %s: left out %s: %s", self.name, *reason)
        self._listed = True
        self._announce()

    def _announce(self) -> None:
        for listener in list(self._listeners):
            self._tell(listener)

    def _tell(self, listener: ToolsListener) -> None:
        try:
            listener(list(self._tools.values()))
        except Exception:
            logger.exception("a tools listener of MCP server %s failed", self.name)

    async def _list(self, client: Client) -> Listing:
        try:
            return await read_listing(client)
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND and client.server_capabilities.tools is None:
                return Listing()  # a server of prompts or resources only
            raise


class _UndeliveredError(Exception):
    """The server has certainly not acted on a call; `failure` says so to the caller."""

    def __init__(self, failure: ExecutionError) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _progress_reporter(callback: ProgressCallback) -> ProgressFnT:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        tell(callback, Progress(done=progress, total=total, message=message or ""))

    return report
