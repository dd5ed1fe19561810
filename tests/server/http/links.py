"""Raw clients of the handshake era that lose their connection and come back, and servers over one file."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
from tests.server.http.conftest import INITIALIZE, JSON_HEADERS, Running, Serve
from tests.waiting import until

from toolexec import Exec, Gate, Policy, Rule, ToolContext
from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings
from toolexec.server.settings import ServeSettings

AUTH = AuthSettings(api_keys=tuple(ApiKey(id=name, sha256=hash_key(f"{name}'s")) for name in ("ann", "bob")))
ANN, BOB = ({"authorization": f"Bearer {name}'s"} for name in ("ann", "bob"))
PAY = {"name": "run_tool", "arguments": {"tool_id": "shop:pay"}}


class Shop:
    """A tool that says when it runs, and answers when it may."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.may_end = asyncio.Event()
        self.runs = 0

    def ex(self, *, asks: bool = False) -> Exec:
        ex = Exec(gate=Gate(policy=Policy([Rule("ask", tools=["shop:*"])]))) if asks else Exec()

        async def pay(context: ToolContext) -> str:
            self.runs += 1
            self.running.set()
            await self.may_end.wait()
            return "paid " + "twice" * (self.runs - 1)

        ex.add(pay, "shop:pay")
        return ex


class Link:
    """A raw client at one server."""

    _numbers = itertools.count(2)

    def __init__(self, server: Running, tools: ToolServer) -> None:
        self.server = server
        self.tools = tools

    async def open(self, key: dict[str, str] = ANN, version: str = "2025-11-25") -> dict[str, str]:
        """Return the headers of a new session, of a client that can ask a person."""
        params = {**INITIALIZE["params"], "protocolVersion": version}  # type: ignore[dict-item]
        params["capabilities"] = {"elicitation": {"form": {}}}
        answer = await self.server.post({**INITIALIZE, "params": params}, key)
        headers = {**key, "mcp-protocol-version": version, "mcp-session-id": answer.headers["mcp-session-id"]}
        await self.server.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
        return headers

    @asynccontextmanager
    async def called(
        self, session: dict[str, str], request: int | str = 7, params: Any = PAY, method: str = "tools/call"
    ) -> AsyncIterator[AsyncIterator[Any]]:
        """Call `shop:pay`; its events come out of what the block gets, and at its end the client is gone."""
        message = {"jsonrpc": "2.0", "id": request, "method": method, "params": params}
        async with httpx2.AsyncClient(timeout=20, verify=False) as client:
            headers = {**JSON_HEADERS, **session}
            async with client.stream("POST", self.server.url, json=message, headers=headers) as answer:
                yield events(answer)

    @asynccontextmanager
    async def listening(self, session: dict[str, str], last: str = "") -> AsyncIterator[AsyncIterator[Any]]:
        """Listen to a stream, from the event *last* on if there is one; its events come out of what the block gets."""
        headers = {"accept": "text/event-stream", **session, **({"last-event-id": last} if last else {})}
        async with httpx2.AsyncClient(timeout=20, verify=False) as client:
            async with client.stream("GET", self.server.url, headers=headers) as answer:
                assert answer.status_code == 200
                yield events(answer)

    async def answer(self, session: dict[str, str], request: Any, result: Any) -> int:
        """Answer a request of the server; return the status."""
        return (await self.server.post({"jsonrpc": "2.0", "id": request, "result": result}, session)).status_code

    async def back(self, session: dict[str, str], last: str) -> tuple[int, list[Any]]:
        """Come back after the event *last*; return the status, and what comes until the stream is over."""
        headers = {"accept": "text/event-stream", **session, "last-event-id": last}
        async with httpx2.AsyncClient(timeout=20, verify=False) as client:
            async with client.stream("GET", self.server.url, headers=headers) as answer:
                return answer.status_code, [event async for event in events(answer)]


async def events(answer: httpx2.Response) -> AsyncIterator[tuple[str, Any]]:
    """Give the events of a stream: their ID, and the message, None for the first one, which has none."""
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("id:"):
            name = line[3:].strip()
        elif line.startswith("data:"):
            yield name, json.loads(line[5:]) if line[5:].strip() else None


class Servers:
    """Starts servers over one file, each as a process of its own would be."""

    def __init__(self, serve: Serve, path: Path, shop: Shop) -> None:
        self._serve, self.path, self._shop = serve, path, shop

    @asynccontextmanager
    async def up(self, *, kept: bool = True, asks: bool = False, json_response: bool = False) -> AsyncIterator[Link]:
        http = HttpSettings(port=0, shutdown_grace=0, json_response=json_response)
        settings = ServeSettings(state_path=str(self.path) if kept else "", http=http)
        async with ToolServer(self._shop.ex(asks=asks), settings) as tools:
            server = await self._serve(http, AUTH, tools)
            yield Link(server, tools)
            await server.end()


async def settled(path: Path, kind: str) -> None:
    """Wait until there is a record of a kind."""

    def has_one() -> bool:
        with closing(sqlite3.connect(path)) as database:
            return bool(database.execute("SELECT 1 FROM state WHERE kind = ?", (kind,)).fetchone())

    await until(has_one)


def text(message: Any) -> str:
    """Return what a tool has answered."""
    return message["result"]["content"][0]["text"]


async def lost(link: Link, session: dict[str, str], shop: Shop, request: int | str = 7) -> str:
    """Call, and lose the connection while the tool runs; return the ID of the last event."""
    async with link.called(session, request) as answer:
        name, nothing = await anext(answer)
        assert nothing is None
        await shop.running.wait()
    return name
