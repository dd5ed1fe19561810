"""`toolexec backend` and `toolexec reload`: change the servers of a running `toolexec serve`, and of its file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolexec.cli.exit_codes import INTERRUPTED, OK, exit_code
from toolexec.cli.options import AsJson, Config
from toolexec.errors import BackendUnavailableError, ConfigurationError, ToolExecError

if TYPE_CHECKING:
    from toolexec.cli.terminal import Screen
    from toolexec.config.admin import FileAdmin
    from toolexec.model.json_value import JSONDict

backend: typer.Typer = typer.Typer(
    no_args_is_help=True,
    help="Add, remove and restart servers of a running `toolexec serve`, without interrupting its clients.",
)

Server = Annotated[
    int | None,
    typer.Option(
        "--server", metavar="PID", help="Only this server, where several run with these files.", show_default=False
    ),
]
Version = Annotated[
    str,
    typer.Option(
        "--if-version",
        metavar="VERSION",
        help="Fail if the settings are no longer at this version; backend list shows it.",
        show_default=False,
    ),
]


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the servers and providers of the settings; connects nothing."""
    from toolexec.cli.sources import find_sources
    from toolexec.config.load import load_settings

    try:
        loaded = load_settings(find_sources(tuple(ctx.params.get("config") or ())).files, environment=os.environ)
    except ToolExecError:
        return []
    names = [*(server.name for server in loaded.servers), *loaded.providers]
    return [name for name in names if name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The server or provider, as the settings name it.",
        show_default=False,
        autocompletion=complete_name,
    ),
]


