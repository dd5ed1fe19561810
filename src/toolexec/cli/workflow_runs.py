"""Read workflows, run them and write files, for all commands of `toolexec workflow`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolexec.cli.arguments import read_args

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.code.types import CodeResult, EventCallback
    from toolexec.run.types import OnError


@dataclass(frozen=True, slots=True)
class RunWanted:
    """A run of a workflow as the command line asks for it; `words` spell the inputs."""

    file: str
    words: Sequence[str] = ()
    timeout: float | None = None
    on_error: OnError = "stop"
    dry_run: bool = False
    durable: str | None = None


async def run_source(
    session: Session, source: str, wanted: RunWanted, on_event: EventCallback | None = None
) -> CodeResult:
    """Run a workflow as it is *wanted*; raises WorkflowSyntaxError before anything runs."""
    # Imported here: commands that only read and write workflows need no sandboxes.
    from toolexec.cli.finding import connect
    from toolexec.cli.journal import use_journal
    from toolexec.exec.code import WorkflowSettings
    from toolexec.workflow.inputs import input_schema
    from toolexec.workflow.parser import parse

    inputs = read_args(wanted.words, input_schema(parse(source).inputs))
    await connect(session)
    if wanted.durable is not None:
        use_journal(session.ex)
    settings = WorkflowSettings(on_event=on_event, on_error=wanted.on_error, dry_run=wanted.dry_run)
    if wanted.timeout is not None:
        settings["timeout"] = wanted.timeout
    return await session.ex.run_workflow(source, inputs, durable=wanted.durable, **settings)
