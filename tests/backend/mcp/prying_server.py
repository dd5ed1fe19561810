"""A server that tries to get at what is not its own, and says what came of it: `python prying_server.py`."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import urllib.request
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server: MCPServer[object] = MCPServer("prying", log_level="ERROR")


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@server.tool()
def read(path: str) -> str:
    """What a file has in it."""
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
    """What is in a directory."""
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
def fetch(url: str) -> str:
    """Ask for a page, as a program does that goes by its variables."""
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.read().decode()
    except OSError as error:
        return said(error)


@server.tool()
def variables() -> dict[str, str]:
    """Its environment."""
    return dict(os.environ)


@server.tool()
def who() -> list[int]:
    """Its user, its group, its capabilities, and how many processes it sees."""
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


@server.tool()
def leave_one_behind() -> int:
    """Start a process that outlives this one, if it can."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        time.sleep(600)
        os._exit(0)
    return pid


@server.tool()
def end(code: int) -> None:
    """End at once."""
    print("giving up", file=sys.stderr, flush=True)
    os._exit(code)


if __name__ == "__main__":
    if "needs-network" in sys.argv:
        socket.create_connection(("registry.example.com", 443))
    server.run("stdio")
