"""Servers for the tests of the MCP backend, as real child processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests import waiting
from tests.engines.programs import free_port
from tests.servers import server_environment

from toolexec.backend.mcp import MCPBackend, MCPServer
from toolexec.testing.mcp_server import ScriptedServer

SDK_SERVER = str(Path(__file__).with_name("sdk_server.py"))
PATIENCE = 30.0


class HttpServer:
    """A server process on a loopback port, which can be killed and started again on the same port."""

    def __init__(self, transport: str, era: str, script: str = SDK_SERVER) -> None:
        self.script = script
        self.transport, self.era, self.port = transport, era, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{'sse' if self.transport == 'sse' else 'mcp'}"

    def start(self) -> None:
        command = [sys.executable, self.script, self.transport, self.era, str(self.port)]
        nowhere = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, env=server_environment())
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as made:
                if made.getsockname() != made.getpeername():  # a free port may be that of the attempt itself
                    return
            assert self.process.poll() is None, f"the server exited with {self.process.returncode}"
            time.sleep(0.02)
        raise AssertionError("the server did not come up")

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def http_server() -> Iterator[Callable[..., HttpServer]]:
    """Start an SDK server: `http_server("http" or "sse", "old" or "new")`, perhaps with another script."""
    servers: list[HttpServer] = []

    def make(transport: str, era: str, script: str = SDK_SERVER) -> HttpServer:
        server = HttpServer(transport, era, script)
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.kill()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., MCPBackend]]:
    """Make a backend for a scripted server, a URL or a command; it is closed after the test."""
    backends: list[MCPBackend] = []

    def make(target: ScriptedServer | str | list[str], **settings: object) -> MCPBackend:
        settings = {"name": "s", "stop_timeout": 0.5, **settings}
        if isinstance(target, str):
            server = MCPServer(url=target, **settings)  # type: ignore[arg-type]
        else:
            command, *args = target.command() if isinstance(target, ScriptedServer) else target
            server = MCPServer(command=command, args=args, **settings)  # type: ignore[arg-type]
        backends.append(MCPBackend(server))
        return backends[-1]

    yield make
    for backend in backends:
        await backend.aclose()


@pytest.fixture
def until() -> Callable[..., Awaitable[object]]:
    """Poll until a condition holds: `await until(lambda: ...)`."""
    return waiting.until


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    """Return whether a process runs (a zombie does not)."""

    def check(pid: int) -> bool:
        try:
            os.kill(pid, 0)
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (ProcessLookupError, FileNotFoundError):
            return False

    return check
