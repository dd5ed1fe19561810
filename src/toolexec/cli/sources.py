"""Which files a command reads, and the `Exec` that they define."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.config.build import Built
    from toolexec.exec import Exec
    from toolexec.model.origin import Approver

VARIABLE: Final = "TOOLEXEC_CONFIG"
DEFAULT_FILES: Final = ("toolexec.toml", "toolexec.yaml", "toolexec.yml", "toolexec.json", "mcp.json", ".mcp.json")


@dataclass(frozen=True, slots=True)
class Sources:
    """The files that tools come from; `implied` when they were not named but found in the current directory."""

    files: tuple[Path, ...]
    implied: bool = False


def find_sources(given: Sequence[Path]) -> Sources:
    """Return those given, else those of $TOOLEXEC_CONFIG, else the first of `DEFAULT_FILES` in the working directory.

    Raises ConfigurationError when there is none.
    """
    if given:
        return Sources(tuple(given))
    listed = [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    if listed:
        return Sources(tuple(map(Path, listed)))
    for name in DEFAULT_FILES:
        if Path(name).is_file():
            return Sources((Path(name),), implied=True)
    raise ConfigurationError(
        "no tools: say where they come from with -c app.py (Python functions), -c mcp.json (MCP servers), "
        f"-c openapi.yaml (an API) or -c toolexec.toml (all of them, and all settings), set {VARIABLE}, or put one of "
        f"{', '.join(DEFAULT_FILES)} into the current directory; toolexec init writes toolexec.toml, toolexec demo "
        "needs none of it"
    )


def load_exec(files: Sequence[Path]) -> Exec:
    """Return an Exec with everything that *files* define; see `build_from`."""
    return build_from(files).ex


def build_from(files: Sequence[Path]) -> Built:
    """Return an Exec with everything that *files* and the environment define.

    The servers of TOML, YAML and JSON files are added, and their settings hold. A Python file's module-level Exec is
    used as it is (named `ex`, `app`, or the only one); without one, every tool declared with `@tool` and every Tool
    that the module holds is added. Raises ConfigurationError: a file cannot be read, fails, defines nothing, or clashes
    with another; also as `load_settings` and `build` do.
    """
    from toolexec.config.build import build
    from toolexec.config.load import load_settings

    return build(load_settings(files, environment=os.environ), terminal=_terminal)


def _terminal() -> Approver | None:
    from toolexec.cli.approval_prompt import terminal_approver

    return terminal_approver()
