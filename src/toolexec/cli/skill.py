"""`toolexec skill`: workflows that are tools: list them, plan a run, run them, run their tests, keep new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolexec.cli.exit_codes import FAILED, OK, code_of_run
from toolexec.cli.options import AsJson, Config, Durable, perform_command
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.model.json_value import JSONDict
    from toolexec.workflow.plan import PlannedCall
    from toolexec.workflow.skill import Skill

skill: typer.Typer = typer.Typer(no_args_is_help=True, help="Skills: workflows that are tools.")

_SUFFIX: Final = ".workflow"
Named = Annotated[
    str,
    typer.Argument(metavar="SKILL", help="A skill's name, or a file that ends with .workflow.", show_default=False),
]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUTS", help="Inputs, as arguments of toolexec run: key=value, ...", show_default=False),
]


@skill.command("list")
def list_command(context: typer.Context, config: Config = None, as_json: AsJson = False) -> None:
    """List the skills with their inputs, tools and number of tests."""
    perform_command(context, list_skills, config, as_json, tools_needed=False)


@skill.command("plan")
def plan_command(
    context: typer.Context, name: Named, inputs: Inputs = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Print the tool calls that a run would make, without making any."""
    _perform(context, lambda s: plan_skill(s, name, inputs or []), [name], config, as_json)


