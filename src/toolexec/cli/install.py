"""`toolexec install`: have an MCP client start `toolexec serve`, by its own file."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from toolexec.cli.exit_codes import FAILED, INTERRUPTED, OK, exit_code
from toolexec.cli.options import AsJson, Config
from toolexec.errors import ConfigurationError, MissingExtraError, ToolExecError

if TYPE_CHECKING:
    from toolexec.cli.terminal import Screen
    from toolexec.config.clients import Client, Scope
    from toolexec.config.installing import Change
    from toolexec.model.json_value import JSONDict

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def install(
    context: typer.Context,
    client: Annotated[
        Literal["claude", "claude-desktop", "cursor", "vscode", "codex", "windsurf", "zed", "gemini"] | None,
        typer.Argument(help="The client to set up; without it, all are listed.", show_default=False),
    ] = None,
    scope: Annotated[
        Literal["user", "project"],
        typer.Option("--scope", "-s", help="Everywhere for this user, or in the project in the current directory."),
    ] = "user",
    name: Annotated[str, typer.Option(help="Name of the entry in the client.")] = "toolexec",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    only_print: Annotated[bool, typer.Option("--print", help="Print the entry without writing it.")] = (False),
    undo: Annotated[bool, typer.Option("--undo", help="Revert: restore the file as it was.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Set up a client (Claude, Cursor, VS Code, Codex, ...) to start toolexec serve with your tools.

    Shows what would change in the client's own file and asks. What else is in the file stays, comments too; a file that
    is broken is not touched. No secret is copied: variables that your settings name are looked up, or asked for, by the
    client.
    """
    from toolexec.cli.terminal import Screen, only_results_on_stdout

    shared, json_too = context.obj
    files = (*shared, *(config or ()))
    with only_results_on_stdout() as out:
        screen = Screen(out, as_json=as_json or json_too)
        try:
            if client is None:
                code = _list(screen, name)
            else:
                code = _install(screen, client, scope, name, files, yes=yes, only_print=only_print, undo=undo)
            screen.flush()
        except ToolExecError as error:
            screen.error(error)
            code = exit_code(error)
        except KeyboardInterrupt:
            screen.note("interrupted; nothing was written")
            code = INTERRUPTED
    raise typer.Exit(code)


def _install(
    screen: Screen,
    client_name: str,
    scope: Scope,
    name: str,
    files: tuple[Path, ...],
    *,
    yes: bool,
    only_print: bool,
    undo: bool,
) -> int:
    from toolexec.cli.client_config import own_command, own_variables
    from toolexec.config.build import state_directory
    from toolexec.config.clients import CLIENTS, Machine
    from toolexec.config.installing import plan_install, plan_undo

    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"--name {name!r} may have letters, digits, _ and -, and no more than 64 of them")
    client, machine = CLIENTS[client_name], Machine()
    state = state_directory() / "clients"
    if undo:
        return _perform(screen, plan_undo(client, scope, machine, name=name, state=state), state, yes=yes)
    start = own_command(files)
    variables = own_variables(files)
    if only_print:
        return _print(screen, client, name, client.entry(start["command"], start["args"], [*variables]), [*variables])
    change = plan_install(
        client, scope, machine, name=name, command=start["command"], args=start["args"], variables=[*variables]
    )
    code = _perform(screen, change, state, yes=yes, variables=variables)
    if not _can_serve():
        needed = str(MissingExtraError("serve", needed_for=f"toolexec serve, which {client.title} starts,"))
        screen.note(f"warning: {needed}", style="yellow")
    return code


def _can_serve() -> bool:
    """Return whether what `toolexec serve` needs is installed."""
    try:
        return find_spec("mcp") is not None
    except ModuleNotFoundError:
        return False


def _perform(
    screen: Screen, change: Change, state: Path, *, yes: bool, variables: dict[str, list[str]] | None = None
) -> int:
    """Show a change, ask, and make it."""
    from toolexec.config.installing import apply_change

    kept: Path | None = None
    if change.changes:
        _show(screen, change)
        if not yes:
            if screen.as_json or not sys.stdin.isatty():
                raise ConfigurationError(f"{change.file} was not changed: --yes writes without asking")
            if not typer.confirm(f"Write {change.file}?", err=True):
                screen.note("nothing was written")
                return FAILED
        kept = apply_change(change, state)
    if screen.as_json:
        screen.document(
            {
                "client": change.client.name,
                "file": str(change.file),
                "changed": change.changes,
                "diff": change.diff(),
                "backup": str(kept) if kept is not None else None,
                "variables": [*(variables or ())],
            }
        )
        return OK
    _report(screen, change, kept, variables or {})
    return OK


