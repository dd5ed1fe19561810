"""A server that keeps notes for each session, as servers of the handshake era do: `python counting_server.py`."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import METHOD_NOT_FOUND


async def handshake_only(ctx: Any, call_next: Any) -> Any:
    """Answer the newer protocol as a server from before 2026 does."""
    if ctx.method == "server/discover":
        raise MCPError(METHOD_NOT_FOUND, "unknown method")
    return await call_next(ctx)


def make() -> MCPServer[Any]:
    """Return a server with a memory for each of its sessions; over stdio there is one."""
    server: MCPServer[Any] = MCPServer("counting", log_level="ERROR", middleware=[handshake_only])
    notes: defaultdict[str, list[str]] = defaultdict(list)

    def session_of(ctx: Context) -> str:
        request = ctx.request_context.request
        return str(request.headers["mcp-session-id"]) if request is not None else f"process {os.getpid()}"

    @server.tool()
    def remember(note: str, ctx: Context) -> int:
        """Remember a note, and say how many there are."""
        notes[session_of(ctx)].append(note)
        return len(notes[session_of(ctx)])

    @server.tool()
    def recall(ctx: Context) -> list[str]:
        """Say the session, and all its notes."""
        return [session_of(ctx), *notes[session_of(ctx)]]

    @server.resource("notes://{kind}")
    def everything(kind: str, ctx: Context) -> str:
        return ",".join(notes[session_of(ctx)])

    return server


if __name__ == "__main__":
    make().run("stdio")
