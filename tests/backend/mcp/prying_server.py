"""A server that tries to get at what is not its own, and says what came of it: `python prying_server.py`."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server: MCPServer[object] = MCPServer("prying", log_level="ERROR")


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@server.tool()
def read(path: str) -> str:
    """Return what a file has in it."""
    try:
        return Path(path).read_text()
    except OSError as error:
        return said(error)


@server.tool()
def write(path: str, text: str) -> str:
    """Write a file."""
    try:
        Path(path).write_text(text)
    except OSError as error:
        return said(error)
    return "written"


@server.tool()
def listed(path: str) -> list[str]:
    """Return what is in a directory."""
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return [said(error)]


@server.tool()
def connect(host: str, port: int) -> str:
    """Open a connection."""
    try:
        with socket.create_connection((host, port), timeout=3):
            return "connected"
    except OSError as error:
        return said(error)


@server.tool()
def variables() -> dict[str, str]:
    """Return its environment."""
    return dict(os.environ)


@server.tool()
def who() -> list[int]:
    """Return its user, its group, its capabilities, and how many processes it sees."""
    status = Path("/proc/self/status").read_text()
    able = int(status.split("CapEff:")[1].split()[0], 16)
    return [os.getuid(), os.getgid(), able, sum(name.isdigit() for name in os.listdir("/proc"))]


@server.tool()
def multiply() -> int:
    """Start processes until that fails; gives how many there were."""
    started = 0
    with contextlib.suppress(OSError):
        while started < 2000:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            started += 1
    return started


@server.tool()
def grow() -> int:
    """Take memory, a bit at a time."""
    kept = []
    for _ in range(4096):
        kept.append(b"x" * (1 << 20))
    return len(kept)


if __name__ == "__main__":
    server.run("stdio")
