"""`toolexec serve`: one MCP server over every tool that is configured."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias

import typer

from toolexec.cli.exit_codes import INTERRUPTED, NOT_RUN, OK, TERMINATED, exit_code
from toolexec.cli.options import Config
from toolexec.errors import ConfigurationError, ToolExecError

if TYPE_CHECKING:
    from toolexec.cli.terminal import Screen
    from toolexec.config.build import Built
    from toolexec.config.loaded import LoadedConfig
    from toolexec.config.reload import Reload
    from toolexec.model.json_value import JSONDict
    from toolexec.server.app import ToolServer
    from toolexec.server.settings import ServeSettings

FLAGS: Final[Mapping[str, str]] = {
    "transport": "server.transport",
    "host": "server.host",
    "port": "server.port",
    "path": "server.path",
    "expose": "server.expose",
    "toolset": "server.toolsets",
    "profile": "code.profile",
    "behind_proxy": "http.behind_proxy",
    "tls_cert": "http.tls_cert",
    "tls_key": "http.tls_key",
    "log_level": "server.log_level",
}
"""Which setting each option of the command is for. The options' help is that of the settings."""

_CLOSED: Final = "closed"  # what the status of a backend says once the server has ended
_PATIENCE: Final = 1.0
LoadAgain: TypeAlias = "Callable[[], LoadedConfig]"
_LOGGERS: Final = ("toolexec", "mcp", "uvicorn")