@backend.command("list")
def list_command(context: typer.Context, server: Server = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show the status of every backend of the running server, and the version of its settings."""
    _perform(context, _list, server, config, as_json)


@backend.command("add")
def add_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A unique name.", show_default=False)],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Command that starts it, after --.", show_default=False),
    ] = None,
    url: Annotated[str, typer.Option(help="URL of a running server.", show_default=False)] = "",
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Environment variable for it. May be repeated."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="An HTTP header. May be repeated.")
    ] = None,
    sandbox: Annotated[
        str, typer.Option("--sandbox", metavar="ENGINE", help="Run it in a sandbox: bubblewrap.", show_default=False)
    ] = "",
    image: Annotated[str, typer.Option("--image", help="Image of the sandbox.", show_default=False)] = "",
    read: Annotated[
        list[Path] | None, typer.Option("--read", metavar="PATH", help="Path that it can read. May be repeated.")
    ] = None,
    write: Annotated[
        list[Path] | None, typer.Option("--write", metavar="PATH", help="Path that it can write. May be repeated.")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="HOST", help="Host that it may reach. May be repeated.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the existing one of this name.")] = False,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Add it even if it does not answer.")] = False,
    version: Version = "",
    server: Server = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Add an MCP server to the settings file and to the running server.

    It is started, or connected to, first: one that does not answer is not added. Secrets are given as references, such
    as --env TOKEN=secretref:env:TOKEN.
    """
    given = {"name": name, "version": version, "replace": replace, "check": not unchecked}
    boxed = _sandbox(sandbox, image, read or [], write or [], host or [])
    words = (command or [], url, env or [], header or [], boxed)
    _perform(context, partial(_add, words, given), server, config, as_json)


@backend.command("remove")
def remove_command(
    context: typer.Context,
    name: Name,
    version: Version = "",
    server: Server = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Remove a server or provider from the settings file and from the running server.

    Calls that it works on are finished first.
    """
    _perform(context, partial(_remove, {"name": name, "version": version}), server, config, as_json)


@backend.command("restart")
def restart_command(
    context: typer.Context, name: Name, server: Server = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Restart a server or provider with the same settings; the old one finishes its calls first."""
    _perform(context, partial(_restart, name), server, config, as_json)


def reload(context: typer.Context, server: Server = None, config: Config = None, as_json: AsJson = False) -> None:
    """Reload the files of a running `toolexec serve`, and show the changes or errors."""
    _perform(context, _reload, server, config, as_json)


class _Reached:
    """The servers that run with these files, and what shows results."""

    def __init__(self, screen: Screen, files: tuple[Path, ...], sockets: Sequence[Path]) -> None:
        self.screen = screen
        self.files = files
        self.sockets = sockets

    async def ask_one(self, **request: Any) -> JSONDict:
        """Return the answer of the server; raises as `ask_all`, and ConfigurationError where several run."""
        if len(self.sockets) > 1:
            pids = ", ".join(path.stem for path in self.sockets)
            raise ConfigurationError(f"several servers run with these files; choose one with --server: {pids}")
        [answer] = await self.ask_all(**request)
        return answer

    async def ask_all(self, **request: Any) -> list[JSONDict]:
        """Return the answers of all, one after the other; raises BackendUnavailableError where none runs, and as the
        server does."""
        from toolexec.config.admin_socket import ask_server

        if not self.sockets:
            names = ", ".join(map(str, self.files))
            raise BackendUnavailableError(f"no toolexec serve of yours runs with {names}; start it first")
        return [await ask_server(socket, request) for socket in self.sockets]

    async def change(self, do: str, **request: Any) -> JSONDict:
        """Have the first server change the files, which the others notice; where none runs, change them here."""
        from toolexec.config.admin_socket import ask_server

        if self.sockets:
            return await ask_server(self.sockets[0], {"do": do, **request})
        changed: JSONDict = await getattr(self.files_alone, do)(**request)
        return changed

    @property
    def files_alone(self) -> FileAdmin:
        """What changes the files where no server runs."""
        from toolexec.config.admin import FileAdmin
        from toolexec.config.build import state_directory
        from toolexec.config.load import load_settings

        load = partial(load_settings, self.files, environment=os.environ)
        return FileAdmin(self.files, load, state_directory())


def _perform(
    context: typer.Context,
    command: Callable[[_Reached], Coroutine[Any, Any, None]],
    server: int | None,
    config: Sequence[Path] | None,
    as_json: bool,
) -> None:
    import asyncio

    from toolexec.cli.terminal import Screen

    shared, json_too = context.obj
    screen = Screen(sys.stdout, as_json=as_json or json_too)
    code = OK
    try:
        asyncio.run(_with_server(screen, (*shared, *(config or ())), server, command))
        screen.flush()
    except ToolExecError as error:
        screen.error(error)
        code = exit_code(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)


async def _with_server(
    screen: Screen,
    config: tuple[Path, ...],
    server: int | None,
    command: Callable[[_Reached], Coroutine[Any, Any, None]],
) -> None:
    from toolexec.cli.sources import find_sources

    files = find_sources(config).files
    await command(_Reached(screen, files, await _find(files, server)))


async def _find(files: Sequence[Path], server: int | None) -> list[Path]:
    """Return the sockets of the servers that run with these files. Raises BackendUnavailableError where the one that is
    asked for does not."""
    import asyncio

    from toolexec.config.admin_socket import ask_server, sockets_in
    from toolexec.config.build import state_directory

    wanted = {str(file.resolve()) for file in files}
    paths = [path for path in sockets_in(state_directory()) if server is None or path.stem == str(server)]
    answers = await asyncio.gather(*(ask_server(path, {"do": "list"}) for path in paths), return_exceptions=True)
    found = [
        path
        for path, answer in zip(paths, answers, strict=True)
        if isinstance(answer, dict) and wanted & {*answer["files"]}
    ]
    if not found and server is not None:
        raise BackendUnavailableError(f"no toolexec serve with the process ID {server} runs with these files")
    return found


async def _list(reached: _Reached) -> None:
    from toolexec.backend.base import BackendStatus
    from toolexec.cli.tables import backends_table

    answer = await reached.ask_one(do="list")
    if reached.screen.as_json:
        reached.screen.document(answer)
        return
    reached.screen.show(backends_table([BackendStatus(**each) for each in answer["backends"]]))
    reached.screen.note(f"version of the settings: {answer['version']}")


async def _add(
    words: tuple[Sequence[str], str, Sequence[str], Sequence[str], JSONDict], given: dict[str, Any], reached: _Reached
) -> None:
    from toolexec.config.backend_files import server_entry

    command, url, env, header, sandbox = words
    entry = server_entry(command, url, _pairs("--env", env), _pairs("--header", header), sandbox)
    _show(reached, "added", given["name"], await reached.change("add", entry=entry, **given))


async def _remove(given: dict[str, str], reached: _Reached) -> None:
    _show(reached, "removed", given["name"], await reached.change("remove", **given))


async def _restart(name: str, reached: _Reached) -> None:
    answers = await reached.ask_all(do="restart", name=name)
    _show(reached, "restarted", name, answers[0], answers[1:])


async def _reload(reached: _Reached) -> None:
    answers = await reached.ask_all(do="reload")
    if reached.screen.as_json:
        reached.screen.document(_with_others(answers[0], answers[1:]))
        return
    for answer in answers:
        reached.screen.exact(answer["text"])


def _with_others(answer: JSONDict, others: Sequence[JSONDict]) -> JSONDict:
    return {**answer, "others": list(others)} if others else answer


def _show(reached: _Reached, done: str, name: str, answer: JSONDict, others: Sequence[JSONDict] = ()) -> None:
    screen = reached.screen
    if screen.as_json:
        screen.document({done: name, **_with_others(answer, others)})
        return
    where = f" {'from' if done == 'removed' else 'to'} {answer['file']}" if "file" in answer else ""
    status = answer.get("backend")
    tools = f": {status['tools']} tools" if status is not None and status["available"] else ""
    screen.exact(f"{name} was {done}{where}{tools}")
    if status is not None and not status["available"]:
        screen.note(f"warning: it is unavailable: {status.get('reason', 'no reason is known')}", style="")
    if not reached.sockets:
        screen.note("no running server uses this file; it takes effect at the next start")


def _sandbox(engine: str, image: str, read: Sequence[Path], write: Sequence[Path], hosts: Sequence[str]) -> JSONDict:
    """Return the settings of a sandbox, as a file has them; none without any."""
    paths = {"read": [str(path.absolute()) for path in read], "write": [str(path.absolute()) for path in write]}
    given: JSONDict = {"engine": engine, "image": image, **paths, "hosts": [*hosts]}
    found = {name: value for name, value in given.items() if value}
    if found and not engine:
        raise typer.BadParameter(
            "it is for a server in a sandbox; set --sandbox, too", param_hint=f"--{next(iter(found)).removesuffix('s')}"
        )
    return found


def _pairs(option: str, words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"{option} {name}: write it as NAME=VALUE")
        found[name] = value
    return found
