"""`toolexec workflow`: check workflows, run, format and draw them, and make them of chains and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolexec.cli.exit_codes import FAILED, OK, code_of_run
from toolexec.cli.options import AsJson, Config, DryRun, Durable, OnError, perform_command
from toolexec.errors import ConfigurationError, WorkflowSyntaxError

if TYPE_CHECKING:
    from rich.text import Text

    from toolexec.cli.session import Session
    from toolexec.cli.workflow_runs import RunWanted
    from toolexec.code.types import CodeEvent
    from toolexec.model.json_value import JSONDict
    from toolexec.workflow.findings import Finding

workflow: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Workflows: small programs of tool calls that are checked before they run."
)

File = Annotated[str, typer.Argument(metavar="FILE", help="The workflow; - for stdin.", show_default=False)]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUTS", help="Inputs, as arguments of toolexec run: key=value, ...", show_default=False),
]
Timeout = Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop after this time (default: 30).")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")]


@workflow.command("check")
def check_files(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Workflows; - for stdin.", show_default=False)],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check workflows without running anything. Exit code 0 if there are only warnings.

    Calls are checked against the tools of the configuration; without one, only the workflow itself is checked.
    """
    perform_command(context, lambda session: check(session, files), config, as_json, tools_needed=False)


@workflow.command("run")
def run_file(
    context: typer.Context,
    file: File,
    inputs: Inputs = None,
    timeout: Timeout = None,
    on_error: OnError = "stop",
    dry_run: DryRun = False,
    durable: Durable = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run a workflow; print its output and its value."""
    from toolexec.cli.workflow_runs import RunWanted

    wanted = RunWanted(file, inputs or (), timeout, on_error, dry_run, durable)
    perform_command(context, lambda s: run(s, wanted), config, as_json, tools_needed=False)


@workflow.command("fmt")
def format_files(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Workflows; - for stdin.", show_default=False)],
    check_only: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 if something would change.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Format workflows in place, keeping comments."""
    from toolexec.exec import Exec

    perform_command(context, lambda s: reformat(s, files, check_only=check_only), None, as_json, make=Exec)


@workflow.command("graph")
def graph_file(
    context: typer.Context,
    file: File,
    inputs: Inputs = None,
    run: Annotated[bool, typer.Option("--run", help="Run it first, and show how long each call took.")] = False,
    result: Annotated[
        str, typer.Option(metavar="FILE", help="Show the calls of this run, as workflow run --json prints it.")
    ] = "",
    svg: Annotated[bool, typer.Option("--svg", help="Output SVG instead of mermaid text.")] = False,
    output: Output = None,
    timeout: Timeout = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Draw a workflow with its calls, choices and loops; after a run, also durations and failures."""
    from toolexec.cli import tracing
    from toolexec.exec import Exec

    wanted = tracing.Picture(file, output, svg, run, inputs or (), timeout, result)
    if run:
        perform_command(context, lambda s: tracing.draw(s, wanted), config, as_json, tools_needed=False)
    perform_command(context, lambda s: tracing.draw(s, wanted), None, as_json, make=Exec)


@workflow.command("record")
def record_file(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A program; - for stdin.", show_default=False)
    ] = None,
    eval: Annotated[str | None, typer.Option("--eval", "-e", metavar="CODE", help="The program itself.")] = None,
    result: Annotated[
        str, typer.Option(metavar="FILE", help="Run nothing: use this run, as toolexec code --json prints it.")
    ] = "",
    output: Output = None,
    timeout: Timeout = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run a program, and print a workflow of its tool calls as a starting point."""
    from toolexec.cli import tracing
    from toolexec.exec import Exec

    if result:
        perform_command(context, lambda s: tracing.record_saved(s, result, output), None, as_json, make=Exec)
    perform_command(
        context, lambda s: tracing.record_run(s, file or "", eval, timeout, output), config, as_json, tools_needed=False
    )


@workflow.command("from-chain")
def from_chain_file(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A chain, in JSON or TOML; - for stdin.")],
    as_json: AsJson = False,
) -> None:
    """Print the workflow that does what a chain does."""
    from toolexec.exec import Exec

    perform_command(context, lambda session: from_chain(session, file), None, as_json, make=Exec)


async def check(session: Session, files: list[str]) -> int:
    """Check workflows, print what is found and return FAILED where there is an error.

    Raises ConfigurationError for a file that cannot be read.
    """
    from toolexec.cli.finding import connect, mention, unavailable, unavailable_data
    from toolexec.cli.text_files import read_text

    sources = {name: read_text(name) for name in files}
    await connect(session)
    found = {name: findings_of(session, source) for name, source in sources.items()}
    down = unavailable(session)
    errors = sum(each.severity == "error" for findings in found.values() for each in findings)
    screen = session.screen
    if screen.as_json:
        listed: list[JSONDict] = [
            {"file": name, "findings": [each.to_dict() for each in findings]} for name, findings in found.items()
        ]
        screen.document({"ok": not errors, "files": listed, **unavailable_data(down)})
        return FAILED if errors else OK
    for name, findings in found.items():
        for finding in findings:
            screen.value(_shown(finding, sources[name], name))
    if not len(session.ex.index):
        screen.note("no tools found, so calls were not checked; name a configuration with -c")
    mention(session, down)
    warnings = sum(map(len, found.values())) - errors
    screen.note(f"{_count(errors, 'error')}, {_count(warnings, 'warning')}")
    return FAILED if errors else OK


def findings_of(session: Session, source: str) -> list[Finding]:
    """Return what is wrong with a workflow; a syntax error is the only finding."""
    from toolexec.durable.waits import IndexOfRun
    from toolexec.workflow.checker import check as check_workflow
    from toolexec.workflow.findings import Finding
    from toolexec.workflow.mistakes import with_tool
    from toolexec.workflow.nodes import Position
    from toolexec.workflow.parser import parse

    index = session.ex.index
    try:
        # It may be meant as a durable run, which has tools of its own.
        return check_workflow(parse(source), IndexOfRun(index) if len(index) else None, learned=session.ex.learned)
    except WorkflowSyntaxError as syntax:
        error = with_tool(syntax, index, lambda _: True)
        at = Position(error.line, error.column, error.line, error.column + 1)
        return [Finding("syntax", "error", error.message.split("\n", 1)[0].partition(": ")[2], at, error.suggestion)]


async def run(session: Session, wanted: RunWanted) -> int:
    """Run a workflow and show what it prints while it does; a failure is shown at its line and gives FAILED.

    Raises WorkflowSyntaxError before anything runs, and ConfigurationError for a file that cannot be read.
    """
    from toolexec.cli.code_output import Printed, show_failure
    from toolexec.cli.tables import show_undone, value_text
    from toolexec.cli.text_files import read_text
    from toolexec.cli.workflow_runs import run_source

    source, screen = read_text(wanted.file), session.screen
    if screen.as_json:
        result = await run_source(session, source, wanted)
        screen.document(result.to_dict())
        return code_of_run(result.error)
    printed = Printed(screen)

    def receive(event: CodeEvent) -> None:
        if event.kind == "print":
            printed.event(event)

    result = await run_source(session, source, wanted, receive)
    printed.finish(result)
    if result.error is not None:
        show_failure(screen, result.error)
        show_undone(screen, result.undone)
        return code_of_run(result.error)
    if result.value is not None:
        screen.value(value_text(result.value))
    return OK


async def reformat(session: Session, files: Sequence[str], *, check_only: bool) -> int:
    """Format workflows; stdin goes to stdout. Return FAILED where *check_only* finds one that is not formatted.

    Raises WorkflowSyntaxError, with the file's name, and ConfigurationError, both before anything is written.
    """
    from toolexec.cli.text_files import read_text
    from toolexec.workflow.formatter import format_workflow

    sources = {name: read_text(name) for name in files}
    made = {name: format_workflow(text) for name, text in sources.items()}
    changed = [name for name, text in made.items() if text != sources[name]]
    screen = session.screen
    if "-" in made and not check_only:
        screen.exact(made.pop("-"))
    if not check_only:
        _replace({Path(name): made[name] for name in changed if name in made})
    if screen.as_json:
        screen.document({"changed": changed})
    else:
        for name in changed:
            screen.note(f"{'would change' if check_only else 'formatted'} {name}")
        screen.note(f"{_count(len(sources) - len(changed), 'workflow')} unchanged")
    return FAILED if changed and check_only else OK


async def from_chain(session: Session, file: str) -> int:
    """Print the workflow of a chain; raises InvalidChainError, and ConfigurationError for an unreadable file."""
    from toolexec.cli.arguments import read_chain
    from toolexec.workflow.formatter import format_workflow
    from toolexec.workflow.from_chain import from_chain as workflow_of

    text = format_workflow(workflow_of(read_chain(file)))
    if session.screen.as_json:
        session.screen.document({"workflow": text})
    else:
        session.screen.exact(text)
    return OK


def _replace(contents: Mapping[Path, str]) -> None:
    from toolexec.process.atomic import replace_files

    try:
        replace_files(contents)
    except OSError as error:
        raise ConfigurationError(f"cannot write {error.filename}: {error.strerror or error}") from error


def _shown(finding: Finding, source: str, name: str) -> Text:
    from rich.text import Text

    from toolexec.model.visible import visible
    from toolexec.workflow.report import finding_text

    text = Text(visible(finding_text(finding, source, name)))
    text.highlight_words(["error:"], "bold red")
    text.highlight_words(["warning:"], "bold yellow")
    text.highlight_regex(r"(?m)^ +\| +\^+$", "red" if finding.severity == "error" else "yellow")
    text.highlight_regex(r"(?m)^  = .*$", "green")
    return text


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
