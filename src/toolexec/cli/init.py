"""`toolexec init`: a commented file of settings, with the servers that other programs on this machine have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolexec.cli.exit_codes import OK, USAGE, exit_code
from toolexec.cli.options import AsJson
from toolexec.errors import ConfigurationError, ToolExecError

if TYPE_CHECKING:
    from toolexec.cli.terminal import Screen
    from toolexec.config.discovered import DiscoveredServer


def init(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")] = Path(
        "toolexec.toml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write toolexec.toml: every setting with its default, and the MCP servers that Claude, VS Code and Cursor have.

    What looks like a secret is not copied: a variable stands in its place, and you are told which ones to set.
    """
    from toolexec.cli.terminal import Screen, only_results_on_stdout

    _, json_too = context.obj
    with only_results_on_stdout() as out:
        screen = Screen(out, as_json=as_json or json_too)
        try:
            code = _init(screen, output, force=force)
        except ToolExecError as error:
            screen.error(error)
            code = exit_code(error) or USAGE
    raise typer.Exit(code)


def _init(screen: Screen, output: Path, *, force: bool) -> int:
    from toolexec.config.discovered import find_servers
    from toolexec.config.template import render_server, template

    if output.suffix != ".toml":
        raise ConfigurationError(f"{output} must end with .toml: that is what is written")
    if output.exists() and not force:
        raise ConfigurationError(f"{output} is there already; --force writes over it, --output names another file")
    found, problems = find_servers()
    taken = [server for server in found if not server.problem]
    problems += [f"{server.problem}; it was left out" for server in found if server.problem]
    text = template([render_server(server.name, server.entry, _notes(server)) for server in taken])
    _write(output, text)
    variables = {name: server for server in taken for name in server.variables}
    if screen.as_json:
        servers = [
            {"name": each.name, "from": each.program, "file": str(each.file), "variables": each.variables}
            for each in taken
        ]
        screen.document({"file": str(output), "servers": servers, "problems": problems})
        return OK
    for problem in problems:
        screen.note(f"warning: {problem}", style="yellow")
    screen.exact(f"wrote {output}: {len(taken)} server{'' if len(taken) == 1 else 's'}")
    for server in taken:
        screen.exact(f"  {server.name}  from {server.program}, {server.file}")
    for name, server in variables.items():
        screen.note(f"set {name}: it stands for {server.variables[name]} of {server.name}, see {server.file}", style="")
    screen.note("next: toolexec check, then toolexec install claude (or cursor, vscode, codex, ...)", style="dim")
    return OK


def _notes(server: DiscoveredServer) -> list[str]:
    notes = [f"from {server.program}, {server.file}"]
    if server.variables:
        notes.append(f"Set {', '.join(server.variables)}: what looked like a secret was not copied.")
    return notes


def _write(output: Path, text: str) -> None:
    """Write the file once it is known to be right; only its owner may read it."""
    import os
    import tempfile

    from toolexec.config.load import load_settings

    try:
        number, name = tempfile.mkstemp(prefix=".toolexec-init-", suffix=".toml", dir=output.parent)
    except OSError as error:
        raise ConfigurationError(f"cannot write {output}: {error.strerror or error}") from error
    draft = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        load_settings([draft])
        draft.replace(output)
    except OSError as error:
        raise ConfigurationError(f"cannot write {output}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
