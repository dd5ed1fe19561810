"""`toolexec runs enqueue` and `queues`: runs that wait until a worker takes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolexec.cli.exit_codes import OK
from toolexec.cli.journal import perform_with_journal
from toolexec.cli.options import AsJson, Config
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.durable.queues import Queue, QueueRecord
    from toolexec.exec.queued import ProgramSettings
    from toolexec.model.json_value import JSONDict

_CHAINS: Final = (".json", ".toml", ".yaml", ".yml")
ProgramFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="What to run: a workflow (.workflow), a chain (.json, .toml), or code (.py, .js).",
        show_default=False,
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUTS", help="The inputs of a workflow: key=value, ...", show_default=False),
]


def add_queue_commands(runs: typer.Typer) -> None:
    """Add the commands for queues to `toolexec runs`."""
    runs.command("enqueue")(_enqueue_command)
    runs.command("queues")(_queues_command)


def _enqueue_command(
    context: typer.Context,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name, from the table queues.NAME.")],
    file: ProgramFile,
    inputs: Words = None,
    run: Annotated[str, typer.Option("--id", metavar="ID", help="The ID of the run; default: a new one.")] = "",
    priority: Annotated[int, typer.Option(help="The lowest starts first.")] = 0,
    delay: Annotated[float, typer.Option(metavar="SECONDS", help="Start only after this time.")] = 0.0,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Add a run to a queue, for toolexec runs work to execute."""
    more = {"run_id": run, "priority": priority, "delay": delay}
    perform_with_journal(context, lambda s: _enqueue(s, queue, file, inputs or (), more), config, as_json)


def _queues_command(context: typer.Context, config: Config = None, as_json: AsJson = False) -> None:
    """List the queues, with waiting and running runs and their age."""
    perform_with_journal(context, _show_queues, config, as_json)


def read_run(file: str, words: Sequence[str]) -> ProgramSettings:
    """Return what a file has to run: which kind it is, its name says. Raises ConfigurationError."""
    from toolexec.cli.arguments import read_args, read_chain
    from toolexec.cli.code_input import CodeOptions, read_program

    suffix = Path(file).suffix.lower()
    if suffix == ".workflow":
        from toolexec.cli.text_files import read_text
        from toolexec.workflow.inputs import input_schema
        from toolexec.workflow.parser import parse

        source = read_text(file)
        return {"workflow": source, "inputs": read_args(words, input_schema(parse(source).inputs))}
    if words:
        raise ConfigurationError(f"only a workflow has inputs, and {file} is none")
    if suffix in _CHAINS:
        return {"chain": read_chain(file)}
    program = read_program(CodeOptions(file=file))
    given: ProgramSettings = {"code": program.text}
    if program.language:
        given["language"] = program.language
    return given


async def _enqueue(session: Session, queue: str, file: str, words: Sequence[str], more: Any) -> int:
    from toolexec.cli.finding import connect

    program = read_run(file, words)
    await connect(session)
    run = await session.ex.runs.enqueue(queue, **more, **program)
    if session.screen.as_json:
        session.screen.document({"run": run.id, "state": run.state, "queue": run.queue, "priority": run.priority})
    else:
        session.screen.note(f"{run.id} is {run.state} in {run.queue}")
    return OK


async def _show_queues(session: Session) -> int:
    from toolexec.cli.tables import plain_table

    found = await session.ex.runs.queues()
    if session.screen.as_json:
        session.screen.document({"queues": [_facts(limits, record) for limits, record in found.values()]})
        return OK
    if not found:
        session.screen.note("no queues; define one as [queues.NAME]")
        return OK
    columns = ("Queued", "Delayed", "Since", "Running", "Lost", "Since", "Waiting", "Limits")
    table = plain_table(("Queue", {"overflow": "fold"}), *((name, {}) for name in columns))
    for limits, record in found.values():
        table.add_row(
            *(record.name, str(record.queued), str(record.delayed), moment_text(record.queued_since)),
            *(str(record.running), str(record.lost), moment_text(record.running_since), str(record.waiting)),
            _limits_text(limits),
        )
    session.screen.show(table)
    return OK


def _limits_text(limits: Queue | None) -> str:
    if limits is None:
        return "not in these settings: nothing here takes from it"
    parts = [f"{limits.concurrency or 'any number'} at once", f"{limits.worker_concurrency} in a process"]
    if limits.rate is not None:
        parts.append(f"{limits.rate[0]} in {limits.rate[1]:g} s")
    return ", ".join(parts)


def _facts(limits: Queue | None, record: QueueRecord) -> JSONDict:
    return {
        "name": record.name,
        "limits": None if limits is None else limits.to_dict(),
        "queued": record.queued,
        "delayed": record.delayed,
        "running": record.running,
        "lost": record.lost,
        "waiting": record.waiting,
        "queuedSince": moment_text(record.queued_since) or None,
        "runningSince": moment_text(record.running_since) or None,
    }


def moment_text(seconds: float | None) -> str:
    """Return a time in seconds since 1970 as ISO 8601; "" for none."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
