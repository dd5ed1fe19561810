"""Tools of MCP servers; needs the `mcp` extra (the configuration alone does not)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.backend.mcp.config import MCPServer, MCPSettings, MCPTransport
from toolexec.backend.mcp.files import read_mcp_servers
from toolexec.backend.mcp.sandbox import ServerSandboxSettings
from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.backend.mcp.backend import MCPBackend
else:
    __getattr__, __dir__ = lazy_names(
        __name__, {"toolexec.backend.mcp.backend": ("MCPBackend",)}, extra="mcp", needed_for="talking to MCP servers"
    )

__all__ = ["MCPBackend", "MCPServer", "MCPSettings", "MCPTransport", "ServerSandboxSettings", "read_mcp_servers"]
