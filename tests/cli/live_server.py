"""A `toolexec serve` process over HTTP whose settings change while it runs, and callers that talk to it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from tests.waiting import PATIENCE

_INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


def write(file: Path, text: str) -> None:
    """Replace a file as a whole."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@dataclass
class LiveServer:
    """The process, where it listens, and what it has said on stderr."""

    process: asyncio.subprocess.Process
    url: str = ""
    lines: list[str] = field(default_factory=list[str])
    read: int = 0
    more: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def listen(self) -> None:
        """Read stderr until it ends."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self.more:
                self.lines.append(line.decode())
                self.more.notify_all()

    async def said(self, words: str) -> str:
        """Wait for the next line with these words."""
        async with asyncio.timeout(PATIENCE), self.more:
            while True:
                while self.read < len(self.lines):
                    self.read += 1
                    if words in self.lines[self.read - 1]:
                        return self.lines[self.read - 1]
                await self.more.wait()


@dataclass
class Caller:
    """One session of one client."""

    url: str
    client: httpx2.AsyncClient
    session: str = ""
    asked: int = 0

    async def open(self) -> None:
        """Begin the session."""
        reply = await self._post("initialize", _INITIALIZE)
        self.session = reply.headers["mcp-session-id"]

    async def call(self, tool: str, **args: Any) -> Any:
        """Run a tool through the server, and return the structured content of the reply; fails for an error."""
        reply = await self._post("tools/call", {"name": "run_tool", "arguments": {"tool_id": tool, "args": args}})
        assert reply.status_code == 200, reply.text
        [answer] = [each for line in reply.text.splitlines() if "result" in (each := _message(line)) or "error" in each]
        assert not answer.get("error"), answer
        result = answer["result"]
        assert not result.get("isError"), result
        return result

    async def _post(self, method: str, params: dict[str, Any]) -> httpx2.Response:
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
        if self.session:
            headers["mcp-session-id"] = self.session
        self.asked += 1
        data = {"jsonrpc": "2.0", "id": self.asked, "method": method, "params": params}
        return await self.client.post(self.url, json=data, headers=headers)


def _message(line: str) -> dict[str, Any]:
    """Return the message in a line of a stream of events, or in a whole answer."""
    data = line.removeprefix("data:").strip()
    found: dict[str, Any] = json.loads(data) if data.startswith("{") else {}
    return found


@asynccontextmanager
async def live_server(file: Path, *options: str) -> AsyncGenerator[LiveServer]:
    """Serve what *file* says on a free port; it is ready when this yields."""
    command = Path(sys.executable).with_name("toolexec")
    words = ["serve", "-t", "http", "--port", "0", "--log-level", "info", *options, "-c", str(file)]
    process = await asyncio.create_subprocess_exec(command, *words, stderr=asyncio.subprocess.PIPE)
    server = LiveServer(process)
    reading = asyncio.create_task(server.listen())
    try:
        server.url = (await server.said(" at http://")).partition(" at ")[2].split()[0]
        await server.said("nothing has changed")
        yield server
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await reading
