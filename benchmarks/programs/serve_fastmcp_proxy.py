"""FastMCP's proxy over the MCP server whose command line it is given, on stdio or, with `--http PORT` before it, over
HTTP. Runs in the peers' environment."""

from __future__ import annotations

import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


def main() -> None:
    """Serve until stdin ends, or until SIGTERM, with one connection to the backend for all calls."""
    port = int(sys.argv[2]) if sys.argv[1] == "--http" else 0
    program, *args = sys.argv[3 if port else 1 :]
    proxy = create_proxy(Client(StdioTransport(command=program, args=args, keep_alive=True)), name="proxy")
    if port:
        proxy.run(transport="http", host="127.0.0.1", port=port, show_banner=False, log_level="error")
    else:
        proxy.run(transport="stdio", show_banner=False)


if __name__ == "__main__":
    main()
