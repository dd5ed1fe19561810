"""Serving sandboxes until it is time to stop: listening, TLS, and the end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import ssl
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import monotonic, time
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.remote import Runtime, RuntimeServerSettings
from toolexec_remote.homes import home_of
from toolexec_remote.server.app import RuntimeApp
from toolexec_remote.server.capacity import Capacity
from toolexec_remote.server.doors import Doors
from toolexec_remote.server.former import take_over
from toolexec_remote.server.gateway import Gateways
from toolexec_remote.server.member import Member
from toolexec_remote.server.metrics import RemoteMetrics
from toolexec_remote.server.runs import RunService
from toolexec_remote.signature import KeyRing, ReplayCache

logger: logging.Logger = logging.getLogger(__name__)
_TIDY_SECONDS: Final = 30.0
_SWEEP_SECONDS: Final = 1.0
_KEEP_ALIVE: Final = 75.0
_MAX_HEADER_BYTES: Final = 16 << 10
_BACKLOG: Final = 1024
_FIRST_NEEDED: Final = ("opentelemetry.trace.propagation.tracecontext", "pydantic_core")


async def serve_runtime(
    runtime: Runtime,
    settings: RuntimeServerSettings,
    state_directory: Path,
    *,
    ring: KeyRing | None = None,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    member: Member | None = None,
) -> None:
    """Serve the sandboxes of *runtime*, which stays the caller's, until *stop* is set; signals are the caller's affair.

    *state_directory* is where the journal is, unless the settings name another place. *ring* has the keys in place of
    those in the settings, and may be changed meanwhile. *ready* gets the endpoint once clients can connect. At the end
    no more runs are taken, those that have not started are given back, and those that run may end within `drain_grace`;
    cancelling ends it without that. *member* says which one of several processes behind one port this is; only
    `toolexec runtime serve` starts several.

    Raises ConfigurationError for an address that cannot be listened on, certificates or keys that cannot be used, a
    state directory that another server has, or where another number of processes has written what cannot be read, and
    more than one of `processes`.
    """
    if settings.processes > 1:
        raise ConfigurationError("serve_runtime serves in one process; `toolexec runtime serve` starts several")
    context = tls_context(settings)
    ring = ring or KeyRing(settings.keys, skew=settings.skew)
    gateways = Gateways(settings.gateway_hosts, allow_private=settings.gateway_private)
    place = Path(settings.state_directory or state_directory)
    service = RunService(runtime, settings, RemoteMetrics(), place)
    service.shares.tenants = lambda: ring.tenants
    app = RuntimeApp(service, ring, ReplayCache(), Capacity(service), gateways, member)
    runner = web.AppRunner(
        app.made(),
        handle_signals=False,
        access_log=None,
        logger=_HttpLogger(service.metrics),
        handler_cancellation=True,
        max_line_size=_MAX_HEADER_BYTES,
        max_field_size=_MAX_HEADER_BYTES,
        keepalive_timeout=_KEEP_ALIVE,
        shutdown_timeout=5.0,
    )
    tidying: list[asyncio.Task[None]] = []
    listening: list[asyncio.Server] = []
    try:
        number, count = (member.number, member.count) if member is not None else (1, 1)
        take_over(service.journal, place, lambda run: home_of(run, count) == number, is_part=member is not None)
        await runner.setup()
        assert runner.server is not None
        doors = Doors(
            runner.server, service.shares, service.metrics, tls=context, patience=settings.header_timeout, member=member
        )
        app.doors = doors
        service.building = True
        works = (_tidy(service), _move_log(service), _sweep(doors, service), _build(service, member))
        _load()
        tidying = [asyncio.create_task(work) for work in works]
        listening = await _listen(doors, settings, member)
        if member is not None:
            kinds = ", ".join(backend.kind for backend in runtime.backends)
            member.report(incarnation=service.incarnation.id, endpoint=_endpoint(settings, listening[0]), kinds=kinds)
        if ready is not None:
            ready(_endpoint(settings, listening[0]))
        await (stop or asyncio.Event()).wait()
        logger.info("draining: %d runs are under way", len(service.active()))
        if member is not None:
            member.report(ready=False)
            if not member.is_ending:  # the others go on, and take what comes
                for each in listening[:-1]:
                    each.close()
        app.hub.push_soon()
        await service.drain()
        await app.hub.aclose()
    finally:
        for task in tidying:
            task.cancel()
        await _stop_all(service)
        for each in listening:
            each.close()
        await app.hub.aclose(linger=0)  # nothing is left where it was drained
        await runner.cleanup()
        await gateways.aclose()
        service.close()


def _load() -> None:
    """Load what the first run needs before one can come: no client would be answered meanwhile, for tenths of a
    second, and a server that comes to others under load gets many at once."""
    for name in _FIRST_NEEDED:
        with contextlib.suppress(ModuleNotFoundError):  # they are extras
            import_module(name)


async def _listen(doors: Doors, settings: RuntimeServerSettings, member: Member | None) -> list[asyncio.Server]:
    loop = asyncio.get_running_loop()
    if member is not None:
        member.path.unlink(missing_ok=True)  # of the process that was here before
        shared = [await loop.create_server(doors, sock=each, backlog=_BACKLOG) for each in member.sockets]
        return [*shared, await loop.create_unix_server(doors.inner, member.path, backlog=_BACKLOG)]
    try:
        return [await loop.create_server(doors, settings.host, settings.port, backlog=_BACKLOG)]
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}; choose another one, or "
            "stop what uses it"
        ) from error


class _HttpLogger(logging.Logger):
    """What the server of HTTP writes down. What is not HTTP is counted and not written down, so that no stranger fills
    a disk; all else goes where it would go."""

    def __init__(self, metrics: RemoteMetrics) -> None:
        super().__init__(f"{__name__}.http")
        self.parent = logger
        self._metrics = metrics

    def handle(self, record: logging.LogRecord) -> None:
        """Implement `logging.Logger.handle`."""
        if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
            self._metrics.cut("malformed")
        else:
            super().handle(record)


async def _stop_all(service: RunService) -> None:
    """Cancel what still runs: there is something only when the server was not drained."""
    tasks = [run.task for run in service.active() if run.task is not None]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _build(service: RunService, member: Member | None) -> None:
    """Have the sandboxes made that are made at their first use, so that the first run is like any other one."""
    try:
        for backend in service.runtime.backends:
            start = getattr(backend, "start_workers", None) or getattr(backend, "start", None)
            if start is None:
                continue
            try:
                await start()
            except ToolExecError as error:  # the capacity says so, too, and others may be there
                logger.warning("the sandbox %s cannot be built: %s", backend.kind, error)
    finally:
        service.building = False
    if member is not None:
        member.report(ready=any([(await backend.check()).ok for backend in service.runtime.backends]))


async def _tidy(service: RunService) -> None:
    while True:
        await asyncio.sleep(_TIDY_SECONDS)
        service.tidy()
        with contextlib.suppress(Exception):  # a full disk, for example, which comes up when a run is to start
            service.journal.prune(time())


async def _move_log(service: RunService) -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        try:
            await service.journal.move_log()
        except (OSError, sqlite3.Error) as error:  # a full disk, say; the log goes on growing, and nothing is lost
            logger.warning("the log of what was started cannot be moved into its database yet: %s", error)


async def _sweep(doors: Doors, service: RunService) -> None:
    """Cut connections that take too long, and take back places that are not used."""
    pause = min(_SWEEP_SECONDS, doors.patience, service.settings.slot_idle)
    while True:
        doors.sweep(monotonic())
        service.take_back(monotonic())
        await asyncio.sleep(pause)


def tls_context(settings: RuntimeServerSettings) -> ssl.SSLContext | None:
    """Return the TLS of a server; None without a certificate. Raises ConfigurationError for unusable files."""
    if not settings.tls_cert:
        return None
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=settings.client_ca or None)
        context.load_cert_chain(settings.tls_cert, settings.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"tls_cert, tls_key or client_ca cannot be used: {error}") from error
    if settings.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _endpoint(settings: RuntimeServerSettings, listening: asyncio.Server) -> str:
    port = listening.sockets[0].getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls_cert else 'http'}://{host}:{port}{settings.path}"
