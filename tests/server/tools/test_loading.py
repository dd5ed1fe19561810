"""What the first program of a server loads, and where."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import asyncio
import sys
import threading

from mcp.client import Client
from mcp.client._memory import InMemoryTransport
from toolexec import Exec
from toolexec.server.app import ToolServer
from toolexec.server.settings import ServeSettings

threads = {}


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("toolexec.runtime.containers."):
            threads.setdefault(threading.current_thread() is threading.main_thread(), []).append(name)
        return None


async def main():
    sys.meta_path.insert(0, Finder())
    async with ToolServer(Exec(), ServeSettings(expose="code")) as server:
        async with Client(InMemoryTransport(server.lowlevel)) as client:
            assert not threads, threads
            reply = await client.call_tool("execute_code", {"code": "return 1 + 1"})
            assert reply.structured_content["value"] == 2, reply
    assert [*threads] == [False], threads


asyncio.run(main())
"""


def test_sandboxes_are_imported_in_a_thread() -> None:
    """The event loop, which serves all callers, imports no sandbox: neither at the start nor with the first program."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
