"""`toolexec runtime`: lend the sandboxes of this machine to others."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from toolexec.errors import ToolExecError
from toolexec.remote import check_lending, lend
from toolexec.sandbox import AsJson, Config

if TYPE_CHECKING:
    from toolexec.remote import JSONDict, Lending, Reload
    from toolexec.sandbox import Screen
    from toolexec_remote.server.member import Member

commands: typer.Typer = typer.Typer(no_args_is_help=True, help="Lend the sandboxes of this machine to others.")


@commands.callback()
def group() -> None:
    """Lend the sandboxes of this machine to others."""


@commands.command("serve")
def serve(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(help="The address to listen at; a public one needs TLS.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", help="Listen port; 0 picks a free one.", show_default="8090")
    ] = None,
    max_running: Annotated[int | None, typer.Option(metavar="N", help="Most runs at once.", show_default="8")] = None,
    processes: Annotated[
        int | None, typer.Option(metavar="N", help="How many processes serve the port together.", show_default="1")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any setting: --set runtime_server.max_queued=50. May be repeated."
        ),
    ] = None,
    config: Config = None,
    member: Annotated[int, typer.Option(hidden=True)] = -1,
) -> None:
    """Run code for other machines, in the sandboxes of this one, until it is stopped.

    The settings [runtime_server] name the keys of the clients, [sandboxes] the sandboxes. SIGTERM or Ctrl-C lets what
    runs end first, and gives back what has not started; the second one ends it at once. SIGHUP reads the keys again.
    """
    flags = {"host": host, "port": port, "max_running": max_running, "processes": processes}
    words = [f"runtime_server.{name}={value}" for name, value in flags.items() if value is not None]
    words += settings or ()
    files = [*context.obj[0], *(config or ())]
    again = [sys.executable, "-m", "toolexec", *_each("-c", files), "runtime", "serve", *_each("--set", words)]

    async def work(lending: Lending, read: Reload, screen: Screen) -> int:
        if member >= 0:
            return await _serve_as_member(member, lending, read, screen)
        if lending.server.processes > 1:
            return await _serve_together([*again, "--member"], lending, screen)
        return await _serve(lending, read, screen)

    lend(context, work, config=config, settings=words)


@commands.command("check")
def check(
    context: typer.Context,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting of the server. May be repeated."),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check what `toolexec runtime serve` would do with the same settings: keys, certificates, sandboxes.

    The exit code is 1 when one of its profiles has no sandbox, or every key has expired.
    """
    check_lending(context, _check, config=config, settings=settings or (), as_json=as_json)


async def _check(lending: Lending, screen: Screen) -> int:
    from toolexec.remote import make_runtime
    from toolexec_remote.server import report_sandbox, tls_context

    settings = lending.server
    tls = tls_context(settings) is not None
    async with make_runtime(lending.sandboxes) as made:
        sandboxes = [await report_sandbox(made, settings.profiles, backend) for backend in made.backends]
    now = time()
    expired = {key.id for key in settings.keys if key.has_expired(now)}
    keys: list[JSONDict] = [
        {"id": key.id, "tenant": key.account, "expired": key.id in expired} for key in settings.keys
    ]
    profiles = {
        profile: [each["kind"] for each in sandboxes if each["available"] and profile in each["profiles"]]
        for profile in settings.profiles
    }
    lacking = [f"no sandbox is available for the profile {name}" for name, kinds in profiles.items() if not kinds]
    lacking += ["every key has expired"] if len(expired) == len(keys) else []
    if screen.as_json:
        report = {"tls": tls, "mtls": bool(settings.client_ca), "keys": keys, "profiles": profiles}
        screen.document({"ok": not lacking, **report, "sandboxes": sandboxes, "problems": lacking})
    else:
        _show(
            screen,
            [f"{key['id']} of {key['tenant']}{' (expired)' if key['expired'] else ''}" for key in keys],
            profiles,
        )
        screen.show(*(Text(f"{each['kind']}: {each['reason']}", style="dim") for each in sandboxes if each["reason"]))
        screen.show(*(Text(problem, style="red") for problem in lacking))
    return 1 if lacking else 0


def _show(screen: Screen, keys: Sequence[str], profiles: Mapping[str, Sequence[str]]) -> None:
    screen.show(Text(f"keys: {', '.join(keys)}"))
    for profile, kinds in profiles.items():
        screen.show(Text(f"{profile}: {', '.join(kinds) or 'nothing'}"))


def _each(option: str, values: Sequence[object]) -> list[str]:
    return [word for value in values for word in (option, str(value))]


async def _serve_together(command: Sequence[str], lending: Lending, screen: Screen) -> int:
    """Serve in several processes, each started with *command* and a descriptor."""
    from toolexec_remote.server.supervisor import Supervisor

    def ready(endpoint: str, kinds: str) -> None:
        _note(screen, f"serving {kinds} in {lending.server.processes} processes at {endpoint}; Ctrl-C stops it")

    supervisor, stop = Supervisor(lending.server, command, ready), asyncio.Event()
    _handle_signals(_ending(stop), supervisor.reload)
    return await supervisor.run(stop)


async def _serve_as_member(descriptor: int, lending: Lending, read: Reload, screen: Screen) -> int:
    """Serve as one of several processes, for the one that speaks over the descriptor."""
    from toolexec_remote.server.member import Member

    member = await Member.join(descriptor)
    try:
        name = f"runtime-server-{lending.server.port}"
        own = replace(
            lending, server=lending.server.part(member.number), state=lending.state / name / f"process-{member.number}"
        )
        return await _serve(own, read, screen, member)
    finally:
        await member.aclose()


async def _serve(lending: Lending, read: Reload, screen: Screen, member: Member | None = None) -> int:
    from toolexec.remote import make_runtime, short_steps
    from toolexec_remote.server import serve_runtime
    from toolexec_remote.signature import KeyRing

    settings = lending.server
    ring, stop = KeyRing(settings.keys, skew=settings.skew), asyncio.Event()

    def reload() -> None:
        """Take the keys that the files have now."""
        try:
            keys = read().keys
            ring.replace(keys)
        except ToolExecError as error:  # the keys stay as they are
            screen.error(error)
        else:
            _note(screen, f"reloaded {len(keys)} keys")

    end = _ending(stop)
    _handle_signals(end, reload)
    if member is not None:
        member.on_end, member.on_reload = end, reload
    with short_steps():
        async with make_runtime(lending.sandboxes) as made:
            made.limits = lending.limits or made.limits
            kinds = ", ".join(backend.kind for backend in made.backends)

            def ready(endpoint: str) -> None:
                _note(screen, f"serving {kinds} at {endpoint}; Ctrl-C stops it")

            await serve_runtime(
                made,
                settings,
                lending.state / f"runtime-server-{settings.port}",
                ring=ring,
                ready=ready if member is None else None,
                stop=stop,
                member=member,
            )
    return 0


def _note(screen: Screen, text: str) -> None:
    with suppress(OSError, ValueError):  # stderr is closed, and serving goes on
        screen.note(text)
        sys.stderr.flush()


def _ending(stop: asyncio.Event) -> Callable[[], None]:
    """Return what ends this task in good order the first time, and at once the second time."""
    task = asyncio.current_task()

    def end() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    return end


def _handle_signals(end: Callable[[], None], reload: Callable[[], None]) -> None:
    """Have SIGTERM and SIGINT call *end*, and SIGHUP *reload*."""
    loop = asyncio.get_running_loop()
    with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):  # not on Windows, nor in a thread
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        loop.add_signal_handler(signal.SIGHUP, reload)
