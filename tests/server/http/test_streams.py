"""Event streams that a client comes back to, at the same server and at another one over the same file."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.server.http.conftest import INITIALIZE, JSON_HEADERS, Running, Serve

from toolexec import Exec, ToolContext
from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings
from toolexec.server.http.event_ids import EventID, request_id
from toolexec.server.http.stream import Ended, SessionLog, Stream
from toolexec.server.settings import ServeSettings

AUTH = AuthSettings(api_keys=tuple(ApiKey(id=name, sha256=hash_key(f"{name}'s")) for name in ("ann", "bob")))
ANN, BOB = ({"authorization": f"Bearer {name}'s"} for name in ("ann", "bob"))
VERSION = {"mcp-protocol-version": "2025-11-25"}
PAY = {"name": "run_tool", "arguments": {"tool_id": "shop:pay"}}


class Shop:
    """A tool that says when it runs, and answers when it may."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.may_end = asyncio.Event()
        self.runs = 0

    def ex(self) -> Exec:
        ex = Exec()

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
        """Return the headers of a new session."""
        params = {**INITIALIZE["params"], "protocolVersion": version}  # type: ignore[dict-item]
        answer = await self.server.post({**INITIALIZE, "params": params}, key)
        headers = {**key, "mcp-protocol-version": version, "mcp-session-id": answer.headers["mcp-session-id"]}
        await self.server.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
        return headers

    @asynccontextmanager
    async def called(self, session: dict[str, str], request: int | str = 7) -> AsyncIterator[AsyncIterator[Any]]:
        """Call `shop:pay`; its events come out of what the block gets, and at its end the client is gone."""
        message = {"jsonrpc": "2.0", "id": request, "method": "tools/call", "params": PAY}
        async with httpx2.AsyncClient(timeout=20, verify=False) as client:
            headers = {**JSON_HEADERS, **session}
            async with client.stream("POST", self.server.url, json=message, headers=headers) as answer:
                yield events(answer)

    async def back(self, session: dict[str, str], last: str) -> tuple[int, list[Any]]:
        """Come back after the event *last*; return the status, and what comes until the stream is over."""
        headers = {"accept": "text/event-stream", **session, "last-event-id": last}
        async with httpx2.AsyncClient(timeout=20, verify=False) as client:
            async with client.stream("GET", self.server.url, headers=headers) as answer:
                return answer.status_code, [event async for event in events(answer)]


async def events(answer: httpx2.Response) -> AsyncIterator[tuple[str, Any]]:
    """The events of a stream: their ID, and the message, None for the first one, which has none."""
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("id:"):
            name = line[3:].strip()
        elif line.startswith("data:"):
            yield name, json.loads(line[5:]) if line[5:].strip() else None


@pytest.fixture
def shop() -> Shop:
    """A shop that waits."""
    return Shop()


class Servers:
    """Starts servers over one file, each as a process of its own would be."""

    def __init__(self, serve: Serve, path: Path, shop: Shop) -> None:
        self._serve, self.path, self._shop = serve, path, shop

    @asynccontextmanager
    async def up(self, *, kept: bool = True) -> AsyncIterator[Link]:
        http = HttpSettings(port=0, shutdown_grace=0)
        settings = ServeSettings(state_path=str(self.path) if kept else "", http=http)
        async with ToolServer(self._shop.ex(), settings) as tools:
            server = await self._serve(http, AUTH, tools)
            yield Link(server, tools)
            await server.end()


@pytest.fixture
def servers(serve: Serve, tmp_path: Path, shop: Shop) -> Servers:
    """Servers over a new file."""
    return Servers(serve, tmp_path / "state" / "server.db", shop)


async def lost(link: Link, session: dict[str, str], shop: Shop, request: int | str = 7) -> str:
    """Call, and lose the connection while the tool runs; return the ID of the last event."""
    async with link.called(session, request) as answer:
        name, nothing = await anext(answer)
        assert nothing is None
        await shop.running.wait()
    return name


def text(message: Any) -> str:
    return message["result"]["content"][0]["text"]


@pytest.mark.parametrize("kept", [True, False])
async def test_comes_back_to_the_same_server(servers: Servers, shop: Shop, kept: bool) -> None:
    """A client that lost its connection gets the answer of its call, which is made once: while it is made, after it,
    and again; no other caller does."""
    async with servers.up(kept=kept) as link:
        session = await link.open()
        last = await lost(link, session, shop)
        waiting = asyncio.create_task(link.back(session, last))
        assert (await link.back({**session, **BOB}, last))[0] == 404
        shop.may_end.set()
        status, [(answered, message)] = await waiting
        assert (status, message["id"], text(message)) == (200, 7, "paid ")
        again = await link.back(session, last)
        assert again == (200, [(answered, message)])
        assert (await link.back(session, answered))[1] == []
        assert shop.runs == 1


