"""`toolexec quarantine`: read the answers that are held, and remove them."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolexec.cli.exit_codes import OK
from toolexec.cli.options import AsJson, Config, perform_command
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.run.quarantine import Quarantine

quarantine: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Read and remove answers of tools that a scanner held back."
)
Held = Annotated[str, typer.Argument(metavar="ID", help="The ID that the error named.", show_default=False)]
Directory = Annotated[
    Path | None,
    typer.Option("--directory", metavar="DIR", help="Directory of held answers. Default: from the configuration."),
]


@quarantine.command("list")
def quarantine_list(
    context: typer.Context, directory: Directory = None, config: Config = None, as_json: AsJson = False
) -> None:
    """List held answers, the oldest first, with tool and findings."""
    perform_command(context, partial(_list, directory=directory), config, as_json, tools_needed=False)


@quarantine.command("show")
def quarantine_show(
    context: typer.Context, held: Held, directory: Directory = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Show one held answer, with hidden and control characters escaped. It is untrusted: do not paste it to a model."""
    perform_command(context, partial(_show, held=held, directory=directory), config, as_json, tools_needed=False)


@quarantine.command("remove")
def quarantine_remove(
    context: typer.Context,
    held: Annotated[list[str] | None, typer.Argument(metavar="ID...", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    directory: Directory = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Remove held answers."""
    work = partial(_remove, held=held or [], everything=everything, directory=directory)
    perform_command(context, work, config, as_json, tools_needed=False)


def _place(session: Session, directory: Path | None) -> Quarantine:
    """Return the quarantine of the configuration's gate, or the usual one, unless *directory* names another."""
    from toolexec.config.build import state_directory
    from toolexec.run.layers.scan import Scan
    from toolexec.run.quarantine import Quarantine

    gate = session.ex.options.own_gate
    if directory is None and gate is not None and isinstance(gate.scan, Scan) and gate.scan.quarantine is not None:
        return gate.scan.quarantine
    return Quarantine(directory or state_directory() / "quarantine")


async def _list(session: Session, *, directory: Path | None) -> int:
    from toolexec.cli.tables import plain_table
    from toolexec.model.visible import visible_line

    place = _place(session, directory)
    found, screen = place.all(), session.screen
    if screen.as_json:
        screen.document({"directory": str(place.directory), "held": [asdict(each) for each in found]})
    elif not found:
        screen.note(f"no answers are held in {place.directory}")
    else:
        table = plain_table(("ID", {"no_wrap": True}), ("Tool", {"overflow": "fold"}), ("Found", {"overflow": "fold"}))
        for each in found:
            table.add_row(each.id, visible_line(each.tool), visible_line(", ".join(each.findings)))
        screen.show(table)
    return OK


async def _show(session: Session, *, held: str, directory: Path | None) -> int:
    from toolexec.model.visible import visible_json, visible_line

    found, screen = _place(session, directory).get(held), session.screen
    if screen.as_json:
        screen.document(asdict(found))
        return OK
    screen.note(visible_line(f"{found.tool} on {found.backend}, {found.time}, for {found.caller or 'anyone'}"))
    screen.note(visible_line(f"it {', '.join(found.findings)}"))
    screen.exact(visible_json(found.answer, indent=2))
    return OK


async def _remove(session: Session, *, held: list[str], everything: bool, directory: Path | None) -> int:
    place = _place(session, directory)
    if bool(held) == everything:
        raise ConfigurationError("name the answers to remove, or all of them with --all")
    ids = [each.id for each in place.all()] if everything else held
    for each in ids:
        place.remove(each)
    if session.screen.as_json:
        session.screen.document({"removed": ids})
    else:
        session.screen.note(f"removed {len(ids)} of the held answers")
    return OK
