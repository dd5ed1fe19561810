"""The programs that can start `toolexec serve`: where each keeps its servers, and how it writes one down."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from toolexec.backend.secrets import FILL_IN
from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict

Scope: TypeAlias = Literal["user", "project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Whose programs they are; the defaults are this user, in this directory, on this machine."""

    home: Path = field(default_factory=Path.home)
    directory: Path = field(default_factory=Path.cwd)
    platform: str = sys.platform
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def base(self) -> Path:
        """The directory in which programs with windows keep the settings of a user."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return Path(self.environment.get("APPDATA") or self.home / "AppData" / "Roaming")
        return self.config

    @property
    def config(self) -> Path:
        """`$XDG_CONFIG_HOME`, else `~/.config`."""
        return Path(self.environment.get("XDG_CONFIG_HOME") or self.home / ".config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One program. `user` and `project` are where its file is: a path below the directory that it begins with; an empty
    `project` means that the program has no file for a project. `servers` is the key of the table of servers, and
    `reference` is how a value names a variable of the program's own environment, if it can."""

    name: str
    title: str
    user: str
    project: str = ""
    servers: str = "mcpServers"
    reference: str = ""
    fixed: Mapping[str, str] = field(default_factory=dict[str, str])
    asks: bool = False
    """Whether the program asks the user for a value, and keeps it: then nothing of it is in the file."""
    passes: str = ""
    """The key of a list of variables that the program passes on, where it has one."""
    after: str = "restart it"

    @property
    def toml(self) -> bool:
        """Whether its file is TOML; else it is JSON, with comments where the program takes them."""
        return self.user.endswith(".toml")

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Where it can be set up."""
        return ("user", "project") if self.project else ("user",)

    def file(self, scope: Scope, machine: Machine) -> Path:
        """Return its file; raises ConfigurationError for a scope that the program does not have."""
        if scope == "project":
            if not self.project:
                raise ConfigurationError(f"{self.title} has no file for a project; use --scope user")
            return machine.directory / self.project
        first, _, rest = self.user.partition("/")
        if first == "$BASE":
            return machine.base / rest
        if first == "$ZED":
            return (machine.base / "Zed" if machine.platform == "win32" else _zed(machine)) / rest
        if first.startswith("$"):  # a directory of its own, which a variable may name
            own = machine.environment.get(first[1:], "")
            return Path(own) / rest if own else machine.home / _OWN[first] / rest
        return machine.home / self.user

    def entry(self, command: str, args: Sequence[str], variables: Sequence[str]) -> JSONDict:
        """Return what starts the server, without the value of any of *variables*: the program asks for each, passes it
        on, or looks it up; where it can do none of these, the user fills it in."""
        made: JSONDict = {**self.fixed, "command": command, "args": [*args]}
        if variables and self.passes:
            made[self.passes] = [*variables]
        elif variables:
            made["env"] = {each: self._value(each) for each in variables}
        return made

    def inputs(self, name: str, variables: Sequence[str]) -> list[JSONDict]:
        """Return what the program asks the user for."""
        if not self.asks:
            return []
        return [
            {"type": "promptString", "id": each, "description": f"{each}, for {name}", "password": True}
            for each in variables
        ]

    @property
    def fills_in(self) -> bool:
        """Whether the user has to write values into the file."""
        return not (self.asks or self.passes or self.reference)

    def _value(self, variable: str) -> str:
        if self.asks:
            return f"${{input:{variable}}}"
        return self.reference.replace("NAME", variable) if self.reference else FILL_IN


_OWN: Final = {"$CODEX_HOME": ".codex", "$CLAUDE_CONFIG_DIR": ""}


def _zed(machine: Machine) -> Path:
    return (machine.home / ".config" if machine.platform == "darwin" else machine.config) / "zed"


CLIENTS: Final[Mapping[str, Client]] = {
    each.name: each
    for each in (
        Client(
            name="claude",
            title="Claude Code",
            user="$CLAUDE_CONFIG_DIR/.claude.json",
            project=".mcp.json",
            fixed={"type": "stdio"},
            reference=f"${{NAME:-{FILL_IN}}}",  # one that is not set would make it refuse the whole file
            after="start it again, then /mcp shows it",
        ),
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            user="$BASE/Claude/claude_desktop_config.json",
            after="quit it and start it again",
        ),
        Client(
            name="cursor",
            title="Cursor",
            user=".cursor/mcp.json",
            project=".cursor/mcp.json",
            reference="${env:NAME}",
            after="switch it on in Settings, MCP",
        ),
        Client(
            name="vscode",
            title="VS Code",
            user="$BASE/Code/User/mcp.json",
            project=".vscode/mcp.json",
            servers="servers",
            fixed={"type": "stdio"},
            asks=True,
            after="run the command MCP: List Servers, and start it",
        ),
        Client(
            name="codex",
            title="Codex",
            user="$CODEX_HOME/config.toml",
            project=".codex/config.toml",
            servers="mcp_servers",
            passes="env_vars",
            after="start it again, then /mcp shows it",
        ),
        Client(
            name="windsurf",
            title="Windsurf",
            user=".codeium/windsurf/mcp_config.json",
            reference="${env:NAME}",
            after="press Refresh in the MCP panel",
        ),
        Client(
            name="zed",
            title="Zed",
            user="$ZED/settings.json",
            project=".zed/settings.json",
            servers="context_servers",
            fixed={"source": "custom"},
            after="it starts by itself; the settings of the Agent Panel show it",
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            user=".gemini/settings.json",
            project=".gemini/settings.json",
            reference="${NAME}",
            after="start it again, then /mcp shows it",
        ),
    )
}
"""The programs by name, in the order in which they are listed."""
