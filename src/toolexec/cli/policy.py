"""`toolexec policy`: test the policy of a configuration, and have rules suggested by what was done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolexec.cli.exit_codes import FAILED, OK
from toolexec.cli.options import AsJson, Config, perform_command
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.config.loaded import LoadedConfig
    from toolexec.exec import Exec
    from toolexec.run.endpoint_rules import EndpointRules
    from toolexec.run.policy_cases import PolicyCase

_FILES: Final = tuple(f"policy_tests.{suffix}" for suffix in ("yaml", "yml", "toml", "json"))

policy: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Test what the policy allows, and derive rules from the audit log."
)


@policy.command("test")
def policy_test(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...", help=f"The tests. Default: {_FILES[0]} (or .toml, .json).", show_default=False
        ),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check what the policy of the configuration says of calls and runs; nothing is called or connected to.

    A test names a tool (or a run), who calls it, with what and at which endpoint, and expects allow, ask or deny. Exit
    code 1 if one is not met. Rules that decided in no test are listed.
    """
    work = partial(_test, files=files or [], config=_config(context, config))
    perform_command(context, work, None, as_json, make=_nothing)


@policy.command("suggest")
def policy_suggest(
    context: typer.Context,
    log: Annotated[
        Path | None,
        typer.Argument(
            metavar="LOG", help="The audit log. Default: as toolexec audit tail has it.", show_default=False
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="Only calls since then: yesterday, 7d, 2027-01-31."),
    ] = "",
    conditions: Annotated[
        bool, typer.Option("--conditions", help='Limit arguments, too; they are logged with audit.args = "redacted".')
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Suggest the narrowest rules that allow what succeeded so far, as a diff of the configuration for you to read.

    All else is denied then. Calls that a rule denies or asks about today stay so. Nothing is written: apply the diff
    with patch -p0.
    """
    work = partial(_suggest, log=log, since=since, conditions=conditions, config=_config(context, config))
    perform_command(context, work, None, as_json, make=_nothing)


def _config(context: typer.Context, config: list[Path] | None) -> Sequence[Path]:
    shared, _ = context.obj
    return (*shared, *(config or ()))


def _nothing() -> Exec:
    """Return an Exec for the session of the command, which calls nothing."""
    from toolexec.exec import Exec

    return Exec()


def _load(config: Sequence[Path], *, needed: bool) -> LoadedConfig:
    from toolexec.cli.sources import find_sources
    from toolexec.config.load import load_settings

    try:
        files = find_sources(config).files
    except ConfigurationError:  # there is none
        if needed:
            raise
        files = ()
    return load_settings(files, environment=os.environ)


async def _test(session: Session, *, files: Sequence[Path], config: Sequence[Path]) -> int:
    loaded = _load(config, needed=True)
    cases = [(file, case) for file in files or [_usual_tests()] for case in _cases(file, loaded)]
    rules = _rules(loaded, [case for _, case in cases])
    results = [(file, case, case.verdict(rules)) for file, case in cases]
    problems = [(file, case, problem) for file, case, verdict in results if (problem := case.problem(verdict))]
    deciding = {verdict.rule for _, _, verdict in results}
    named = dict.fromkeys(rule.name for each in rules.rules.values() for rule in each.policy.rules)
    unused = [name for name in named if name not in deciding]
    screen = session.screen
    if screen.as_json:
        failed = [{"file": str(file), "test": case.name, "problem": problem} for file, case, problem in problems]
        passed = len(results) - len(problems)
        screen.document({"passed": passed, "failed": len(problems), "problems": failed, "rules_without_test": unused})
        return FAILED if problems else OK
    screen.exact("".join("F" if case.problem(verdict) else "." for _, case, verdict in results))
    for file, case, problem in problems:
        screen.exact(f"\nFAILED {file}, {case.name}\n{problem}")
    counts = ([f"{len(problems)} failed"] if problems else []) + [f"{len(results) - len(problems)} passed"]
    screen.exact(f"\n{', '.join(counts)}")
    if not loaded.has("policy"):
        screen.note("the settings have no [policy]: what is tested are the defaults of toolexec serve")
    if unused:
        screen.note(f"rules that no test reached: {', '.join(unused)}")
    return FAILED if problems else OK


def _rules(loaded: LoadedConfig, cases: Sequence[PolicyCase]) -> EndpointRules:
    """Return what holds at each endpoint, with the tools of *cases* for all that there is. What a toolset searches for
    cannot be found out among these, so one that does so has all of them."""
    from toolexec.config.endpoints import rules_at
    from toolexec.discovery.memory import InMemoryIndex
    from toolexec.run.endpoint_rules import RulesAt, endpoint_rules
    from toolexec.run.run_request import RunRequest

    found = {
        name: RulesAt(policy=each.policy) if each.toolset is not None and each.toolset.is_ranked else each
        for name, each in rules_at(loaded).items()
    }
    index = InMemoryIndex()
    for case in cases:
        entry = None if isinstance(case.subject, RunRequest) else case.subject[0]
        if entry is not None and index.find(entry.tool.id) is None:
            index.register(entry.tool, entry.binding)
    rules = endpoint_rules(found)
    rules.on(index)
    return rules


def _usual_tests() -> Path:
    for name in _FILES:
        if Path(name).is_file():
            return Path(name)
    raise ConfigurationError(
        f"there are no policy tests: write {_FILES[0]}, or name a file; toolexec policy test -h says how"
    )


def _cases(file: Path, loaded: LoadedConfig) -> list[PolicyCase]:
    from toolexec.config.documents import read_document
    from toolexec.config.mistakes import Mistakes
    from toolexec.errors.hints import did_you_mean
    from toolexec.run.policy_cases import read_cases

    mistakes = Mistakes()
    document = read_document(file, mistakes)
    mistakes.check()
    servers = {server.name: f"mcp:{server.name}" for server in loaded.servers}
    servers |= {name: f"provider:{name}" for name in loaded.providers}
    try:
        cases = read_cases(document.data if document else {}, servers, loaded.settings.get("code.profile"))
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error.message}") from error
    for case in cases:
        if case.endpoint and case.endpoint not in loaded.endpoints:
            hint = did_you_mean(case.endpoint, loaded.endpoints, otherwise="write one as [endpoints.NAME]")
            raise ConfigurationError(f"{file}: test {case.name}: there is no endpoint {case.endpoint!r}; {hint}")
    return cases


async def _suggest(session: Session, *, log: Path | None, since: str, conditions: bool, config: Sequence[Path]) -> int:
    from toolexec.cli.audit import audit_file
    from toolexec.cli.points_in_time import point_in_time
    from toolexec.cli.policy_diff import policy_diff
    from toolexec.config import parts
    from toolexec.model.visible import visible_line
    from toolexec.run.audit.reading import read_all
    from toolexec.run.policy_suggest import suggest

    path = audit_file(log, config)
    loaded = _load(config, needed=False)
    start = point_in_time(since).strftime("%Y-%m-%dT%H:%M:%S") if since else ""
    records = takewhile(lambda record: str(record.get("time", "")) >= start, read_all(path))
    found = suggest(records, parts.policy(loaded), conditions=conditions)
    rules = [rule for rule, _ in found.rules]
    diff = policy_diff(loaded.files, found.rules)
    screen = session.screen
    if screen.as_json:
        refused = [{"tool": tool, "rule": rule} for tool, rule in found.refused]
        unclear = [{"tool": tool, "rule": rule} for tool, rule in found.unclear]
        more = {"refused": refused, "unclear": unclear, "skipped": found.skipped}
        screen.document({"rules": rules, "diff": diff, **more})
        return OK
    if rules:
        screen.exact(diff.rstrip("\n"))
    else:
        screen.note(f"the rules allow all that succeeded in {path}")
    for tool, rule in found.refused:
        screen.note(visible_line(f"{tool} was called, and {rule} denies it or asks today: left so"))
    for tool, rule in found.unclear:
        screen.note(
            visible_line(f"{tool} was called, and {rule} goes by arguments that are not in the log: no rule for it")
        )
    if any(not str(each).startswith("local") for rule in rules for each in rule.get("backends", ())):
        screen.note(
            "a rule for a tool outside of this program allows it unasked, also if it may destroy data: the log does "
            "not say who was asked"
        )
    if found.skipped:
        screen.note(f"{found.skipped} records without a call are left out")
    return OK
