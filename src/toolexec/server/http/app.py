"""The server as one ASGI application."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from toolexec.model.origin import Caller
from toolexec.server.auth.credentials import CALLER
from toolexec.server.auth.metadata import WELL_KNOWN, metadata_address, metadata_app
from toolexec.server.auth.middleware import Authentication
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.health import Health
from toolexec.server.http.metrics import Metrics
from toolexec.server.http.middleware import BodyLimits, Guard, Requests
from toolexec.server.http.replies import header, peer_of, refuse, reply, reply_json, reply_text
from toolexec.server.http.settings import HttpSettings, check_exposure

__all__ = ["HttpApp", "build_app"]

logger: logging.Logger = logging.getLogger(__name__)
_HANDSHAKE = HANDSHAKE_PROTOCOL_VERSIONS[0]  # what a request that names no version belongs to


@dataclass(slots=True)
class _Session:
    """A session of the handshake era: whose it is, when it was last used, and how many requests it has now."""

    owner: str
    scope: Scope
    used: float
    requests: int = 0


class _Sessions:
    """The SDK's sessions, which can be counted, and of which no caller can take all: once there are as many as there
    may be, the caller with most gets no more, and loses the one that was least recently used to a caller with fewer.

    The SDK's manager is used as the ASGI application that it is: which sessions there are is read from its answers, and
    a session is ended by the request that its own client would end it with.
    """

    def __init__(self, lowlevel: Server[Any], http: HttpSettings) -> None:
        self._manager = StreamableHTTPSessionManager(
            lowlevel,
            json_response=http.json_response,
            session_idle_timeout=http.session_idle,
            max_request_body_size=http.max_body_bytes,
            max_sessions=http.max_sessions,
        )
        self._most = http.max_sessions
        self._idle = http.session_idle
        self._open: OrderedDict[str, _Session] = OrderedDict()  # the least recently used one first

    def running(self) -> AbstractAsyncContextManager[None]:
        """Sessions can be opened in the block; at its end all are closed."""
        return self._manager.run()

    def count(self) -> int:
        """Return how many sessions there are."""
        self._forget_idle()
        return len(self._open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of either era; only those of the handshake era have sessions."""
        if (header(scope, b"mcp-protocol-version") or _HANDSHAKE) not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._manager.asgi_app(scope, receive, send)
            return
        caller = scope.get(CALLER)
        owner = f"{caller.method}/{caller.tenant}/{caller.id}" if isinstance(caller, Caller) and caller.id else ""
        owner = owner or peer_of(scope)
        session_id = header(scope, b"mcp-session-id")
        if session_id is None and scope["method"] == "POST":
            await self._make_room(owner)

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(scope, owner, session_id, message)
            await send(message)

        session = self._open.get(session_id or "")
        if session is None or session.owner != owner or session_id is None:
            await self._manager.asgi_app(scope, receive, watch)
            return
        self._open.move_to_end(session_id)
        session.requests += 1
        try:
            await self._manager.asgi_app(scope, receive, watch)
        finally:
            session.requests -= 1
            session.used = monotonic()

    def _note(self, scope: Scope, owner: str, session_id: str | None, start: Message) -> None:
        """Keep a session that an answer opens, and forget one that it says is over."""
        status: int = start["status"]
        if session_id is None:
            opened = next((value for key, value in start.get("headers", ()) if key.lower() == b"mcp-session-id"), b"")
            if opened and status < 400:
                self._open[opened.decode("latin-1")] = _Session(owner, scope, monotonic())
        elif status == 404 or (status < 400 and scope["method"] == "DELETE"):
            session = self._open.get(session_id)
            if session is not None and session.owner == owner:  # another caller gets the same for one that goes on
                del self._open[session_id]

    def _forget_idle(self) -> None:
        """Forget sessions that were idle for so long that the SDK has closed them."""
        oldest = monotonic() - self._idle
        for session_id, session in [*self._open.items()]:
            if session.requests == 0 and session.used <= oldest:
                del self._open[session_id]

    async def _make_room(self, owner: str) -> None:
        if self.count() < self._most:
            return
        counts = Counter(session.owner for session in self._open.values())
        most, number = counts.most_common(1)[0]
        if counts[owner] + 1 >= number:
            return
        session_id = next(one for one, session in self._open.items() if session.owner == most)
        logger.warning("there are %d sessions; the oldest of %s, who has %d, gives way", len(self._open), most, number)
        await self._end(session_id, self._open.pop(session_id))

    async def _end(self, session_id: str, session: _Session) -> None:
        """End a session as its own client would."""
        headers = [(b"mcp-session-id", session_id.encode("latin-1")), (b"accept", b"application/json")]

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            """Drop the answer."""

        await self._manager.asgi_app({**session.scope, "method": "DELETE", "headers": headers}, receive, send)


