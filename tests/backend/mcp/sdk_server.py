"""A server made with the official SDK, run as a child process: `python sdk_server.py stdio|http|sse ERA PORT`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import METHOD_NOT_FOUND, AudioContent, CallToolResult, ImageContent, ResourceLink, TextContent


async def handshake_only(ctx: Any, call_next: Any) -> Any:
    """Answer the newer protocol as a server from before 2026 does."""
    if ctx.method == "server/discover":
        raise MCPError(METHOD_NOT_FOUND, "unknown method")
    return await call_next(ctx)


def make(era: str) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("sdk", log_level="ERROR", middleware=[handshake_only] if era == "old" else [])

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def steps(ctx: Context, count: int = 3) -> str:
        """Report progress."""
        for step in range(1, count + 1):
            await ctx.report_progress(step, count, f"step {step}")
        return "done"

    @server.tool()
    async def wait(seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "waited"

    @server.tool()
    def size(text: str) -> int:
        """The length of a text."""
        return len(text)

    @server.tool()
    def big(characters: int) -> CallToolResult:
        """A long text."""
        return CallToolResult(content=[TextContent(type="text", text="x" * characters)])

    @server.tool()
    def parts() -> CallToolResult:
        """Several kinds of content."""
        return CallToolResult(
            content=[
                TextContent(type="text", text="hello"),
                ImageContent(type="image", data="aGk=", mime_type="image/png"),
                AudioContent(type="audio", data="aGk=", mime_type="audio/wav"),
                ResourceLink(type="resource_link", uri="file:///a.txt", name="a"),
            ]
        )

    @server.tool()
    def fail() -> CallToolResult:
        """Report an error."""
        return CallToolResult(content=[TextContent(type="text", text="failed on purpose")], is_error=True)

    @server.tool()
    def header(ctx: Context, name: str) -> str:
        """A header of the request."""
        request = ctx.request_context.request
        return request.headers.get(name, "") if request is not None else ""

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Get a new tool and say so."""

        def grown() -> str:
            """New here."""
            return "grown"

        server.add_tool(grown)
        if era == "old":
            await ctx.session.send_tool_list_changed()
        else:
            await ctx.notify_tools_changed()
        return "ok"

    add_suite_tools(server)
    return server


def add_suite_tools(server: MCPServer[Any]) -> None:
    """Add the tools that the contract suite for backends needs."""
    under_way: list[str] = []

    @server.tool()
    def echo(value: Any) -> CallToolResult:
        """Answer the value."""
        return CallToolResult(content=[], structured_content={"result": value})

    @server.tool()
    async def slow() -> str:
        """Take a minute."""
        under_way.append("slow")
        try:
            await asyncio.sleep(60)
        finally:
            under_way.remove("slow")
        return "at last"

    @server.tool()
    def running() -> int:
        """How many calls of slow and forever are under way."""
        return len(under_way)

    @server.tool()
    async def count(ctx: Context, to: int) -> str:
        """Count."""
        for number in range(to):
            await ctx.report_progress(number + 1, to)
        return "done"

    @server.tool()
    async def forever(ctx: Context) -> str:
        """Count without end."""
        under_way.append("forever")
        number = 0
        try:
            while True:
                number += 1
                await ctx.report_progress(number)
                await asyncio.sleep(0.01)
        finally:
            under_way.remove("forever")


def main() -> None:
    transport, era, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    server = make(era)
    if transport == "stdio":
        server.run("stdio")
    elif transport == "http":
        server.run("streamable-http", port=port)
    else:
        server.run("sse", port=port)


if __name__ == "__main__":
    main()
