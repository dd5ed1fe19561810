"""`toolexec trust`: look at what changed about the tools of servers, and accept it or not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolexec.cli.exit_codes import OK
from toolexec.cli.options import AsJson, Config, perform_command
from toolexec.errors import ConfigurationError
from toolexec.process.caches import state_directory

if TYPE_CHECKING:
    from rich.table import Table

    from toolexec.cli.session import Session
    from toolexec.run.pinning import Pins, PinStatus

_STYLES: Final = {"accepted": "green", "new": "yellow", "changed": "bold red"}

trust: typer.Typer = typer.Typer(no_args_is_help=True, help="Review and accept changed tool definitions.")

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FILE",
        help="The file of accepted tools. Default: that of the configuration, else $TOOLEXEC_PINS, else "
        "toolexec/pins.db in the user's state directory.",
    ),
]


@trust.command("list")
def trust_list(
    context: typer.Context,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only tools that are not accepted.")] = False,
    state: State = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show which tools are accepted, new or changed, and what is suspicious about them."""
    perform_command(context, lambda session: show(session, pins_of(session, state), waiting=waiting), config, as_json)


@trust.command("diff")
def trust_diff(
    context: typer.Context,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="Its ID; none: all that changed.")] = "",
    state: State = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show how a tool's definition differs from the accepted one."""
    perform_command(context, lambda session: diff(session, pins_of(session, state), tool), config, as_json)


@trust.command("accept")
def trust_accept(
    context: typer.Context,
    tools: Annotated[list[str] | None, typer.Argument(metavar="TOOL...", help="Their IDs.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are new or changed.")] = False,
    state: State = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Accept the current definitions; running servers apply this at their next call."""
    perform_command(
        context,
        lambda session: accept(session, pins_of(session, state), tools or [], everything=everything),
        config,
        as_json,
    )


def pins_of(session: Session, state: Path | None) -> Pins:
    """Return the pins of the configuration's gate, unless *state* names another file, or it has none.

    Raises ConfigurationError when the file cannot be read.
    """
    from toolexec.run.pinning import Pins

    gate = session.ex.options.own_gate
    if state is None and gate is not None and isinstance(gate.pinning, Pins):
        return gate.pinning
    return Pins(state or _usual_file())


def _usual_file() -> Path:
    named = os.environ.get("TOOLEXEC_PINS", "")
    if named:
        return Path(named).expanduser()
    return state_directory() / "pins.db"


async def _look(session: Session, pins: Pins) -> None:
    """Connect to all servers, and compare what their tools are now."""
    from toolexec.cli.finding import connect
    from toolexec.model.origin import HERE

    await connect(session)
    for entry in session.ex.index.tools():
        pins.shows(entry, HERE)
    pins.flush()


async def show(session: Session, pins: Pins, *, waiting: bool) -> int:
    """Show every remote tool that is remembered, or only those that wait to be accepted."""
    from toolexec.cli.finding import mention, unavailable, unavailable_data
    from toolexec.run.suspicion import warnings

    await _look(session, pins)
    screen = session.screen
    found = pins.quarantined() if waiting else pins.statuses()
    signs = {entry.tool.id: warnings(entry.tool) for entry in session.ex.index.tools()}
    down = unavailable(session)
    if screen.as_json:
        tools = [{**status.to_dict(), "warnings": list(signs.get(status.tool_id, ()))} for status in found]
        screen.document({"tools": tools, **unavailable_data(down)})
        return OK
    if found:
        screen.show(_table(found, signs))
    else:
        screen.note(
            "every tool is accepted" if waiting else "no tools of servers have been seen; local ones need no trust"
        )
    if not waiting and any(status.state != "accepted" for status in found):
        screen.note("toolexec trust diff shows what changed, toolexec trust accept TOOL takes it as it is")
    mention(session, down)
    return OK


async def diff(session: Session, pins: Pins, tool_id: str) -> int:
    """Show how definitions differ from the accepted ones: of one tool, or of all that wait."""
    from rich.text import Text

    from toolexec.model.visible import visible

    await _look(session, pins)
    screen = session.screen
    ids = [tool_id] if tool_id else sorted({status.tool_id for status in pins.quarantined()})
    diffs = {name: pins.diff(name) for name in ids}
    if screen.as_json:
        screen.document({"diffs": diffs})
        return OK
    for text in filter(None, diffs.values()):
        for line in text.splitlines():
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            screen.value(Text(visible(line), style=style))
    if not any(diffs.values()):
        screen.note(f"nothing has changed{f' about {tool_id}' if tool_id else ''}")
    return OK


async def accept(session: Session, pins: Pins, tool_ids: list[str], *, everything: bool) -> int:
    """Accept what tools are now.

    Raises ConfigurationError for no tools or tools together with *everything*, for one that was never seen, and when
    the file cannot be written.
    """
    if everything == bool(tool_ids):
        raise ConfigurationError("name the tools to accept, or say --all; toolexec trust list shows which wait")
    await _look(session, pins)
    wanted = sorted({status.tool_id for status in pins.quarantined()}) if everything else tool_ids
    try:
        accepted = pins.accept(wanted)
    except OSError as error:
        raise ConfigurationError(f"what is accepted cannot be written: {error}") from error
    screen = session.screen
    if screen.as_json:
        screen.document({"accepted": [status.to_dict() for status in accepted]})
    elif accepted:
        screen.show(_table(accepted, {}))
    else:
        screen.note("nothing to accept")
    return OK


def _table(found: list[PinStatus], signs: dict[str, tuple[str, ...]]) -> Table:
    from rich.text import Text

    from toolexec.cli.tables import plain_table
    from toolexec.model.visible import visible_line

    columns: list[tuple[str, dict[str, Any]]] = [
        ("Tool", {"overflow": "fold"}),
        ("Server", {"overflow": "fold", "max_width": 20}),
        ("State", {"no_wrap": True}),
        ("Digest", {"no_wrap": True}),
        ("Suspicious", {"overflow": "fold", "ratio": 1}),
    ]
    table = plain_table(*(columns if signs else columns[:-1]))
    table.expand = bool(signs)
    for status in found:
        cells = [
            Text(visible_line(status.tool_id), style="cyan"),
            Text(visible_line(status.backend)),
            Text(status.state, style=_STYLES[status.state]),
            Text(status.digest[:12], style="dim"),
        ]
        if signs:
            cells.append(Text(visible_line("; ".join(signs.get(status.tool_id, ())), 300), style="yellow"))
        table.add_row(*cells)
    return table
