"""`toolexec audit`: look at the log of calls, and check that it has not been changed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer

from toolexec.cli.exit_codes import FAILED, OK
from toolexec.cli.options import AsJson, Config, perform_command
from toolexec.errors import ConfigurationError
from toolexec.process.caches import state_directory

if TYPE_CHECKING:
    from datetime import datetime

    from rich.table import Table
    from rich.text import Text

    from toolexec.cli.session import Session
    from toolexec.model.json_value import JSONDict

_PAUSE: Final = 0.2
_WIDE: Final = 110
_DENIED: Final = ("approval_denied", "approval_required", "policy_denied", "rate_limited", "tool_not_allowed")
_SHOWN: Final = ("call", "chain", "code", "lost", "note", "start")

audit: typer.Typer = typer.Typer(no_args_is_help=True, help="Read the log of calls, and verify that it is unchanged.")

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="The audit log. Default: $TOOLEXEC_AUDIT, else that of the configuration, else toolexec/audit.jsonl in "
        "the user's state directory.",
        show_default=False,
    ),
]


def audit_file(given: Path | None, config: Sequence[Path] = ()) -> Path:
    """Return the audit log to look at: the one that is *given*, else the one that `$TOOLEXEC_AUDIT` names, else that of
    the configuration in *config* or in the current directory, else the usual one.

    Raises ConfigurationError when there is none, or the configuration is wrong.
    """
    path = given or _usual_file(config)
    if not path.exists():
        raise ConfigurationError(
            f"there is no audit log {path}; name one, or set TOOLEXEC_AUDIT. A server writes one "
            "when its configuration asks for it"
        )
    return path


def _usual_file(config: Sequence[Path]) -> Path:
    named = os.environ.get("TOOLEXEC_AUDIT", "") or _configured(config)
    if named:
        return Path(named).expanduser()
    return state_directory() / "audit.jsonl"


def _configured(config: Sequence[Path]) -> str:
    """Return the file that the configuration names; empty when it names none."""
    from toolexec.cli.sources import find_sources
    from toolexec.config.load import load_settings

    try:
        files = find_sources(config).files
    except ConfigurationError:  # there is none
        files = ()
    return load_settings(files, environment=os.environ).settings.audit.path


@audit.command("tail")
def audit_tail(
    context: typer.Context,
    file: File = None,
    number: Annotated[
        int | None,
        typer.Option("--number", "-n", min=1, help="Calls to show; with --since, all.", show_default="20"),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="Start: yesterday, today, 2026-11-27, 2026-11-27T14:30, or 90m, 6h, 7d ago.",
        ),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new calls as they arrive, until Ctrl-C.")
    ] = False,
    tool: Annotated[str, typer.Option(metavar="GLOB", help="Only tools with such an ID: 'github:*'.")] = "",
    caller: Annotated[str, typer.Option(metavar="ID", help="Only calls of this caller.")] = "",
    outcome: Annotated[
        str,
        typer.Option(
            metavar="CODE",
            help="Only with this outcome: ok, failed (all that are not ok), denied (by policy, person or limit), or a "
            "code such as policy_denied.",
        ),
    ] = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the last calls, with caller and outcome. Calls made by chains and code are indented below them.

    With --json the records as they are; with --follow, one per line.
    """
    from toolexec.exec import Exec

    async def command(session: Session) -> int:
        from toolexec.cli.points_in_time import point_in_time

        start = point_in_time(since) if since else None
        wanted = _filter(tool, caller, outcome, start)
        most = number or (20 if start is None else sys.maxsize)
        return await tail(session, audit_file(file, _files(context, config)), most, wanted, follow=follow)

    perform_command(context, command, None, as_json, make=Exec, lines=follow)


