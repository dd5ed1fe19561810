"""Serving over HTTP until it is time to stop."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol, runtime_checkable

import anyio
import uvicorn
from mcp.server.lowlevel import Server

from toolexec.errors import ConfigurationError
from toolexec.net.hosts import origin_of
from toolexec.run.context import ContextMeter
from toolexec.server.auth.live_keys import LiveKeys
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.accepting import Accepting
from toolexec.server.http.app import HttpApp, build_app
from toolexec.server.http.connections import connections
from toolexec.server.http.health import Health
from toolexec.server.http.metrics import Metrics
from toolexec.server.http.replies import is_loopback
from toolexec.server.http.seats import STATE, Seat, Seats
from toolexec.server.http.settings import HttpSettings
from toolexec.server.logins.links import LoginLinks
from toolexec.server.pauses import watch_loop
from toolexec.server.short_steps import short_steps

_FARTHER = 1.0
_DATE_SECONDS = 1.0


@runtime_checkable
class TakesKeys(Protocol):
    """A server whose calls depend on what its callers may do at that moment, such as a `ToolServer`."""

    def take_keys(self, keys: LiveKeys) -> None:
        """Have calls of callers whom *keys* let in be made."""
        ...


@runtime_checkable
class HasLowlevel(Protocol):
    """What has a server of the MCP SDK inside, such as a `ToolServer`."""

    @property
    def lowlevel(self) -> Server[Any]:
        """The server itself."""
        ...


class _Listener(uvicorn.Server):
    """Uvicorn without what belongs to its caller: signals, and ending the process."""

    def __init__(self, config: uvicorn.Config, http: HttpSettings, seats: Seats) -> None:
        super().__init__(config)
        self._http = http
        self._seats = seats
        self.listening = asyncio.Event()
        self._stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def stop(self) -> None:
        """Have `serve` end."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Have the header with the date be set each second until it is time to stop; uvicorn looks ten times as
        often whether it is."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._stopping.wait()

    async def startup(self, sockets: Any = None) -> None:
        config, http = self.config, self._http
        try:
            bound = await asyncio.get_running_loop().create_server(
                asyncio.Protocol, host=config.host, port=config.port, start_serving=False
            )
            try:
                accepting = Accepting(
                    tuple(bound.sockets), self._seats, self._make, tls=config.ssl, handshake_timeout=http.header_timeout
                )
            finally:
                bound.close()
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {http.host} port {http.port}: {_reason(error)}; choose another one, or stop "
                "what uses it"
            ) from error
        self.servers = [accepting]  # pyright: ignore[reportAttributeAccessIssue]
        self.started = True
        self.listening.set()

    def _make(self, seat: Seat | None) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        state = {STATE: seat} if seat is not None else {}
        return make(config=self.config, server_state=self.server_state, app_state=state)

    @property
    def port(self) -> int:
        return int(self.servers[0].sockets[0].getsockname()[1])


async def serve_http(
    server: HasLowlevel | Server[Any],
    http: HttpSettings,
    auth: AuthSettings,
    *,
    health: Health | None = None,
    metrics: Metrics | None = None,
    keys: LiveKeys | None = None,
    meter: ContextMeter | None = None,
    logins: LoginLinks | None = None,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    running: Callable[[HttpApp], None] | None = None,
) -> None:
    """Serve MCP over HTTP until *stop* is set, or this is cancelled; signals are the caller's business.

    *keys* are the API keys of *auth*, for one who may replace them meanwhile. *health*, *metrics* and *meter* are what
    operators see at `/health`, `/metrics` and `/context`. *logins* are those that callers make themselves, at a page:
    `ToolServer.logins`; a server that only this machine can reach needs no `resource_url` for that.

    *running* gets the application once it runs, before any client reaches it: for more endpoints of it.
    *ready* gets the address once clients can connect (with the real port, where `port` is 0). At the end, streams are
    closed and calls may take `http.shutdown_grace` seconds more.

    Raises ConfigurationError for settings that would leave the server open, an address that cannot be listened on and
    certificates that cannot be used.
    """
    lowlevel = server.lowlevel if isinstance(server, HasLowlevel) else server
    if keys is None and isinstance(server, TakesKeys):  # else who gave them has told the gate of them
        keys = LiveKeys(auth)
        server.take_keys(keys)
    app = build_app(lowlevel, http, auth, health=health, metrics=metrics, keys=keys, meter=meter, logins=logins)
    listener = _Listener(_config(app, http, metrics), http, Seats(http.max_connections, proven=auth.on))
    failure: Exception | None = None
    ends: tuple[BaseException | None, ...] = ()
    async with _collecting(), _watched(metrics), app.running():  # what is raised in it would come out as a group
        serving = asyncio.create_task(listener.serve())
        try:
            if running is not None:
                running(app)
            await _first(serving, listener.listening)
            if logins is not None and not logins.base and is_loopback(http.host) and not serving.done():
                logins.base = origin_of(_address(http, listener.port))
            if ready is not None and not serving.done():
                ready(_address(http, listener.port))
            await _first(serving, stop)
        except Exception as error:
            failure = error
        finally:
            listener.stop()
            with anyio.CancelScope(shield=True):
                ends = await asyncio.gather(app.drain(http.shutdown_grace), serving, return_exceptions=True)
        failure = failure or next((end for end in ends if isinstance(end, Exception)), None)
    if failure is not None:
        raise failure


def _watched(metrics: Metrics | None) -> AbstractAsyncContextManager[None]:
    return watch_loop(metrics.paused if metrics is not None else _unobserved)


@asynccontextmanager
async def _collecting() -> AsyncGenerator[None, None]:
    with short_steps():
        yield


def _unobserved(_: float) -> None:
    """Do not count a pause: it is still logged."""


async def _first(serving: asyncio.Task[None], event: asyncio.Event | None) -> None:
    """Wait for the event, or for the listener to end by itself."""
    if event is None:
        await asyncio.wait([serving])
        return
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


def _config(app: HttpApp, http: HttpSettings, metrics: Metrics | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        host=http.host.strip("[]"),
        port=http.port,
        http=connections(http, metrics.rejected if metrics is not None else _nobody),
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=http.keep_alive,  # pyright: ignore[reportArgumentType] - a number of seconds
        timeout_graceful_shutdown=http.shutdown_grace + _FARTHER,  # pyright: ignore[reportArgumentType]
        ssl_certfile=http.tls_cert or None,
        ssl_keyfile=http.tls_key or None,
        h11_max_incomplete_event_size=http.max_header_bytes,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"tls_cert or tls_key cannot be used: {error}") from error
    return config


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno and not isinstance(error, socket.gaierror) else str(error)


def _nobody(_: str) -> None:
    """Do not count a refusal."""


def _address(http: HttpSettings, port: int) -> str:
    host = http.host.strip("[]")
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if http.tls_cert else "http"
    return f"{scheme}://{shown}:{port}{http.path}"
