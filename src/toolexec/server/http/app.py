"""The server as one ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from toolexec.model.origin import Caller
from toolexec.run.context import ContextMeter
from toolexec.server.auth.credentials import CALLER, BadCredentialError
from toolexec.server.auth.live_keys import LiveKeys
from toolexec.server.auth.metadata import WELL_KNOWN, metadata_paths
from toolexec.server.auth.middleware import Authentication
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.auth.sign_in import SignIn
from toolexec.server.http.bodies import BodyLimits
from toolexec.server.http.endpoint import Endpoint
from toolexec.server.http.health import Health
from toolexec.server.http.metrics import Metrics
from toolexec.server.http.middleware import Guard, Requests, SeatClaims
from toolexec.server.http.replies import get_only, refuse, reply, reply_json, reply_text
from toolexec.server.http.sessions import SessionRoom, Sessions
from toolexec.server.http.settings import HttpSettings, check_exposure
from toolexec.server.http.turns import Turns
from toolexec.server.logins.links import LOGIN_PATH, LoginLinks
from toolexec.server.logins.page import LoginPage

logger: logging.Logger = logging.getLogger(__name__)


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
        keys: LiveKeys | None = None,
        meter: ContextMeter | None = None,
        logins: LoginLinks | None = None,
    ) -> None:
        self.logins = logins
        self._page: LoginPage | None = None
        if logins is not None:
            self._page = LoginPage(logins, self._prove, http.body_timeout, self._sign_in)
        self._lowlevel = lowlevel
        self._http = http
        self._auth = auth
        self._health = health
        self._metrics = metrics
        self._meter = meter
        self._room = SessionRoom(http)
        self._turns = Turns()
        self._sessions = Sessions(lowlevel, http, self._room)
        self._beside: dict[str, Endpoint] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        keys = keys if keys is not None else LiveKeys(auth)
        keys.on_removed(self._end_sessions)
        self._keys = keys
        if metrics is not None:
            metrics.watch_sessions(self._room.count)
        self._open = self._open_paths()
        self._apps: dict[str, ASGIApp] = {**self._open}
        inner: ASGIApp = BodyLimits(
            AuthContextMiddleware(self._for_callers()), http, self._turns, on_refusal=self._rejected
        )
        seated = SeatClaims(inner, on_refusal=self._rejected)
        self._closed: Authentication = Authentication(seated, auth, on_refusal=self._rejected, keys=keys)
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
            watching = asyncio.create_task(self._keys.watch())
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.wait([watching])
                closing = [each.aclose() for each in self._beside.values()]
                await asyncio.gather(*closing, *self._closing, return_exceptions=True)

    def make_endpoint(self, name: str, lowlevel: Server[Any], http: HttpSettings, keys: LiveKeys) -> Endpoint:
        """Return a place for *lowlevel* at `http.path`, for the callers that `keys.auth` and *keys* let in, as the
        endpoint *name*; nothing is served there yet.

        Raises ConfigurationError for settings that would leave it open, and what `Authentication` raises.
        """
        check_exposure(http, keys.auth)
        return Endpoint(name, lowlevel, http, keys, self._room, self._turns, self._rejected)

    def open_endpoint(self, endpoint: Endpoint) -> None:
        """Serve an endpoint, on the event loop that this runs on."""
        endpoint.start()
        self._beside[endpoint.name] = endpoint
        self._place()

    def close_endpoint(self, name: str) -> asyncio.Task[None]:
        """Serve the endpoint *name* no more: its streams end, its other requests within `shutdown_grace`, and then its
        sessions. Returns what waits for that."""
        endpoint = self._beside.pop(name)
        self._place()
        closing = asyncio.get_running_loop().create_task(endpoint.aclose(self._http.shutdown_grace))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    def _place(self) -> None:
        self._apps = {**self._open}
        for endpoint in self._beside.values():
            self._apps |= endpoint.paths

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

    def _end_sessions(self, gone: frozenset[str]) -> None:
        ending = asyncio.get_running_loop().create_task(self._sessions.end_of("api_key", gone))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _rejected(self, reason: str) -> None:
        if self._metrics is not None:
            self._metrics.rejected(reason)

    def _open_paths(self) -> dict[str, ASGIApp]:
        """Return what everybody may ask for: that the server lives and is ready, and how to get a token."""
        paths: dict[str, ASGIApp] = {"/healthz": get_only(self._healthz), "/readyz": get_only(self._readyz)}
        if metadata := metadata_paths(self._auth, self._lowlevel.name, self._http.path):
            paths |= {WELL_KNOWN: metadata[f"{WELL_KNOWN}{self._http.path}"], **metadata}
        return paths

    def _for_callers(self) -> ASGIApp:
        http = self._http
        paths: dict[str, ASGIApp] = {http.path: self._sessions}
        if self._health is not None:
            paths["/health"] = self._for_operators(get_only(self._report))
        if self._metrics is not None:
            paths["/metrics"] = self._for_operators(get_only(self._scrape))
        if self._meter is not None:
            paths["/context"] = self._for_operators(get_only(self._context))
        if http.sse:
            transport = SseServerTransport(http.messages_path, max_request_body_size=http.max_body_bytes)
            paths[http.sse_path] = get_only(_SseStream(self._lowlevel, transport))
            paths[http.messages_path] = _SseMessages(transport)

        async def route(scope: Scope, receive: Receive, send: Send) -> None:
            app = paths.get(_path(scope))
            if app is None:
                await refuse(send, 404, f"there is nothing here; MCP is at {http.path}", error="not_found")
                return
            await app(scope, receive, send)

        return route

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = self._page if scope["path"].startswith(LOGIN_PATH) else None
        app = page or self._apps.get(_path(scope), self._closed)
        await app(scope, receive, send)

    async def _prove(self, endpoint: str, peer: str, credential: str) -> Caller:
        """Return whose a key or token of an endpoint is; see `Authentication.prove`."""
        if not endpoint:
            return await self._closed.prove(peer, credential)
        if endpoint not in self._beside:
            raise BadCredentialError("the endpoint of that caller is closed")
        return await self._beside[endpoint].authentication.prove(peer, credential)

    def _sign_in(self, endpoint: str) -> SignIn | None:
        """Return where the callers of an endpoint sign in, if they do."""
        if not endpoint:
            return self._closed.sign_in
        return self._beside[endpoint].authentication.sign_in if endpoint in self._beside else None

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

    async def _context(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._meter is not None
        await reply_json(send, 200, self._meter.report())

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
    keys: LiveKeys | None = None,
    meter: ContextMeter | None = None,
    logins: LoginLinks | None = None,
) -> HttpApp:
    """Return the ASGI application that serves *lowlevel* at `http.path`, for both eras of the protocol, with
    `/healthz`, `/readyz` and, with *health*, *metrics* and *meter*, `/health`, `/metrics` and `/context`.

    Every accepted request has its `Caller` in `scope["toolexec.caller"]`. *keys* are the API keys of *auth*, for one
    who may replace them while the server runs. *logins* are those that callers make themselves, below
    `/login/`. Raises ConfigurationError for settings that would leave the
    server open (see `check_exposure`), and what `Authentication` raises.
    """
    check_exposure(http, auth)
    return HttpApp(lowlevel, http, auth, health, metrics, keys, meter, logins)
