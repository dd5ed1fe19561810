"""`toolexec check`: one verb for all that can be checked without calling a tool.

That is settings, policy, workflows, skills and sandboxes; the commands for one of these say more of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolexec.cli.exit_codes import FAILED, OK, USAGE, exit_code
from toolexec.cli.options import AsJson, Config
from toolexec.errors import ConfigurationError, ToolExecError

if TYPE_CHECKING:
    from toolexec.backend.mcp import MCPServer
    from toolexec.cli.terminal import Screen
    from toolexec.config.loaded import LoadedConfig
    from toolexec.exec import Exec
    from toolexec.model.json_value import JSONDict
    from toolexec.workflow.nodes import Workflow
    from toolexec.workflow.skill import Skill

_WORKFLOW: Final = ".workflow"
_MARKS: Final = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "bold red")}
_RANK: Final = ("ok", "warning", "error")


@dataclass(slots=True)
class _Checked:
    """One thing that was checked: its kind, its name, what it has, and what is wrong with it."""

    kind: str
    name: str = ""
    detail: str = ""
    errors: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])
    usage: bool = False

    @property
    def state(self) -> str:
        """`error`, `warning` or `ok`."""
        return "error" if self.errors else "warning" if self.warnings else "ok"

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        return {
            "kind": self.kind,
            "name": self.name,
            "state": self.state,
            "detail": self.detail,
            "errors": [*self.errors],
            "warnings": [*self.warnings],
        }


def check(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="Settings, workflows, skills, or directories of those. Default: the settings of this directory, and "
            "what they name.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check settings, policy, skills and sandboxes, or the files that are named; nothing is called or changed.

    Exit code 2 for settings with mistakes, 1 where something else is wrong. For more of one thing: toolexec config
    validate, workflow check, skill test, sandbox check, doctor.
    """
    from toolexec.cli.terminal import Screen, only_results_on_stdout

    shared, json_too = context.obj
    with only_results_on_stdout() as out:
        screen = Screen(out, as_json=as_json or json_too)
        try:
            code = _report(screen, [*_all(files or [], (*shared, *(config or ())))], strict=strict)
            screen.flush()
        except ToolExecError as error:
            screen.error(error)
            code = exit_code(error)
    raise typer.Exit(code)


def _all(files: Sequence[Path], config: tuple[Path, ...]) -> Iterator[_Checked]:
    """Yield what was checked, one after the other."""
    workflows = [each for file in files for each in _workflows_in(file)]
    settings = [file for file in files if not file.is_dir() and file.suffix != _WORKFLOW]
    for file in workflows:
        yield _workflow(file)
    if settings or not files:
        yield from _configured((*settings, *config))


def _workflows_in(file: Path) -> list[Path]:
    """Return the workflows that a file or a directory is; raises ConfigurationError for one that has none."""
    if not file.exists():
        raise ConfigurationError(f"there is no file {file}")
    if not file.is_dir():
        return [file] if file.suffix == _WORKFLOW else []
    found = sorted(each for each in file.iterdir() if each.suffix == _WORKFLOW)
    if not found:
        raise ConfigurationError(f"{file} has no files that end with {_WORKFLOW}")
    return found


# -- settings, and what they name -----------------------------------------------------------------------


def _configured(config: tuple[Path, ...]) -> Iterator[_Checked]:
    from toolexec.cli.serve import load_for_serving
    from toolexec.config.references import missing_references

    settings = _Checked("settings", usage=True)
    try:
        loaded = load_for_serving(config, {}, [], tools_needed=False)
    except ConfigurationError as error:
        settings.name = ", ".join(map(str, config))
        settings.errors = [str(each) for each in error.details.get("mistakes", ())] or [error.message]
        yield settings
        return
    settings.name = ", ".join(map(str, loaded.files)) or "no file"
    counts = [
        (len(loaded.servers), "server"),
        (len(loaded.providers), "provider"),
        (len(loaded.python), "Python source"),
    ]
    settings.detail = ", ".join(_count(number, word) for number, word in counts if number) or "no tools"
    settings.warnings = [*loaded.hints, *missing_references(loaded, os.environ)]
    yield settings
    yield _policy(loaded)
    yield from map(_workflow, _skills_of(loaded))
    yield from (_composed(f"tools.{name}", composed.skill) for name, composed in loaded.tools.items())
    yield _sandboxes(loaded)
    yield from (_boxed(server, loaded) for server in loaded.servers if server.enabled and server.boxed is not None)


def _policy(loaded: LoadedConfig) -> _Checked:
    """Check that each rule is about tools that there are, where these are known."""
    from toolexec.cli.known_tools import known_tools
    from toolexec.config.unused_patterns import names_tools, namespaces_of, unused_patterns

    rules = loaded.settings.policy.rules
    default = loaded.settings.get("policy.default")
    checked = _Checked("policy", detail=f"{_count(len(rules), 'rule')}, else {default}")
    if not names_tools(loaded):
        return checked
    known = known_tools(loaded.files) if loaded.files else None
    if known is None:
        checked.detail += "; tool names: not known before toolexec list"
        return checked
    away = namespaces_of(loaded, [name for name, _ in known.unavailable])
    checked.warnings = [each.problem for each in unused_patterns(loaded, known.ids, away)]
    return checked


