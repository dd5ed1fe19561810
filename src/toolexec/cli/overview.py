"""`toolexec` alone: what is set up here, and what to do next. Nothing is started, and no Python file is run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolexec.cli.exit_codes import OK
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.cli.terminal import Screen
    from toolexec.config.loaded import LoadedConfig
    from toolexec.model.json_value import JSONDict

_MOST_NAMES: Final = 6
_MOST_PROBLEMS: Final = 5
_AGES: Final = ((86400 * 2, 86400, "day"), (3600 * 2, 3600, "hour"), (120, 60, "minute"))


@dataclass(slots=True)
class _Found:
    """What is set up: files, servers, other sources, tools (None: not counted yet), problems, and clients."""

    files: list[str] = field(default_factory=list[str])
    servers: list[str] = field(default_factory=list[str])
    off: list[str] = field(default_factory=list[str])
    providers: list[str] = field(default_factory=list[str])
    python: list[str] = field(default_factory=list[str])
    tools: int | None = None
    counted: float | None = None
    problems: list[str] = field(default_factory=list[str])
    logins: Sequence[str] = ()
    clients: list[str] = field(default_factory=list[str])
    broken: bool = False

    def to_dict(self) -> JSONDict:
        """Return the same for JSON, with the next step."""
        return {
            "files": [*self.files],
            "servers": [*self.servers],
            "switchedOff": [*self.off],
            "providers": [*self.providers],
            "python": [*self.python],
            "tools": self.tools,
            "problems": [*self.problems],
            "clients": [*self.clients],
            "next": self.next_step()[0],
        }

    def next_step(self) -> tuple[str, str]:
        """Return the command to type next, and why."""
        if self.broken:
            return "toolexec check", "says what is wrong with the settings, all at once"
        if not self.files:
            return "toolexec init", "writes toolexec.toml, with the servers that your programs have"
        if not (self.servers or self.providers or self.python):
            return "toolexec demo", "no tools yet: name servers or Python files in the settings; the demo needs none"
        if self.logins:
            return self.logins[0], "logs in to a server that could not be reached without"
        if self.problems:
            return "toolexec check", "checks settings, policy, skills and sandboxes"
        if self.tools is None:
            return "toolexec list", "connects to everything, and lists the tools"
        if not self.clients:
            return "toolexec install claude", "or cursor, vscode, codex, ...: has it start toolexec serve"
        return 'toolexec search "..."', "finds a tool; toolexec --help lists the commands"


def overview(files: tuple[Path, ...], *, as_json: bool) -> int:
    """Show what is set up, in a few lines, and return the exit code: OK also for settings with mistakes."""
    from toolexec.cli.terminal import Screen, only_results_on_stdout

    with only_results_on_stdout() as out:
        screen = Screen(out, as_json=as_json)
        found = _look(files)
        if as_json:
            screen.document(found.to_dict())
        else:
            _show(screen, found)
        screen.flush()
    return OK


def _look(files: tuple[Path, ...]) -> _Found:
    from toolexec.cli.serve import load_for_serving
    from toolexec.cli.sources import find_sources
    from toolexec.config.references import missing_references

    found = _Found()
    sources: Sequence[Path] = ()
    try:
        sources = find_sources(files).files
        found.files = [str(each) for each in sources]
    except ConfigurationError:
        pass  # there is no file, which is where everyone begins
    try:
        loaded = load_for_serving(files, {}, [], tools_needed=False)
    except ConfigurationError as error:
        found.broken = True
        found.problems = [str(each) for each in error.details.get("mistakes", ())] or [error.message]
        return found
    _take(found, loaded)
    found.problems = [*missing_references(loaded, os.environ), *loaded.hints]
    _count(found, sources)
    _clients(found)
    return found


def _take(found: _Found, loaded: LoadedConfig) -> None:
    found.servers = [each.name for each in loaded.servers if each.enabled]
    found.off = [each.name for each in loaded.servers if not each.enabled]
    found.providers = [name for name, each in loaded.providers.items() if each.enabled]
    found.python = [*loaded.python]


def _count(found: _Found, sources: Sequence[Path]) -> None:
    from toolexec.cli.known_tools import known_tools

    known = known_tools(sources) if sources else None
    if known is not None:
        found.tools, found.counted, found.logins = len(known.ids), known.at, known.logins
        found.problems += [f"{name} could not be reached: {reason}" for name, reason in known.unavailable]


def _clients(found: _Found) -> None:
    from toolexec.config.clients import CLIENTS, Machine
    from toolexec.config.installing import entry_of

    machine = Machine()
    for client in CLIENTS.values():
        for scope in client.scopes:
            try:
                if entry_of(client, scope, machine, "toolexec") is not None and client.title not in found.clients:
                    found.clients.append(client.title)
            except ConfigurationError:
                continue  # it is the client's own file, and the client says so


def _show(screen: Screen, found: _Found) -> None:
    from rich.table import Table
    from rich.text import Text

    from toolexec.model.visible import visible_line
    from toolexec.version import __version__

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, text in _rows(found):
        table.add_row(name, Text(visible_line(text, 400)))
    screen.show(Text(f"toolexec {__version__}", style="bold"), Text(), table)
    problems = found.problems[:_MOST_PROBLEMS]
    if problems:
        screen.show(Text(), Text("Problems", style="bold"))
        for each in problems:
            screen.show(Text(f"  {visible_line(each, 300)}", style="yellow"))
        if len(found.problems) > len(problems):
            screen.show(Text(f"  and {len(found.problems) - len(problems)} more", style="dim"))
    command, why = found.next_step()
    screen.show(Text(), Text.assemble(("Next: ", "bold"), (command, "cyan")), Text(f"      {why}", style="dim"))


def _rows(found: _Found) -> list[tuple[str, str]]:
    rows = [("Settings", ", ".join(found.files) or "none: no file in this directory, and none named with -c")]
    if found.broken:
        return rows
    servers = _names(found.servers) + (f"; switched off: {_names(found.off)}" if found.off else "")
    rows.append(("Servers", servers or "none"))
    rows += [("Providers", _names(found.providers))] if found.providers else []
    rows += [("Python", _names(found.python))] if found.python else []
    if found.tools is not None:
        rows.append(("Tools", f"{found.tools}, counted {_age(found.counted or 0.0)}"))
    elif found.servers or found.providers or found.python:
        rows.append(("Tools", "not counted yet"))
    rows.append(("Clients", ", ".join(found.clients) or "none is set up"))
    return rows


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{len(names)}: {', '.join(names[:_MOST_NAMES])}{more}" if names else ""


def _age(at: float) -> str:
    passed = max(time.time() - at, 0.0)
    for least, unit, name in _AGES:
        if passed >= least:
            return f"{int(passed // unit)} {name}s ago"
    return "just now"
