"""FastMCP's proxy over the MCP server whose command line it is given, on stdio. Runs in the peers' environment."""

from __future__ import annotations

import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


def main() -> None:
    """Serve until stdin ends, with one connection to the backend for all calls."""
    program, *args = sys.argv[1:]
    transport = StdioTransport(command=program, args=args, keep_alive=True)
    create_proxy(Client(transport), name="proxy").run(transport="stdio", show_banner=False)


if __name__ == "__main__":
    main()