@skill.command("run")
def run_command(
    context: typer.Context,
    name: Named,
    inputs: Inputs = None,
    durable: Durable = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run a skill and print its value."""
    perform_command(context, lambda s: run_skill(s, name, inputs or [], durable), config, as_json, tools_needed=False)


@skill.command("test")
def try_command(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="SKILLS", help="Names or files; none means all skills.", show_default=False),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run the # test: blocks of skills against their recorded results. No tool is called."""
    _perform(context, lambda s: try_skills(s, names or []), names or [], config, as_json)


@skill.command("add")
def add_command(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Skills to keep.", show_default=False)],
    to: Annotated[
        Path, typer.Option("--to", metavar="DIRECTORY", help="Directory to keep them in; name it in sources.skills.")
    ] = Path("skills"),
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check skills against the tools, run their tests, and copy them into a directory of skills."""
    perform_command(context, lambda s: add_skills(s, files, to), config, as_json, tools_needed=False)


@skill.command("export")
def export_command(
    context: typer.Context,
    to: Annotated[
        Path,
        typer.Argument(metavar="DIRECTORY", help="The agent's directory: .claude/skills, .codex/skills, ..."),
    ] = Path(".claude/skills"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write skills for coding agents, each as a directory with a SKILL.md: how to use toolexec, and your own skills."""
    from toolexec.cli.skill_export import export_skills

    perform_command(context, lambda s: export_skills(s, to, force=force), config, as_json, tools_needed=False)


def _perform(
    context: typer.Context, command: Any, names: Sequence[str], config: list[Path] | None, as_json: bool
) -> None:
    """Run a command that calls no tool: where only files are named, it needs no configuration and looks for none."""
    if names and all(name.endswith(_SUFFIX) for name in names) and not config and not context.obj[0]:
        from toolexec.exec import Exec

        perform_command(context, command, None, as_json, make=Exec)
    perform_command(context, command, config, as_json, tools_needed=False)


async def list_skills(session: Session) -> int:
    """Show the skills of the configuration."""
    from toolexec.cli.tables import plain_table

    found = session.ex.skills
    if session.screen.as_json:
        session.screen.document({"skills": [_facts(each) for each in found.values()]})
        return OK
    if not found:
        session.screen.note('no skills; name their directory in the settings: [sources] skills = ["skills"]')
        return OK
    table = plain_table(("Skill", {"overflow": "fold"}), ("Inputs", {}), ("Tools", {}), ("Tests", {"justify": "right"}))
    for each in found.values():
        names = (f"{item.name}{'' if item.default is None else '?'}" for item in each.workflow.inputs)
        table.add_row(each.id, ", ".join(names), ", ".join(each.tools()), str(len(each.tests)))
    session.screen.show(table)
    return OK


async def plan_skill(session: Session, name: str, words: Sequence[str]) -> int:
    """Show what a run would call; raises InputValidationError for wrong inputs."""
    from toolexec.workflow.plan import plan

    found = _find(session, name)
    calls = plan(found.workflow, found.source, _inputs(found, words))
    if session.screen.as_json:
        session.screen.document({"skill": found.id, "calls": [call.to_dict() for call in calls]})
        return OK
    for call in calls:
        session.screen.value(_planned(call))
    session.screen.note(f"{_count(len(calls), 'tool call')} in the source; nothing was called")
    return OK


async def run_skill(session: Session, name: str, words: Sequence[str], durable: str | None = None) -> int:
    """Run a skill of the configuration or of a file as `toolexec run` runs a tool; a *durable* one as the workflow that
    it is."""
    from toolexec.cli import running

    found = _find(session, name)
    if durable is not None:
        return await _run_durably(session, found, words, durable)
    if found.id not in session.ex.skills:
        session.ex.add_skill(found)
    return await running.run(session, found.id, words, timeout=None, raw=False)


async def _run_durably(session: Session, found: Skill, words: Sequence[str], durable: str) -> int:
    from toolexec.cli.code_output import show_failure
    from toolexec.cli.finding import connect
    from toolexec.cli.journal import use_journal
    from toolexec.cli.tables import value_text
    from toolexec.exec.skills import skill_settings

    inputs = _inputs(found, words)
    await connect(session)
    use_journal(session.ex)
    result = await session.ex.execute_code(found.source, durable=durable, **skill_settings(found, inputs))
    if session.screen.as_json:
        session.screen.document(result.to_dict())
    elif result.error is not None:
        show_failure(session.screen, result.error)
    else:
        session.screen.value(value_text(result.value))
    return code_of_run(result.error)


async def try_skills(session: Session, names: Sequence[str]) -> int:
    """Run tests, show their problems, and return FAILED where there are any."""
    found = [_find(session, name) for name in names] or [*session.ex.skills.values()]
    listed = [fact for each in found for fact in _tried(session, each)]
    failed = sum(not fact["ok"] for fact in listed)
    if session.screen.as_json:
        session.screen.document({"ok": not failed, "tests": listed})
    else:
        session.screen.note(f"{_count(len(listed), 'test')} of {_count(len(found), 'skill')}, {failed} failed")
    return FAILED if failed else OK


def _tried(session: Session, found: Skill) -> list[JSONDict]:
    """Return what came of a skill's tests; say it on a screen that is not for JSON."""
    from rich.text import Text

    from toolexec.model.visible import visible
    from toolexec.workflow.trial import run_tests

    outcomes = run_tests(found)
    if not session.screen.as_json:
        for outcome in outcomes:
            mark = Text("✓ ", style="green") if outcome.ok else Text("✗ ", style="red")
            why = f": {outcome.problem}" if outcome.problem else ""
            session.screen.value(mark + Text(visible(f"{found.id} {outcome.test.name}{why}")))
    return [{"skill": found.id, **outcome.to_dict()} for outcome in outcomes]


async def add_skills(session: Session, files: Sequence[Path], to: Path) -> int:
    """Copy skills into a directory; none of them where one is wrong.

    Raises WorkflowCheckError for mistakes that the tools show, and ConfigurationError for a test that fails, a file
    that is there already, and a directory that cannot be written.
    """
    from toolexec.cli.finding import connect

    found = {to / file.name: _find(session, str(file)) for file in files}
    if len(found) < len(files):
        raise ConfigurationError("two of these files have the same name; one would take the place of the other")
    await connect(session)
    for each in found.values():
        _accept(session, each)
    _keep(to, found)
    if session.screen.as_json:
        session.screen.document({"added": [_facts(each) for each in found.values()]})
    else:
        session.screen.note(f"{to} has {', '.join(each.id for each in found.values())}")
    return OK


def _keep(to: Path, found: Mapping[Path, Skill]) -> None:
    """Write skills into a directory, all or none; raises ConfigurationError for another one that is there, too."""
    from toolexec.process.atomic import replace_files

    try:
        for target, each in found.items():
            if target.exists() and target.read_text("utf-8") != each.source:
                raise ConfigurationError(f"{target} is there already and differs; remove it, or rename the skill")
        to.mkdir(parents=True, exist_ok=True)
        replace_files({target: each.source for target, each in found.items()})
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot write into {to}: {error}") from error


def _accept(session: Session, found: Skill) -> None:
    """Raise what speaks against keeping a skill."""
    from toolexec.workflow.checker import check
    from toolexec.workflow.findings import check_error
    from toolexec.workflow.trial import run_tests

    index = session.ex.index
    findings = check(found.workflow, index if len(index) else None)
    if mistakes := [finding for finding in findings if finding.severity == "error"]:
        raise check_error(mistakes)
    for outcome in run_tests(found):
        if not outcome.ok:
            raise ConfigurationError(f"{found.id}: its test {outcome.test.name!r} fails: {outcome.problem}")


def _find(session: Session, name: str) -> Skill:
    """Return the skill of a file, or the one of the configuration with this name or ID.

    Raises ConfigurationError for an unknown one, and as `read_skill` does.
    """
    from toolexec.errors.hints import did_you_mean
    from toolexec.exec.skills import read_skill
    from toolexec.workflow.skill import NAMESPACE

    if name.endswith(_SUFFIX):
        return read_skill(Path(name))
    known = session.ex.skills
    found = known.get(name) or known.get(f"{NAMESPACE}:{name}")
    if found is None:
        raise ConfigurationError(f"there is no skill {name!r}; {did_you_mean(name, sorted(known))}")
    return found


def _inputs(found: Skill, words: Sequence[str]) -> JSONDict:
    from toolexec.cli.arguments import read_args

    return read_args(words, found.tool().input_schema.to_json())


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _facts(found: Skill) -> JSONDict:
    return {
        "id": found.id,
        "description": found.header.description,
        "inputs": [item.name for item in found.workflow.inputs],
        "tools": found.tools(),
        "tests": len(found.tests),
    }


def _planned(call: PlannedCall) -> Any:
    import json

    from rich.text import Text

    from toolexec.model.visible import visible_line

    known = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in call.args.items()]
    later = [f"{name}: {text}" if name != "*" else text for name, text in call.later.items()]
    text = Text(f"{call.line:>4}  ", style="dim")
    text.append(visible_line(f"{call.tool_id}({', '.join(known + later)})"), style="bold")
    if call.under:
        text.append(f"  {visible_line(', '.join(call.under))}", style="dim")
    return text