@audit.command("verify")
def audit_verify(
    context: typer.Context,
    file: File = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            help="Key file of the log. Default: the one created with the log.",
        ),
    ] = None,
    expect: Annotated[
        str, typer.Option(metavar="HASH", help="The last hash of an earlier check: nothing up to it may be missing.")
    ] = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check every record and its place in the chain; exit code 1 if any was changed, removed or inserted."""
    from toolexec.exec import Exec

    async def command(session: Session) -> int:
        return check(session, audit_file(file, _files(context, config)), _key(key_file), expect)

    perform_command(context, command, None, as_json, make=Exec)


def _files(context: typer.Context, config: list[Path] | None) -> Sequence[Path]:
    shared, _ = context.obj
    return (*shared, *(config or ()))


def _key(file: Path | None) -> bytes | None:
    try:
        return file.read_bytes().strip() if file is not None else None
    except OSError as error:
        raise ConfigurationError(f"the key file cannot be read: {error}") from error


Wanted: TypeAlias = "Callable[[JSONDict], bool]"


def _filter(tool: str, caller: str, outcome: str, start: datetime | None = None) -> Wanted:
    """Return what is to be shown; to be asked from the youngest record back, as a start is shown only if it
    has no end.
    """
    from toolexec.model.id_patterns import IDPatterns

    ended: set[str] = set()
    meant = IDPatterns("--tool", [tool or "*"])
    first = start.strftime("%Y-%m-%dT%H:%M:%S") if start is not None else ""  # as records have it, in UTC

    def wanted(record: JSONDict) -> bool:
        kind, run = record.get("kind"), str(record.get("run_id", ""))
        if kind == "start" and run in ended:
            return False
        ended.add(run)
        who = record.get("caller")
        return (
            kind in _SHOWN
            and meant.match(str(record.get("tool", "")))
            and (not caller or (isinstance(who, dict) and who.get("id") == caller))
            and (not outcome or _ended_so(str(record.get("outcome", "")), outcome))
            and str(record.get("time", "")) >= first
        )

    return wanted


def _ended_so(code: str, wanted: str) -> bool:
    """Return whether an outcome is the one that is wanted, or of the wanted group."""
    if wanted == "failed":
        return code not in ("", "ok")
    return code in _DENIED if wanted == "denied" else code == wanted


async def tail(session: Session, path: Path, number: int, wanted: Wanted, *, follow: bool) -> int:
    """Show the last *number* records that are *wanted*, and with *follow* those that come, until it is cancelled."""
    from toolexec.run.audit import AuditReader, read_last

    screen = session.screen
    newest = read_last(path, 1)
    found = read_last(path, number, wanted)
    if screen.as_json and not follow:
        screen.document({"file": str(path), "records": found})
        return OK
    if screen.as_json:
        for record in found:
            screen.json_line(record)
    elif found:
        screen.show(_table(found, screen.out.width))
    else:
        screen.note(f"no such calls in {path}")
    reader = AuditReader(path, newest[0]["seq"] if newest else -1)
    while follow:
        await asyncio.sleep(_PAUSE)
        for record in reader.more():
            if record.get("kind") != "start" and wanted(record):
                screen.json_line(record) if screen.as_json else screen.value(_line(record))
    return OK


def check(session: Session, path: Path, key: bytes | None, expect: str) -> int:
    """Check the log and say how it is; gives the exit code."""
    from rich.text import Text

    from toolexec.model.visible import visible_line
    from toolexec.run.audit import verify

    report = verify(path, key, expect=expect)
    screen = session.screen
    if screen.as_json:
        screen.document(report.to_dict())
        return OK if report.ok else FAILED
    for problem in report.problems:
        screen.value(Text.assemble(("✗ ", "bold red"), f"{visible_line(problem.place)}: {problem.message}"))
    if not report.ok:
        screen.value(Text(f"{path} was changed, or is damaged: {len(report.problems)} problems", style="bold red"))
        return FAILED
    screen.value(
        Text.assemble(("✓ ", "green"), f"{report.records} records from {report.first} to {report.last}, none changed")
    )
    if report.unfinished:
        screen.note(f"{report.unfinished} calls have not ended: they are running, or their process was killed")
    if report.older_gone:
        screen.note("older log files are missing and cannot be checked")
    if report.others:
        screen.note(f"{report.others} other logs were kept here before and are gone: moved away, or deleted")
    if not report.anchored:
        screen.note("its head is not known on this machine, so a truncated end would not be noticed")
    screen.note(f"last hash: {report.last_hash} (keep it elsewhere; --expect HASH detects truncation later)")
    return OK


def _table(records: Sequence[JSONDict], width: int) -> Table:
    """Return the records as rows. Where the screen is narrow, who called and why a call was refused stand below what
    was called, so that names stay whole."""
    from rich.text import Text

    from toolexec.cli.tables import plain_table

    what: dict[str, Any] = {"overflow": "fold", "ratio": 1, "min_width": 24}
    took = ("Took", {"justify": "right", "no_wrap": True})
    if width >= _WIDE:
        table = plain_table(
            ("Time (UTC)", {"no_wrap": True}),
            ("Caller", {"overflow": "fold", "max_width": 20}),
            ("What", what),
            ("Outcome", {"overflow": "fold", "max_width": 40}),
            took,
        )
        for record, depth in _tree(records):
            row = _cells(record, depth)
            table.add_row(
                row.time, row.caller, row.what, Text(" ").join(filter(None, (row.outcome, row.why))), row.took
            )
    else:
        days = {str(record.get("time", ""))[:10] for record in records}
        day = one[5:] if len(days) == 1 and (one := next(iter(days))) else ""
        table = plain_table(
            (f"{day} UTC" if day else "Time (UTC)", {"no_wrap": True}),
            ("What", what),
            ("Outcome", {"overflow": "fold", "max_width": 19}),
            took,
        )
        for record, depth in _tree(records):
            row = _cells(record, depth)
            indent = Text(" " * 2 * depth)
            below = [indent + line for line in (row.caller, row.why) if line]
            time = row.time[len(day) + 1 :] if day else row.time
            table.add_row(time, Text("\n").join([row.what, *below]), row.outcome, row.took)
    table.expand = True
    return table


def _tree(records: Sequence[JSONDict]) -> Iterable[tuple[JSONDict, int]]:
    """Yield the records with their depth, those of a run's calls below it."""
    shown = {str(record.get("run_id", "")) for record in records} - {""}
    below: dict[str, list[JSONDict]] = {}
    for record in records:
        parent = str(record.get("parent", ""))
        below.setdefault(parent if parent in shown and parent != record.get("run_id") else "", []).append(record)
    todo = [(record, 0) for record in reversed(below.pop("", []))]
    while todo:
        record, depth = todo.pop()
        yield record, depth
        todo += [(child, depth + 1) for child in reversed(below.pop(str(record.get("run_id", "")), []))]