@pytest.mark.parametrize("request_", [7, "7", "a b"])
async def test_an_answer_outlives_its_server(servers: Servers, shop: Shop, request_: int | str) -> None:
    """An answer that nobody was there to take is got from the next server, by its caller alone, under the ID that the
    request had; the file does not have it in clear."""
    async with servers.up() as link:
        session = await link.open()
        last = await lost(link, session, shop, request_)
        shop.may_end.set()
        await settled(servers.path, "result")
    assert b"paid" not in servers.path.read_bytes()
    async with servers.up() as link:
        assert (await link.back({**session, **BOB}, last))[0] == 404
        _, [(name, message)] = await link.back(session, last)
        assert (message["id"], text(message)) == (request_, "paid ")
        assert (await link.back(session, name))[1] == []
        other = await link.open(BOB)
        _, [(_, refused)] = await link.back(other, last)  # what it says of itself gives nobody anything
        assert refused["error"]["data"] == {"reason": "cut_off", "outcome": "unknown", "retryable": False}
    assert shop.runs == 1


async def settled(path: Path, kind: str) -> None:
    """Wait until there is a record of a kind."""
    import sqlite3

    for _ in range(500):
        with sqlite3.connect(path) as database:
            found = database.execute("SELECT count(*) FROM state WHERE kind = ?", (kind,)).fetchone()[0]
        database.close()
        if found:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"there is no record of a {kind}")


async def test_another_server_waits_for_the_answer(servers: Servers, shop: Shop) -> None:
    """A client that comes back at another server while the first one still works on its call gets the answer there."""
    async with servers.up() as first, servers.up() as second:
        session = await first.open()
        last = await lost(first, session, shop)
        await settled(servers.path, "stream")
        waiting = asyncio.create_task(second.back(session, last))
        await asyncio.sleep(0)
        shop.may_end.set()
        _, [(_, message)] = await waiting
        assert text(message) == "paid "
    assert shop.runs == 1


async def test_a_call_that_was_cut_off(servers: Servers, shop: Shop) -> None:
    """The next server says of a call that ended with its server that what it did is unknown, and does not make it."""
    async with servers.up() as link:
        session = await link.open()
        last = await lost(link, session, shop)
    async with servers.up() as link:
        _, [(_, message)] = await link.back(session, last)
        assert message["id"] == 7
        assert message["error"]["data"] == {"reason": "cut_off", "outcome": "unknown", "retryable": False}
        assert "nothing was run again" in message["error"]["message"]
    assert shop.runs == 1


async def test_events_of_no_server(servers: Servers) -> None:
    """An ID that no server can have given is refused at once; what a client makes up is a call that is not known."""
    async with servers.up() as link:
        session = await link.open()
        for name in ("7", "x" * 16 + ".1.Nw==", f"{'0' * 16}.1.!", f"{'0' * 16}.1.W10=", f"{'0' * 16}.1.dHJ1ZQ=="):
            assert (await link.back(session, name))[0] == 400
        _, [(_, message)] = await link.back(session, EventID("0" * 16, 3, 99).text())
        assert (message["id"], message["error"]["data"]["outcome"]) == (99, "unknown")


async def test_notices_that_were_missed(servers: Servers) -> None:
    """Notices of the session that came while its client was away are sent when it is back; at another server it is
    told that anything may have changed."""
    async with servers.up() as link:
        session = await link.open()
        async with listening(link, session, "") as stream:
            link.tools.notify_changes()
            name, notice = await anext(stream)
        for number in range(2):
            link.tools.ex.add(lambda: number, f"more:tool{number}")
        async with listening(link, session, name) as stream:
            name, notice = await anext(stream)
            assert notice["method"].startswith("notifications/")
            link.tools.notify_changes()
            await anext(stream)
    async with servers.up() as link, listening(link, session, name) as stream:
        assert (await anext(stream))[1]["method"] == "notifications/tools/list_changed"


@asynccontextmanager
async def listening(link: Link, session: dict[str, str], last: str) -> AsyncIterator[AsyncIterator[Any]]:
    headers = {"accept": "text/event-stream", **session, **({"last-event-id": last} if last else {})}
    async with httpx2.AsyncClient(timeout=20, verify=False) as client:
        async with client.stream("GET", link.server.url, headers=headers) as answer:
            assert answer.status_code == 200
            yield events(answer)
