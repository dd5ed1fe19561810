"""One more place where MCP is spoken, with callers and sessions of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.lowlevel import Server
from starlette.types import ASGIApp, Receive, Scope, Send

from toolexec.server.auth.live_keys import LiveKeys
from toolexec.server.auth.metadata import metadata_paths
from toolexec.server.auth.middleware import Authentication
from toolexec.server.http.bodies import BodyLimits
from toolexec.server.http.middleware import SeatClaims
from toolexec.server.http.replies import Refuse, is_stream, refuse
from toolexec.server.http.sessions import SessionRoom, Sessions
from toolexec.server.http.settings import HttpSettings
from toolexec.server.http.turns import Turns


class Endpoint:
    """Serves *lowlevel* at `http.path` for the callers of the endpoint *name*, from `start` until `aclose`. Its
    sessions have their place in *room*, with those of all endpoints, and its requests their *turns*.

    Raises what `Authentication` raises.
    """

    def __init__(
        self,
        name: str,
        lowlevel: Server[Any],
        http: HttpSettings,
        keys: LiveKeys,
        room: SessionRoom,
        turns: Turns,
        on_refusal: Refuse,
    ) -> None:
        self.name = name
        self._sessions = Sessions(lowlevel, http, room)
        inner: ASGIApp = BodyLimits(AuthContextMiddleware(self._served), http, turns, on_refusal=on_refusal)
        seated = SeatClaims(inner, on_refusal=on_refusal)
        closed = Authentication(seated, keys.auth, on_refusal=on_refusal, keys=keys, endpoint=name)
        self.authentication: Authentication = closed
        self.paths: Mapping[str, ASGIApp] = {http.path: closed, **metadata_paths(keys.auth, lowlevel.name, http.path)}
        keys.on_removed(self._end_sessions)
        self._keys = keys
        self._requests: dict[anyio.CancelScope, bool] = {}
        self._idle = asyncio.Event()
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to take requests, on the running event loop."""
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self, grace: float = 0.0) -> None:
        """Take no more requests and end all sessions: streams at once, everything else after *grace* seconds."""
        self._over.set()
        self._cancel(streams_only=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self._requests:
                    self._idle.clear()
                    await self._idle.wait()
        self._cancel(streams_only=False)
        if self._running is not None:
            await self._ready.wait()
            await self._sessions.end()
            self._running.cancel()
            await asyncio.wait([self._running, *self._ending])

    async def _run(self) -> None:
        async with self._sessions.running():
            self._ready.set()
            await self._keys.watch()

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._over.is_set():
            await refuse(send, 404, "this endpoint was closed", error="not_found")
            return
        await self._ready.wait()
        limit = anyio.CancelScope()
        self._requests[limit] = is_stream(scope)
        try:
            with limit:
                await self._sessions(scope, receive, send)
        finally:
            del self._requests[limit]
            if not self._requests:
                self._idle.set()

    def _cancel(self, *, streams_only: bool) -> None:
        for limit, stream in [*self._requests.items()]:
            if stream or not streams_only:
                limit.cancel()

    def _end_sessions(self, gone: frozenset[str]) -> None:
        ending = asyncio.get_running_loop().create_task(self._sessions.end_of("api_key", gone))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
