"""`toolexec schedules`: programs that make a durable run at each of their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from toolexec.cli.exit_codes import NOT_RUN, OK
from toolexec.cli.journal import perform_with_journal
from toolexec.cli.options import AsJson, Config
from toolexec.cli.queues import ProgramFile, Words, moment_text, read_run

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.durable.schedules import Schedule
    from toolexec.model.json_value import JSONDict

schedules: typer.Typer = typer.Typer(
    no_args_is_help=True,
    help="Schedules: durable runs by cron or interval; toolexec runs work starts them.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.", show_default=False)]


@schedules.command("list")
def list_command(context: typer.Context, config: Config = None, as_json: AsJson = False) -> None:
    """List schedules, with their next time, runs and missed times."""
    perform_with_journal(context, _list, config, as_json)


@schedules.command("add")
def add_command(
    context: typer.Context,
    name: Name,
    file: ProgramFile,
    inputs: Words = None,
    cron: Annotated[str, typer.Option(help="Cron expression, such as '0 7 * * 1-5'.", show_default=False)] = "",
    tz: Annotated[str, typer.Option(help="Time zone of the cron expression, such as Europe/Berlin.")] = "UTC",
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Interval, in place of --cron.", show_default=False)
    ] = 0.0,
    missed: Annotated[
        Literal["once", "all", "skip"],
        typer.Option(help="Missed times: run the latest, the last --most of them, or none."),
    ] = "once",
    most: Annotated[int, typer.Option(min=1, help="See --missed.")] = 10,
    queue: Annotated[str, typer.Option(help="Queue for its runs.", show_default=False)] = "",
    priority: Annotated[int, typer.Option(help="Priority in the queue; the lowest starts first.")] = 0,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing one of this name.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Schedule a program."""
    times: Any = {"cron": cron, "tz": tz, "every": every, "missed": missed, "most": most}
    more = times | {"queue": queue, "priority": priority, "replace": replace}
    perform_with_journal(context, lambda s: _add(s, name, file, inputs or (), more), config, as_json)


@schedules.command("remove")
def remove_command(context: typer.Context, name: Name, config: Config = None, as_json: AsJson = False) -> None:
    """Delete a schedule; its runs continue."""
    perform_with_journal(context, lambda s: _changed(s, name, s.ex.schedules.remove(name), "removed"), config, as_json)


@schedules.command("pause")
def pause_command(
    context: typer.Context,
    name: Name,
    off: Annotated[bool, typer.Option("--off", help="Resume the schedule.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Pause a schedule until `--off`."""
    done = "goes on" if off else "paused"
    perform_with_journal(
        context, lambda s: _changed(s, name, s.ex.schedules.pause(name, not off), done), config, as_json
    )


async def _list(session: Session) -> int:
    from toolexec.cli.tables import plain_table

    found = await session.ex.schedules.list()
    if session.screen.as_json:
        session.screen.document({"schedules": [_facts(each) for each in found]})
        return OK
    if not found:
        session.screen.note("no schedules")
        return OK
    columns = ("When", "Due", "Last", "Queue", "Made", "Missed", "Late")
    table = plain_table(("Schedule", {"overflow": "fold"}), *((name, {}) for name in columns))
    for each in found:
        timing = each.timing
        when = f"{timing.cron} {timing.tz}" if timing.cron else f"every {timing.every:g} s"
        due = "paused" if each.paused else moment_text(each.due)
        counts = (str(each.fired), str(each.missed), str(each.late))
        table.add_row(each.name, when, due, moment_text(each.last), each.program["queue"], *counts)
    session.screen.show(table)
    return OK


async def _add(session: Session, name: str, file: str, words: Sequence[str], more: Any) -> int:
    from toolexec.cli.finding import connect

    program = read_run(file, words)
    await connect(session)
    added = await session.ex.schedules.add(name, **more, **program)
    if session.screen.as_json:
        session.screen.document(_facts(added))
    else:
        session.screen.note(f"{name} is due at {moment_text(added.due)}")
    return OK


async def _changed(session: Session, name: str, change: Any, done: str) -> int:
    found: bool = await change
    if session.screen.as_json:
        session.screen.document({"schedule": name, "found": found})
    else:
        session.screen.note(f"{name}: {done if found else 'there is no such schedule'}")
    return OK if found else NOT_RUN


def _facts(schedule: Schedule) -> JSONDict:
    return {
        "name": schedule.name,
        "timing": schedule.timing.to_dict(),
        "due": moment_text(schedule.due),
        "last": moment_text(schedule.last) or None,
        "paused": schedule.paused,
        "queue": schedule.program["queue"],
        "fired": schedule.fired,
        "missed": schedule.missed,
        "late": schedule.late,
    }
