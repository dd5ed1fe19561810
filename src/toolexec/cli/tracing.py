"""What `toolexec workflow` makes of the calls of a run: a picture (`graph`), and a workflow (`record`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.cli.arguments import read_json
from toolexec.cli.code_input import CodeOptions, read_program, read_settings
from toolexec.cli.code_output import show_failure
from toolexec.cli.exit_codes import FAILED, OK
from toolexec.cli.finding import connect
from toolexec.cli.text_files import read_text, write_text
from toolexec.cli.workflow_runs import RunWanted, run_source
from toolexec.errors import ConfigurationError, InvalidRequestError
from toolexec.model.visible import visible
from toolexec.workflow.formatter import format_workflow
from toolexec.workflow.graph import graph_of, to_mermaid
from toolexec.workflow.graph_svg import to_svg
from toolexec.workflow.parser import parse
from toolexec.workflow.recording import record
from toolexec.workflow.saved import outcomes_of, result_from

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.code.types import CodeResult


@dataclass(frozen=True, slots=True)
class Picture:
    """What is to be drawn: a workflow's file, and the run that is shown: a new one, or a saved result."""

    file: str
    output: Path | None = None
    as_svg: bool = False
    run: bool = False
    words: Sequence[str] = ()
    timeout: float | None = None
    result: str = ""


async def draw(session: Session, wanted: Picture) -> int:
    """Draw a workflow, with what became of its calls where a run is to be shown; a failure of the run gives FAILED.

    What the run prints goes to stderr. Raises WorkflowSyntaxError before anything runs, and ConfigurationError for
    files that cannot be read or written, and for inputs or a saved result that the command has no use for.
    """
    if wanted.words and not wanted.run:
        raise ConfigurationError("inputs are for a run; give --run, too")
    if wanted.result and wanted.run:
        raise ConfigurationError("--result shows a run that is over; give it or --run")
    source = read_text(wanted.file)
    drawn = graph_of(parse(source), source)
    result = _read_result(wanted.result) if wanted.result else None
    if wanted.run:
        result = await run_source(session, source, RunWanted(wanted.file, wanted.words, wanted.timeout))
    if result is not None:
        drawn.add_calls(outcomes_of(result))
    text = to_svg(drawn) if wanted.as_svg else to_mermaid(drawn)
    _give(session, text, "svg" if wanted.as_svg else "mermaid", wanted.output, result)
    if not wanted.run or result is None:
        return OK
    _show_rest(session, result)
    return OK if result.ok else FAILED


async def record_run(session: Session, file: str, text: str | None, timeout: float | None, output: Path | None) -> int:
    """Run a program, and give the workflow that makes its tool calls; the failure of the program gives FAILED.

    What the program prints goes to stderr. Raises ConfigurationError for a program that cannot be read,
    InvalidRequestError for one that called no tool, and what `Exec.execute_code` raises when nothing was run.
    """
    options = CodeOptions(file=file, text=text, timeout=timeout)
    program = read_program(options)
    settings = read_settings(options, program)
    await connect(session)
    result = await session.ex.execute_code(program.text, **settings)
    if result.ok:
        _give(session, format_workflow(record(result)), "workflow", output, None)
    elif session.screen.as_json:
        session.screen.document(result.to_dict())
    _show_rest(session, result)
    return OK if result.ok else FAILED


async def record_saved(session: Session, file: str, output: Path | None) -> int:
    """Give the workflow that makes the tool calls of a saved result; raises as `record` does, and ConfigurationError
    for a file that cannot be read."""
    _give(session, format_workflow(record(_read_result(file))), "workflow", output, None)
    return OK


def _read_result(file: str) -> CodeResult:
    """Return a result that --json has printed; raises ConfigurationError for a file that has none."""
    try:
        return result_from(read_json(file))
    except InvalidRequestError as error:
        raise ConfigurationError(f"{file}: {error}") from error


def _give(session: Session, text: str, kind: str, output: Path | None, result: CodeResult | None) -> None:
    """Print what was made, or write it to a file."""
    screen = session.screen
    if output is not None:
        write_text(output, text)
    if screen.as_json:
        made = {"file": str(output)} if output is not None else {kind: text}
        screen.document(made if result is None else {**made, "result": result.to_dict()})
    elif output is None:
        screen.exact(text)
    else:
        screen.note(f"the {'workflow' if kind == 'workflow' else 'graph'} is in {output}")


def _show_rest(session: Session, result: CodeResult) -> None:
    """Show on stderr what the program printed and how it failed; a JSON document says it itself."""
    screen = session.screen
    if screen.as_json:
        return
    for text in (result.stdout, result.stderr):
        screen.err.file.write(visible(text))
    if result.error is not None:
        show_failure(screen, result.error)