Transport = Annotated[
    Literal["stdio", "http", "sse"] | None,
    typer.Option(
        "--transport", "-t", help="How clients connect; sse adds the older HTTP transport.", show_default="stdio"
    ),
]
Host = Annotated[
    str | None,
    typer.Option(help="Listen address; a public one needs auth, and TLS or behind_proxy.", show_default="127.0.0.1"),
]
Port = Annotated[
    int | None,
    typer.Option("--port", "-p", help="Listen port; 0 picks a free one.", show_default="8080"),
]
MCPPath = Annotated[str | None, typer.Option("--path", help="The path of the MCP endpoint.", show_default="/mcp")]
Expose = Annotated[
    Literal["auto", "meta", "direct", "code"] | None,
    typer.Option(
        help="What clients see: meta-tools, the tools themselves, code only, or (auto) the cheapest.",
        show_default="auto",
    ),
]
Toolset = Annotated[
    list[str] | None,
    typer.Option(
        "--toolset",
        metavar="NAME",
        help="Toolsets offered to clients, combined; empty: every tool.",
    ),
]
Profile = Annotated[
    Literal["dev", "standard", "hardened", "wasm"] | None,
    typer.Option(help="Default security profile of code.", show_default="standard"),
]
BehindProxy = Annotated[
    bool | None, typer.Option("--behind-proxy/--no-behind-proxy", help="A proxy in front terminates TLS.")
]
TlsCert = Annotated[str | None, typer.Option(metavar="FILE", help="Certificate file, PEM.")]
TlsKey = Annotated[
    str | None, typer.Option(metavar="FILE", help="Key file, PEM; empty: it is in the certificate file.")
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    typer.Option(help="Log level on stderr.", show_default="warning"),
]
Replay = Annotated[
    Path | None,
    typer.Option(
        "--replay", metavar="FILE", help="Serve the tools of this cassette from its recordings, without any backend."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting: --set limits.call_timeout=5. May be repeated."),
]


def serve(
    context: typer.Context,
    transport: Transport = None,
    host: Host = None,
    port: Port = None,
    path: MCPPath = None,
    expose: Expose = None,
    toolset: Toolset = None,
    profile: Profile = None,
    behind_proxy: BehindProxy = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    log_level: LogLevel = None,
    replay: Replay = None,
    settings: Set = None,
    config: Config = None,
) -> None:
    """Serve all tools as one MCP server, for agents and IDEs.

    Clients get a few tools to find, read and run the others. Every call passes one gate: the policy (destructive tools
    of remote servers need approval), pins, limits and the audit log. toolexec client-config prints what a client needs.
    """
    given = {
        "transport": transport,
        "host": host,
        "port": port,
        "path": path,
        "expose": expose,
        "toolset": toolset or None,
        "profile": profile,
        "behind_proxy": behind_proxy,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "log_level": log_level,
    }
    shared, _ = context.obj
    raise typer.Exit(_run((*shared, *(config or ())), given, settings or [], replay))


def _run(files: tuple[Path, ...], given: Mapping[str, object], settings: list[str], replay: Path | None) -> int:
    """Serve until it is over, and give the exit code; all that is said goes to stderr."""
    from toolexec.cli.terminal import Screen

    screen = Screen(sys.stderr)
    try:
        loaded = load_for_serving(files, given, settings, screen, tools_needed=replay is None)
        with ExitStack() as stack:
            stack.enter_context(logged(loaded.settings.server.log_level))
            again = partial(_load_again, loaded.files, given, settings, replay)
            if replay is not None:
                loaded = without_sources(loaded)
            return _serve(loaded, screen, stack, again, replay)
    except ToolExecError as error:
        screen.error(error)
        return exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return NOT_RUN
    except Exception as error:
        return screen.crash(error)


def load_for_serving(
    files: tuple[Path, ...],
    given: Mapping[str, object],
    settings: list[str],
    screen: Screen | None = None,
    *,
    tools_needed: bool = True,
) -> LoadedConfig:
    """Return what a server is set up with: files, environment, *given* options by name, and `--set` words.

    Raises as `load_settings` does, and ConfigurationError when there are no tools anywhere, but are needed.
    """
    from toolexec.cli.sources import Sources, find_sources
    from toolexec.config.load import load_settings

    flags, names = _flags(given, settings)
    missing: ConfigurationError | None = None
    try:
        sources = find_sources(files)
    except ConfigurationError as error:  # then the environment may name some
        sources, missing = Sources(()), error
    if sources.implied and screen is not None:
        screen.note(f"using {sources.files[0]} (override with -c)")
    loaded = load_settings(sources.files, environment=os.environ, flags=flags, flag_names=names, serving=True)
    if tools_needed and missing is not None and not (loaded.servers or loaded.providers or loaded.python):
        raise missing
    return loaded


def _flags(given: Mapping[str, object], settings: list[str]) -> tuple[JSONDict, dict[str, str]]:
    """Return what options and `--set` words set, and what was typed for each."""
    from toolexec.config.load import parse_set

    flags: JSONDict = {each.path: each.text for each in parse_set(settings)}
    names = {path: f"--set {path}" for path in flags}
    for option, value in given.items():
        if value is not None:
            flags[FLAGS[option]] = value
            names[FLAGS[option]] = f"--{option.replace('_', '-')}"
    return flags, names


def _load_again(
    files: tuple[Path, ...], given: Mapping[str, object], settings: list[str], replay: Path | None
) -> LoadedConfig:
    loaded = load_for_serving(files, given, settings, tools_needed=replay is None)
    return without_sources(loaded) if replay is not None else loaded


def without_sources(loaded: LoadedConfig) -> LoadedConfig:
    """Return the same settings with no servers, providers and Python files: a cassette takes their place."""
    return replace(loaded, servers=(), server_origins={}, providers={}, python=())


def _serve(loaded: LoadedConfig, screen: Screen, stack: ExitStack, again: LoadAgain, replay: Path | None) -> int:
    import_module("toolexec.server.app")  # names the extra, where the server's dependencies are missing
    if _offer(loaded).transport == "stdio":
        gc.set_threshold(50_000)  # see `main`: what serves for long has garbage, too; over HTTP see `short_steps`
        from toolexec.server.stdio import stdio_wire

        wire = stack.enter_context(stdio_wire())  # before any Python file of the user is run
        built = _build(loaded, stack, replay)
        return asyncio.run(_until_signal(_over_stdio(built, wire, screen, again)))
    from toolexec.cli.terminal import only_results_on_stdout
    from toolexec.server.http import Metrics

    stack.enter_context(only_results_on_stdout())
    metrics = Metrics()
    built = _build(loaded, stack, replay, metrics)
    return asyncio.run(_until_signal(_over_http(built, metrics, screen, again)))


def _offer(loaded: LoadedConfig) -> ServeSettings:
    """Return what [server] says."""
    from toolexec.config.declared import read
    from toolexec.server.settings import ServeSettings

    return read(ServeSettings, loaded.settings.server)


def _build(loaded: LoadedConfig, stack: ExitStack, replay: Path | None, metrics: Any = None) -> Built:
    from toolexec.cli.approval_prompt import terminal_approver
    from toolexec.config.build import build

    built = build(loaded, serving=True, terminal=terminal_approver, trace=metrics)
    stack.callback(built.close)
    if replay is not None:
        from toolexec.cassette.cassette import Cassette

        built.ex.reconfigure(cassette=Cassette(replay, repeats=True))
    if loaded.settings.telemetry.enabled:
        from toolexec.config.exporting import start_exporting

        stop = start_exporting(_offer(loaded).name, os.environ)
        if stop is not None:
            stack.callback(stop)
    return built


async def _over_stdio(built: Built, wire: Any, screen: Screen, again: LoadAgain) -> None:
    from toolexec.server.app import ToolServer
    from toolexec.server.auth import LiveKeys
    from toolexec.server.stdio import serve_stdio

    server = ToolServer(built.ex, built.serve, results=built.results, index=lambda: built.index)
    server.keys = LiveKeys(built.serve.auth)  # of callers over HTTP, whose runs this server may go on with
    async with _Report(built, screen, "over stdio"):
        reloading = asyncio.create_task(_reload_later(server, built, again))
        try:
            await serve_stdio(server, wire)
        finally:
            reloading.cancel()
            await asyncio.wait([reloading])


async def _reload_later(server: ToolServer, built: Built, again: LoadAgain) -> None:
    await asyncio.sleep(_PATIENCE)  # the first answer comes first
    from toolexec.config.reload import Reload

    async with _reloading(Reload(built, again, keys=server.keys, notify=server.notify_changes), built, again):
        await asyncio.Event().wait()


async def _over_http(built: Built, metrics: Any, screen: Screen, again: LoadAgain) -> None:
    from toolexec.config.reload import Reload
    from toolexec.server.app import ToolServer
    from toolexec.server.auth import LiveKeys
    from toolexec.server.http import Health, serve_http

    settings = built.serve
    server = ToolServer(built.ex, settings, results=built.results, index=lambda: built.index)
    if server.logins is not None:
        server.logins.audit = built.audit
    metrics.watch_backends(built.ex.backend_statuses)
    meter = built.ex.meter if built.ex.meter.counts else None
    if meter is not None:
        metrics.watch_context(meter)
    keys = server.keys = LiveKeys(settings.auth)
    endpoints = built.endpoints(settings)
    reload = Reload(built, again, keys=keys, notify=server.notify_changes, endpoints=endpoints)
    required = built.loaded.settings.http.required_backends
    health = Health.of(built.ex, required=required, also={"settings": lambda: reload.problem})
    async with (
        server,
        aclosing(endpoints),
        _Report(built, screen, "") as report,
        _reloading(reload, built, again, at_hangup=True),
    ):
        await serve_http(
            server,
            settings.http,
            settings.auth,
            health=health,
            metrics=metrics,
            keys=keys,
            meter=meter,
            logins=server.logins,
            ready=report.say_at,
            running=endpoints.serve_at,
        )


@asynccontextmanager
async def _reloading(
    reload: Reload, built: Built, again: LoadAgain, *, at_hangup: bool = False
) -> AsyncGenerator[None, None]:
    """Have the settings read again when a file changes, when the admin wants it, and with *at_hangup* at SIGHUP; warn
    of rules that mean no tool."""
    from toolexec.config.admin import Admin
    from toolexec.config.admin_socket import listening
    from toolexec.config.rule_watch import RuleWatch
    from toolexec.config.watching import FileWatch

    watch, loop = FileWatch(lambda: reload.files, reload), asyncio.get_running_loop()
    hangup: Any = getattr(signal, "SIGHUP", None) if at_hangup else None
    with suppress(NotImplementedError, RuntimeError, ValueError, TypeError):  # as in `_until_signal`
        loop.add_signal_handler(hangup, watch.request)
    rules = RuleWatch(built.ex, lambda: reload.loaded)
    tasks = [asyncio.create_task(watch.run()), asyncio.create_task(rules.run())]
    try:
        async with listening(built.state, Admin(built.ex, reload, again, built.state).perform):
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await reload.aclose()
        with suppress(NotImplementedError, RuntimeError, ValueError, TypeError):
            loop.remove_signal_handler(hangup)


@dataclass(slots=True)
class _Report:
    """Reports on stderr that the server is there, and later which backends are not."""

    built: Built
    screen: Screen
    where: str
    task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self.where:
            self.say(self.where)
        self.task = asyncio.create_task(self._backends())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])

    def say(self, where: str) -> None:
        """Say where clients can connect."""
        loaded, tools = self.built.loaded, len(self.built.index)
        counts = [(len(loaded.servers), "MCP server"), (len(loaded.providers), "provider"), (tools, "tool")]
        what = " and ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in counts if n) or "no tools yet"
        self._note(f"serving {what} {where} (--expose {_offer(loaded).expose})")

    def say_at(self, address: str) -> None:
        """Say that clients can connect at this address."""
        self.say(f"at {address}")
        root = address.removesuffix(self.built.serve.http.path)
        for name, endpoint in self.built.loaded.endpoints.items():
            self._note(f"endpoint {name} at {root}{endpoint.settings.place}")

    async def _backends(self) -> None:
        await asyncio.sleep(_PATIENCE)  # the first answer comes first: the server starts them by itself
        try:
            await self.built.ex.start()
            statuses = self.built.ex.backend_statuses()
        except ConfigurationError:  # closed before it has begun
            return
        for status in statuses:
            if status.enabled and not status.available and status.reason != _CLOSED:
                self._note(f"warning: {status.name} is unavailable: {status.reason or 'still connecting'}")

    def _note(self, text: str) -> None:
        from toolexec.model.redaction import redactor

        with suppress(OSError, ValueError):  # stderr is closed, and serving goes on
            self.screen.note(redactor.text(text))


async def _until_signal(work: Coroutine[Any, Any, None]) -> int:
    """Do the work; the first SIGINT or SIGTERM ends it in good order, the second one at once."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def stop(number: int) -> None:
        seen.append(number)
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
        task.cancel()

    with suppress(NotImplementedError, RuntimeError, ValueError):  # not on Windows, only in the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not seen:
            raise
    except ExceptionGroup as group:
        errors = group.exceptions
        if len(errors) == 1 and isinstance(errors[0], ToolExecError):
            raise errors[0] from group
        raise
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
    return OK if not seen else INTERRUPTED if seen[0] == signal.SIGINT else TERMINATED


class _Lines(logging.Handler):
    """Log records as lines on stderr, without secrets and without what could steer a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        from toolexec.model.redaction import redactor
        from toolexec.model.visible import visible_line

        with suppress(OSError, ValueError):  # stderr is closed, and serving goes on
            sys.stderr.write(f"{record.levelname.lower()}: {visible_line(redactor.text(record.getMessage()))}\n")


@contextmanager
def logged(level: str) -> Generator[None, None, None]:
    """Have what is logged in the block, from *level* on, go to stderr."""
    handler = _Lines(level.upper())
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level.upper())
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (old, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(old)
            logger.propagate = propagate