class HttpApp:
    """An ASGI application that serves MCP; `build_app` makes it.

    It works within `async with app.running():`; a server that speaks ASGI's lifespan does that for it. It can run
    once. `drain` ends its requests when the server stops.
    """

    def __init__(
        self,
        lowlevel: Server[Any],
        http: HttpSettings,
        auth: AuthSettings,
        health: Health | None,
        metrics: Metrics | None,
    ) -> None:
        self._lowlevel = lowlevel
        self._http = http
        self._auth = auth
        self._health = health
        self._metrics = metrics
        self._sessions = _Sessions(lowlevel, http)
        if metrics is not None:
            metrics.watch_sessions(self._sessions.count)
        self._open = self._open_paths()
        inner: ASGIApp = BodyLimits(AuthContextMiddleware(self._for_callers()), http, on_refusal=self._rejected)
        self._closed: ASGIApp = Authentication(inner, auth, on_refusal=self._rejected)
        self._requests = Requests(Guard(self._route, http, auth, on_refusal=self._rejected), metrics)
        app: Any = self._requests
        if http.behind_proxy:
            app = ProxyHeadersMiddleware(app, trusted_hosts=[*http.trusted_proxies])
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or a server that asks to start and to stop."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Run the application for the block; at its end all sessions are closed."""
        async with self._sessions.running():
            yield

    async def drain(self, grace: float) -> None:
        """Take no more requests; end streams at once and everything else after *grace* seconds."""
        await self._requests.drain(grace)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self.drain(self._http.shutdown_grace)
        await send({"type": "lifespan.shutdown.complete"})

    def _rejected(self, reason: str) -> None:
        if self._metrics is not None:
            self._metrics.rejected(reason)

    def _open_paths(self) -> dict[str, ASGIApp]:
        """What everybody may ask for: that the server lives and is ready, and how to get a token."""
        paths: dict[str, ASGIApp] = {"/healthz": _get(self._healthz), "/readyz": _get(self._readyz)}
        if metadata_address(self._auth):
            metadata = _get(metadata_app(self._auth, self._lowlevel.name))
            paths |= {WELL_KNOWN: metadata, f"{WELL_KNOWN}{self._http.path}": metadata}
            own = metadata_address(self._auth).partition("/.well-known/")[2]
            paths[f"/.well-known/{own}"] = metadata
        return paths

    def _for_callers(self) -> ASGIApp:
        http = self._http
        paths: dict[str, ASGIApp] = {http.path: self._sessions}
        if self._health is not None:
            paths["/health"] = self._for_operators(_get(self._report))
        if self._metrics is not None:
            paths["/metrics"] = self._for_operators(_get(self._scrape))
        if http.sse:
            transport = SseServerTransport(http.messages_path, max_request_body_size=http.max_body_bytes)
            paths[http.sse_path] = _get(_SseStream(self._lowlevel, transport))
            paths[http.messages_path] = _SseMessages(transport)

        async def route(scope: Scope, receive: Receive, send: Send) -> None:
            app = paths.get(_path(scope))
            if app is None:
                await refuse(send, 404, f"there is nothing here; MCP is at {http.path}", error="not_found")
                return
            await app(scope, receive, send)

        return route

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._open.get(_path(scope), self._closed)
        await app(scope, receive, send)

    async def _healthz(self, scope: Scope, receive: Receive, send: Send) -> None:
        await reply_text(send, 200, "OK")

    async def _readyz(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = (await self._health.report()).status if self._health is not None else "ok"
        word = {"ok": "OK", "degraded": "DEGRADED", "failed": "UNAVAILABLE"}[status]
        await reply_text(send, 503 if status == "failed" else 200, word)

    async def _report(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._health is not None
        report = await self._health.report()
        await reply_json(send, 503 if report.status == "failed" else 200, report.to_dict())

    async def _scrape(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._metrics is not None
        await reply(send, 200, self._metrics.text(), [("content-type", self._metrics.content_type)])

    def _for_operators(self, app: ASGIApp) -> ASGIApp:
        roles = frozenset(self._http.operator_roles)

        async def check(scope: Scope, receive: Receive, send: Send) -> None:
            caller = scope.get(CALLER)
            if roles and not (isinstance(caller, Caller) and roles.intersection(caller.roles)):
                self._rejected("operators_only")
                await refuse(send, 403, "this is for operators; see operator_roles", error="forbidden")
                return
            await app(scope, receive, send)

        return check


class _SseStream:
    """The stream of the older transport: one connection, one conversation."""

    def __init__(self, lowlevel: Server[Any], transport: SseServerTransport) -> None:
        self._lowlevel = lowlevel
        self._transport = transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._transport.connect_sse(scope, receive, send) as (incoming, outgoing):
            await self._lowlevel.run(incoming, outgoing, self._lowlevel.create_initialization_options())


class _SseMessages:
    """Takes the messages of the older transport. An invalid one is answered here: the SDK would log it verbatim."""

    def __init__(self, transport: SseServerTransport) -> None:
        self._transport = transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            message = await receive()
            try:
                jsonrpc_message_adapter.validate_json(message.get("body", b""), by_name=False)
            except ValidationError:
                problem = {"code": -32700, "message": "Parse error: this is not JSON-RPC message"}
                await reply_json(send, 400, {"jsonrpc": "2.0", "id": None, "error": problem})
                return
            waiting = [message]
            original = receive

            async def receive_again() -> Any:
                return waiting.pop() if waiting else await original()

            receive = receive_again
        await self._transport.handle_post_message(scope, receive, send)


def _get(app: ASGIApp) -> ASGIApp:
    """*app* for GET and HEAD; everything else is refused."""

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await refuse(send, 405, "this can only be read", [("allow", "GET, HEAD")])
            return
        await app(scope, receive, send)

    return check


def _path(scope: Scope) -> str:
    path = cast("str", scope["path"])
    return path.rstrip("/") or "/"


def build_app(
    lowlevel: Server[Any],
    http: HttpSettings,
    auth: AuthSettings,
    *,
    health: Health | None = None,
    metrics: Metrics | None = None,
) -> HttpApp:
    """Return the ASGI application that serves *lowlevel* at `http.path`, for both eras of the protocol, with
    `/healthz`, `/readyz` and, with *health* and *metrics*, `/health` and `/metrics`.

    Every accepted request has its `Caller` in `scope["toolexec.caller"]`. Raises ConfigurationError for settings that
    would leave the server open (see `check_exposure`), and what `Authentication` raises.
    """
    check_exposure(http, auth)
    return HttpApp(lowlevel, http, auth, health, metrics)
