"""MCP servers as `Exec.add_mcp` takes them."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.backend.mcp import MCPServer, MCPSettings
from toolexec.backend.mcp.sandbox import ServerProgram
from toolexec.errors import ConfigurationError, SandboxError
from toolexec.model.settings import check_settings
from toolexec.runtime.servers import server_sandboxes

if TYPE_CHECKING:
    from toolexec.backend.mcp import MCPBackend
    from toolexec.backend.mcp.sandbox import MakeServerSandbox


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

    return MCPBackend(server) if server.boxed is None else MCPBackend(server, sandboxes=_sandboxes(runtime_backends))


async def sandbox_problem(server: MCPServer, runtime_backends: object = None) -> str:
    """Return why a server cannot be started in its sandbox here, and what to do about it; "" if nothing is wrong, and
    for a server without one. The server itself is not started. *runtime_backends* as for `server_backend`."""
    if server.boxed is None:
        return ""
    try:
        sandbox = _sandboxes(runtime_backends)(server.boxed)
        try:
            cwd = Path(server.cwd) if server.cwd is not None else None
            await sandbox.check(ServerProgram(argv=[server.command], env=server.env, cwd=cwd))
        finally:
            await sandbox.aclose()
    except FileNotFoundError:
        return f"the command {server.command!r} was not found; is it installed and on PATH?"
    except (ConfigurationError, SandboxError) as error:
        return error.message
    return ""


def _sandboxes(runtime_backends: object) -> MakeServerSandbox:
    from toolexec.runtime.sandbox_settings import SandboxSettings

    return server_sandboxes(runtime_backends if isinstance(runtime_backends, SandboxSettings) else None)


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
