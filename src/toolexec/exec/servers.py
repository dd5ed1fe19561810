"""MCP servers as `Exec.add_mcp` takes them."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.backend.mcp import MCPServer, MCPSettings
from toolexec.errors import ConfigurationError
from toolexec.model.settings import check_settings
from toolexec.runtime.servers import server_sandboxes

if TYPE_CHECKING:
    from toolexec.backend.mcp import MCPBackend

__all__ = ["mcp_server", "server_backend"]


class _AddedMCP(MCPSettings):
    """All that `Exec.add_mcp` takes."""

    name: str
    command: str | Sequence[str]
    args: Sequence[str]
    url: str


def mcp_server(
    name: str, command: str | Sequence[str], args: Sequence[str], url: str, settings: MCPSettings
) -> MCPServer:
    """Return the server that these say how to reach; raises ConfigurationError for unknown settings and invalid values.

    A *command* without *args* may be a whole command line.
    """
    check_settings("add_mcp", _AddedMCP, {"name": name, "command": command, "args": args, "url": url, **settings})
    program, *rest = _words(command, args)
    return MCPServer(name=name, command=program, args=(*rest, *args), url=url, **settings)


def server_backend(server: MCPServer, runtime_backends: object = None) -> MCPBackend:
    """Return the backend of a server; *runtime_backends* of the options may say where the engines of sandboxes are.

    Raises ConfigurationError, and MissingExtraError without the `mcp` extra.
    """
    from toolexec.backend.mcp import MCPBackend

    if server.boxed is None:
        return MCPBackend(server)
    from toolexec.runtime.sandbox_settings import SandboxSettings

    settings = runtime_backends if isinstance(runtime_backends, SandboxSettings) else None
    return MCPBackend(server, sandboxes=server_sandboxes(settings))


def _words(command: str | Sequence[str], args: Sequence[str]) -> list[str]:
    """Return the words of a command line; a program whose path has blanks in it is one word."""
    if not isinstance(command, str):
        return [*command] or [""]
    if not command or args or shutil.which(command) or Path(command).exists():
        return [command]
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"cannot read the command line {command!r}: {error}") from error