class _Row(NamedTuple):
    """The parts of a row; `why` is the rule or the reason of a refusal."""

    time: Text
    caller: Text
    what: Text
    outcome: Text
    why: Text
    took: Text


def _cells(record: Mapping[str, object], depth: int = 0) -> _Row:
    from rich.text import Text

    from toolexec.cli.tables import duration_text
    from toolexec.model.visible import visible_line

    caller = record.get("caller")
    name = caller.get("id", "") if isinstance(caller, dict) else ""
    outcome = "not ended" if record.get("kind") == "start" else visible_line(str(record.get("outcome", "")))
    style = {"ok": "green", "": "dim", "not ended": "yellow"}.get(outcome, "red")
    why = record.get("rule") or record.get("reason")
    took = record.get("duration_ms")
    return _Row(
        time=Text(visible_line(str(record.get("time", "")))[5:19].replace("T", " "), style="dim"),
        caller=Text(visible_line(str(name or record.get("client", "")), 60)),
        what=Text("  " * (depth - 1) + ("└ " if depth else "")).append(visible_line(_what(record)), style="cyan"),
        outcome=Text(outcome, style=style),
        why=Text(visible_line(str(why), 120) if why else "", style="dim"),
        took=Text(duration_text(took / 1000) if isinstance(took, int | float) else "", style="dim"),
    )


def _what(record: Mapping[str, object]) -> str:
    kind = str(record.get("what" if record.get("kind") == "start" else "kind", ""))
    if kind == "call":
        return str(record.get("tool", ""))
    if kind in ("note", "lost"):
        return str(record.get("note", "note"))
    details = record.get("details")
    facts = details if isinstance(details, dict) else {}
    return kind + "".join(f" {name}={str(value)[:16]}" for name, value in facts.items())


def _line(record: Mapping[str, object]) -> Text:
    from rich.text import Text

    return Text("  ").join(cell for cell in _cells(record) if cell.plain)
