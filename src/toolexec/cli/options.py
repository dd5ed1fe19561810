"""What every command has: the options for its tools and for JSON, and the way it is performed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.exec import Exec

Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Where tools come from: toolexec.toml (or .yaml, .json), an mcpServers JSON file, an OpenAPI document, or "
        "a Python file with @tool functions or an Exec. May be repeated. Default: $TOOLEXEC_CONFIG, else "
        "toolexec.toml, .yaml, .yml, .json, mcp.json or .mcp.json in the current directory.",
    ),
]
"""The option `--config` of a command."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
"""The option `--json` of a command."""
OnError = Annotated[
    Literal["stop", "undo"],
    typer.Option(help="After a failure: just stop, or undo what was done, where the tools say how."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: call each tool's preview instead.")]
Durable = Annotated[
    str | None,
    typer.Option(
        metavar="ID", help="Make it the durable run of this ID, which goes on where it stopped; see toolexec runs."
    ),
]


def perform_command(
    context: typer.Context,
    command: Any,
    config: list[Path] | None,
    as_json: bool,
    *,
    tools_needed: bool = True,
    **more: Any,
) -> None:
    """Run a command with the options before and after its name together, and exit with its code.

    Without *tools_needed* it runs with no tools, too, where there are none.
    """
    from toolexec.cli.session import perform

    shared, json_too = context.obj
    files = (*shared, *(config or ()))
    if not tools_needed:
        more["make"] = partial(_exec_with_tools_if_any, files)
    raise typer.Exit(perform(command, config=files, as_json=as_json or json_too, **more))


def _exec_with_tools_if_any(files: Sequence[Path]) -> Exec:
    from toolexec.cli.sources import find_sources, load_exec
    from toolexec.exec import Exec

    try:
        found = find_sources(files)
    except ConfigurationError:  # nothing was named, and nothing is there
        return Exec()
    return load_exec(found.files)