def _skills_of(loaded: LoadedConfig) -> list[Path]:
    from toolexec.config.build import skill_files

    return [*skill_files(loaded.skills)]


def _sandboxes(loaded: LoadedConfig) -> _Checked:
    """Check which sandbox serves the profile of the settings; nothing is run in it."""
    import asyncio

    from toolexec.runtime.doctor import examine, served_profiles

    profile = str(loaded.settings.get("code.profile"))
    checked = _Checked("sandboxes", detail=f"profile {profile}")
    runtime = _exec_of(loaded).runtime
    findings = asyncio.run(examine(runtime, measure=False))
    wanted = "standard" if profile == "wasm" else profile
    served = next((each.kinds for each in served_profiles(runtime, findings) if each.profile == wanted), {})
    if served:
        kinds: dict[str, list[str]] = {}
        for language, kind in served.items():
            kinds.setdefault(kind, []).append(language)
        checked.detail += ": " + "; ".join(f"{kind} ({', '.join(languages)})" for kind, languages in kinds.items())
    else:
        checked.errors = [f"nothing here serves the profile {profile}: code is refused; toolexec doctor says why"]
    return checked


def _boxed(server: MCPServer, loaded: LoadedConfig) -> _Checked:
    """Check that a server can be started in its sandbox; it is not started."""
    import asyncio

    from toolexec.config.parts import sandbox_settings
    from toolexec.exec.servers import sandbox_problem

    assert server.boxed is not None
    checked = _Checked("server", server.name, detail=f"sandbox {server.boxed.engine}")
    problem = asyncio.run(sandbox_problem(server, sandbox_settings(loaded)))
    checked.errors = [problem] if problem else []
    return checked


def _exec_of(loaded: LoadedConfig) -> Exec:
    """Return an Exec with the sandboxes of the settings, and no tools."""
    from toolexec.config.parts import sandbox_settings
    from toolexec.exec import Exec

    return Exec(runtime_backends=sandbox_settings(loaded), security_profile=loaded.settings.get("code.profile"))


# -- workflows and skills -------------------------------------------------------------------------------


def _workflow(file: Path) -> _Checked:
    """Check one workflow, and run the tests of one that is a skill; no tool is called."""
    from toolexec.exec.skills import read_skill
    from toolexec.workflow.parser import parse

    checked = _Checked("workflow", str(file))
    try:
        source = file.read_text("utf-8")
        if source.lstrip().startswith("+++"):
            return _composed(str(file), read_skill(file))
        _find(checked, parse(source))
    except UnicodeDecodeError as error:
        checked.errors = [f"it is not UTF-8 (at byte {error.start})"]
    except OSError as error:
        checked.errors = [f"it cannot be read: {error.strerror or error}"]
    except ToolExecError as error:
        checked.errors = [error.message.split("\n", 1)[0]]
    return checked


def _composed(name: str, skill: Skill) -> _Checked:
    """Check a skill, or a tool of the settings that is one, and run its tests."""
    from toolexec.workflow.trial import run_tests

    checked = _Checked("skill", name, detail=_count(len(skill.tests), "test"))
    _find(checked, skill.workflow)
    checked.errors += [f"its test {each.test.name} fails: {each.problem}" for each in run_tests(skill) if not each.ok]
    return checked


def _find(checked: _Checked, workflow: Workflow) -> None:
    from toolexec.workflow.checker import check as check_workflow

    for finding in check_workflow(workflow, None):
        (checked.errors if finding.severity == "error" else checked.warnings).append(str(finding))


# -- the report -----------------------------------------------------------------------------------------


def _report(screen: Screen, found: Sequence[_Checked], *, strict: bool) -> int:
    worst = max((each.state for each in found), key=_RANK.index, default="ok")
    wrong = worst == "error" or (strict and worst == "warning")
    usage = any(each.usage and each.errors for each in found)
    code = USAGE if usage else FAILED if wrong else OK
    if screen.as_json:
        screen.document({"ok": code == OK, "checks": [each.to_dict() for each in found]})
        return code
    _show(screen, found)
    errors = sum(len(each.errors) for each in found)
    warnings = sum(len(each.warnings) for each in found)
    screen.note(f"{_count(errors, 'error')}, {_count(warnings, 'warning')}")
    return code


def _show(screen: Screen, found: Sequence[_Checked]) -> None:
    from rich.table import Table
    from rich.text import Text

    from toolexec.model.visible import visible_line

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in found:
        mark, style = _MARKS[each.state]
        about = Text(visible_line(": ".join(filter(None, (each.name, each.detail))), 400))
        for text, color in (*((line, "red") for line in each.errors), *((line, "yellow") for line in each.warnings)):
            about.append(f"\n{visible_line(text, 400)}", style=color)
        table.add_row(Text(mark, style=style), Text(each.kind, style="bold"), about)
    screen.show(table)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
