"""`toolexec client-config`: what an MCP client needs to know to use `toolexec serve`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from toolexec.cli.exit_codes import OK, exit_code
from toolexec.cli.options import Config
from toolexec.errors import ToolExecError

if TYPE_CHECKING:
    from toolexec.model.json_value import JSONDict

_PLACES: Final = {
    "claude": "paste it into claude_desktop_config.json (Claude Desktop: Settings, Developer, Edit Config), or into "
    ".mcp.json of a project (Claude Code), then restart the program",
    "vscode": "paste it into .vscode/mcp.json of a project, or run the command MCP: Open User Configuration",
    "cursor": "paste it into ~/.cursor/mcp.json, or into .cursor/mcp.json of a project",
}
_EVERYWHERE: Final = ("APPDATA", "HOME", "LANG", "LOCALAPPDATA", "LOGNAME", "PATH", "SHELL", "TEMP", "TMP", "TMPDIR")
_OF_THE_USER: Final = ("USER", "USERNAME", "USERPROFILE")


def client_config(
    context: typer.Context,
    client: Annotated[Literal["claude", "vscode", "cursor"], typer.Argument(help="The client that will use it.")],
    transport: Annotated[
        Literal["stdio", "http", "sse"], typer.Option("--transport", "-t", help="How the client connects.")
    ] = "stdio",
    url: Annotated[
        str, typer.Option(help="URL of the HTTP server; default: from the settings.", show_default=False)
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the entry in the client.")] = "toolexec",
    config: Config = None,
) -> None:
    """Print the JSON that an MCP client needs to start toolexec serve, or to connect to it."""
    from toolexec.cli.terminal import Screen, only_results_on_stdout

    shared, _ = context.obj
    code = OK
    with only_results_on_stdout() as out:
        screen = Screen(out)
        try:
            files = (*shared, *(config or ()))
            variables = own_variables(files) if transport == "stdio" and not url else {}
            screen.document(snippet(client, transport, url, name, files, tuple(variables)))
            screen.note(f"{_PLACES[client]} (keep other servers that are there)", style="")
            for line in _advice(client, variables):
                screen.note(line, style="")
        except ToolExecError as error:
            screen.error(error)
            code = exit_code(error)
    raise typer.Exit(code)


def snippet(
    client: str, transport: str, url: str, name: str, files: tuple[Path, ...], variables: tuple[str, ...] = ()
) -> JSONDict:
    """Return the JSON for *client*, with a place for each of *variables*: the environment of a program with windows
    does not have those of a shell. VS Code asks for them and keeps them; elsewhere the user fills them in.

    Raises ConfigurationError for settings that make no sense, and for no tools.
    """
    from toolexec.backend.secrets import FILL_IN

    entry = own_command(files) if transport == "stdio" and not url else _address(transport, url, files)
    if variables:
        entry["env"] = {each: f"${{input:{each}}}" if client == "vscode" else FILL_IN for each in variables}
    if client == "vscode":
        kind = "stdio" if "command" in entry else "sse" if transport == "sse" else "http"
        document: JSONDict = {"servers": {name: {"type": kind, **entry}}}
        if variables:
            document["inputs"] = [
                {"type": "promptString", "id": each, "description": f"{each}, for {name}", "password": True}
                for each in variables
            ]
        return document
    if client == "claude" and "url" in entry:
        entry = {"type": "sse" if transport == "sse" else "http", **entry}
    return {"mcpServers": {name: entry}}


def own_variables(files: tuple[Path, ...]) -> dict[str, list[str]]:
    """Return the variables that the settings name and that no client has by itself, each with the keys that name it."""
    from toolexec.cli.serve import load_for_serving
    from toolexec.config.references import named_variables

    found = named_variables(load_for_serving(files, {"transport": "stdio"}, []))
    return {name: keys for name, keys in found.items() if name not in (*_EVERYWHERE, *_OF_THE_USER)}


def _advice(client: str, variables: dict[str, list[str]]) -> list[str]:
    """Return what the user does about the variables."""
    from toolexec.backend.secrets import FILL_IN

    if not variables:
        return []
    named = ", ".join(f"{name} ({', '.join(keys)})" for name, keys in variables.items())
    what = (
        "VS Code asks for these variables and keeps them"
        if client == "vscode"
        else f'put values in place of "{FILL_IN}": the program does not have the variables of your shell'
    )
    elsewhere = (
        "to keep them out of that file, refer to them in the settings with secretref:file:PATH, "
        "secretref:command:COMMAND or secretref:keyring:SERVICE/NAME in place of ${NAME}"
    )
    return [f"{what}: {named}", elsewhere]


def own_command(files: tuple[Path, ...]) -> JSONDict:
    """Return how to start this very toolexec, from any directory."""
    from toolexec.cli.sources import find_sources

    named = [word for file in find_sources(files).files for word in ("-c", str(file.resolve()))]
    return {**_program(), "args": [*_program_args(), "serve", *named]}


def _program() -> JSONDict:
    return {"command": sys.executable if _program_args() else str(_own_script())}


def _program_args() -> list[str]:
    return [] if _own_script() is not None else ["-m", "toolexec"]


def _own_script() -> Path | None:
    """Return the installed command that belongs to this Python, if there is one."""
    found = shutil.which("toolexec", path=str(Path(sys.executable).parent))
    return Path(found) if found else None


def _address(transport: str, url: str, files: tuple[Path, ...]) -> JSONDict:
    from toolexec.cli.serve import load_for_serving
    from toolexec.config.parts import auth_settings, http_settings

    loaded = load_for_serving(files, {"transport": transport}, [], tools_needed=False)
    auth, http = auth_settings(loaded), http_settings(loaded)
    address = url or auth.resource_url
    if not address:
        scheme = "https" if http.tls_cert else "http"
        wildcard = http.host in ("0.0.0.0", "::")  # noqa: S104 - recognised, not used
        host = "127.0.0.1" if wildcard else http.host
        host = f"[{host}]" if ":" in host else host
        path = "/sse" if transport == "sse" else http.path
        address = f"{scheme}://{host}:{http.port}{path}"
    return {"url": address, **_headers(bool(auth.api_keys or auth.jwt))}


def _headers(needed: bool) -> JSONDict:
    return {"headers": {"Authorization": "Bearer PUT-YOUR-KEY-HERE"}} if needed else {}
