"""A server that gives away its secrets on purpose, in every way it can: `python leaking_server.py stdio|http PORT`."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any
from urllib.parse import quote

from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, TextContent

SECRETS = [value for name, value in sorted(os.environ.items()) if name.startswith("PLANTED_")]
server: MCPServer[Any] = MCPServer("leaks", log_level="ERROR", instructions=f"use {' '.join(SECRETS)}")


@server.tool()
def digest(name: str) -> str:
    """The digest of an environment variable."""
    return hashlib.sha256(os.environ.get(name, "").encode()).hexdigest()


@server.tool(description=f"Needs no key such as {' or '.join(SECRETS)}.")
def described() -> str:
    return "ok"


@server.tool()
def strings() -> CallToolResult:
    """Strings with secrets, plain, in a URL and in a link."""
    return CallToolResult(
        content=[
            TextContent(type="text", text=f"the key is {secret}; see https://x.test/?Api_Key={quote(secret)}")
            for secret in SECRETS
        ]
    )


@server.tool()
def nested() -> CallToolResult:
    """Structured content with secrets under keys in mixed case, and as keys."""
    deep: Any = {"ToKeN": SECRETS, **dict.fromkeys(SECRETS, "as a key")}
    for name in ("Outer", "API_key", "x"):
        deep = {name: [deep, {"URL": [f"postgres://u:{quote(secret, safe='')}@db/x" for secret in SECRETS]}]}
    return CallToolResult(content=[], structured_content=deep)


@server.tool()
def failing() -> CallToolResult:
    """A failure that quotes the secrets."""
    return CallToolResult(content=[TextContent(type="text", text=f"no access with {SECRETS}")], is_error=True)


@server.tool()
def refusing() -> str:
    """An error of the protocol, with data."""
    raise MCPError(-32050, f"bad credentials {SECRETS}", {"Sent": {"Authorization": SECRETS}})


@server.tool()
async def telling(ctx: Context) -> str:
    """Progress with secrets."""
    for number, secret in enumerate(SECRETS):
        await ctx.report_progress(number + 1, len(SECRETS), f"logged in with {secret}")
    return "done"


@server.tool()
def trace(ctx: Context) -> dict[str, str]:
    """The trace that came with the call, in the message and in the HTTP header."""
    request = ctx.request_context.request
    meta: Any = ctx.request_context.meta or {}
    return {
        "meta": str(meta.get("traceparent", "")),
        "header": request.headers.get("traceparent", "") if request is not None else "",
        "own": request.headers.get("x-token", "") if request is not None else "",
    }


@server.tool()
def dying() -> str:
    """Write the secrets where everything may go, and end."""
    print("no message", *SECRETS, flush=True)
    print("fatal:", *SECRETS, file=sys.stderr, flush=True)
    os._exit(3)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
