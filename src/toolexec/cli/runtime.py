"""`toolexec runtime`: lend the sandboxes of this machine to others; the package toolexec-remote has the commands."""

from __future__ import annotations

import typer

from toolexec.cli.plugin_commands import Lender

runtime: typer.Typer = typer.Typer(
    cls=Lender, no_args_is_help=True, help="Lend the sandboxes of this machine to others."
)


@runtime.callback()
def group() -> None:
    """Lend the sandboxes of this machine to others."""
