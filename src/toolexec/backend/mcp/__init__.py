"""Tools of MCP servers; needs the `mcp` extra (the configuration alone does not)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolexec.backend.mcp.config import MCPServer, MCPSettings, MCPTransport
from toolexec.backend.mcp.files import read_mcp_servers
from toolexec.errors import MissingExtraError

if TYPE_CHECKING:
    from toolexec.backend.mcp.backend import MCPBackend

__all__ = ["MCPBackend", "MCPServer", "MCPSettings", "MCPTransport", "read_mcp_servers"]


def __getattr__(name: str) -> Any:
    if name != "MCPBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from toolexec.backend.mcp.backend import MCPBackend
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("mcp", "anyio")):
            raise
        raise MissingExtraError("mcp", needed_for="talking to MCP servers") from error
    return MCPBackend
