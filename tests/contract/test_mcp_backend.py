"""The contract suite for backends against the MCP backend, over stdio and HTTP and with both protocol versions."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.engines.programs import free_port
from tests.servers import server_environment

from toolexec.backend import Backend
from toolexec.backend.mcp import MCPBackend, MCPServer
from toolexec.testing.backend_suite import BACKEND_CHECKS, MakeBackend, run_backend_check

pytestmark = pytest.mark.full

PROGRAM = str(Path(__file__).parents[1] / "backend" / "mcp" / "sdk_server.py")


def maker(server: MCPServer) -> MakeBackend:
    """Make the backend that the suite checks."""

    @asynccontextmanager
    async def make() -> AsyncIterator[Backend]:
        backend = MCPBackend(server)
        await backend.start()
        try:
            yield backend
        finally:
            await backend.aclose()

    return make


@pytest.fixture(scope="module", params=["old", "new"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """One HTTP server of each era for all checks."""
    port = free_port()
    command = [sys.executable, PROGRAM, "http", request.param, str(port)]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nowhere, stderr=nowhere, env=server_environment()) as process:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


@pytest.mark.parametrize("check", BACKEND_CHECKS)
async def test_contract_over_stdio(check: str) -> None:
    """A server in a child process, in the modern era."""
    server = MCPServer(name="suite", command=sys.executable, args=[PROGRAM, "stdio", "new", "0"])
    await run_backend_check(maker(server), check)


@pytest.mark.parametrize("check", BACKEND_CHECKS)
async def test_contract_over_http(address: str, check: str) -> None:
    """A server behind streamable HTTP."""
    await run_backend_check(maker(MCPServer(name="suite", url=address)), check)