def _show(screen: Screen, change: Change) -> None:
    from rich.text import Text

    from toolexec.model.visible import visible

    if screen.as_json:
        return
    for line in change.diff():
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
        screen.err.print(Text(visible(line, 2000), style=style), soft_wrap=True)


def _report(screen: Screen, change: Change, kept: Path | None, variables: dict[str, list[str]]) -> None:
    title, file = change.client.title, change.file
    if not change.changes:
        screen.exact(f"{title} is set up already: {file}")
    elif not change.undo:
        screen.exact(f"{title} is set up: {file}")
        screen.note(f"next: in {title}, {change.client.after}", style="")
    elif change.after is None:
        screen.exact(f"{file} was removed: it was made by the installation")
    else:
        screen.exact(f"{file}: {'the entry was removed, the rest was kept' if change.kept else 'as it was before'}")
    if kept is not None:
        screen.note(f"backup of the file: {kept}")
    if not change.undo:
        for line in _advice(change.client, variables):
            screen.note(line, style="")


def _advice(client: Client, variables: dict[str, list[str]]) -> list[str]:
    """Return what the user does about the variables that the settings name."""
    from toolexec.backend.secrets import FILL_IN

    if not variables:
        return []
    named = ", ".join(f"{name} ({', '.join(keys)})" for name, keys in variables.items())
    if client.asks:
        return [f"{client.title} asks for these variables and keeps them: {named}"]
    if not client.fills_in:
        return [f"set these variables where {client.title} is started: {named}"]
    elsewhere = (
        "to keep them out of that file, refer to them in the settings with secretref:file:PATH, "
        "secretref:command:COMMAND or secretref:keyring:SERVICE/NAME in place of ${NAME}"
    )
    fill_in = f'put values in place of "{FILL_IN}": {client.title} does not have the variables of your shell: {named}'
    return [fill_in, elsewhere]


def _print(screen: Screen, client: Client, name: str, entry: JSONDict, variables: list[str]) -> int:
    """Print what belongs into the client's file."""
    if client.toml and not screen.as_json:
        from toolexec.config.toml_edit import set_table

        screen.exact(set_table("", (client.servers, name), entry))
        return OK
    document: JSONDict = {client.servers: {name: entry}}
    inputs = client.inputs(name, variables)
    screen.document({**document, "inputs": inputs} if inputs else document)
    return OK


def _list(screen: Screen, name: str) -> int:
    """Show the clients: where their files are, and whether they are set up."""
    from rich.text import Text

    from toolexec.cli.tables import plain_table
    from toolexec.config.clients import CLIENTS, Machine
    from toolexec.model.visible import visible_line

    machine = Machine()
    rows = [(each, scope, *_state(each, scope, machine, name)) for each in CLIENTS.values() for scope in each.scopes]
    if screen.as_json:
        screen.document(
            {
                "clients": [
                    {"client": each.name, "scope": scope, "file": str(file), "state": state}
                    for each, scope, file, state in rows
                ]
            }
        )
        return OK
    columns: list[tuple[str, dict[str, Any]]] = [("Client", {"no_wrap": True}), ("Scope", {"no_wrap": True})]
    table = plain_table(*columns, ("State", {"no_wrap": True}), ("File", {"overflow": "fold"}))
    styles = {"set up": "green", "broken": "red", "not set up": "yellow"}
    for each, scope, file, state in rows:
        shown = visible_line(_short(file, machine.home))
        table.add_row(Text(each.name, style="cyan"), scope, Text(state, style=styles.get(state, "dim")), Text(shown))
    screen.show(table)
    screen.note("next: toolexec install CLIENT, with --scope project for the project in this directory")
    return OK


def _state(client: Client, scope: Scope, machine: Any, name: str) -> tuple[Path, str]:
    from toolexec.config.installing import entry_of

    file = client.file(scope, machine)
    try:
        if entry_of(client, scope, machine, name) is not None:
            return file, "set up"
    except ConfigurationError:
        return file, "broken"
    there = file.parent.exists() and file.parent not in (machine.home, machine.directory)
    return file, "not set up" if file.exists() or there else "not found"


def _short(file: Path, home: Path) -> str:
    return f"~/{file.relative_to(home)}" if file.is_relative_to(home) else str(file)
