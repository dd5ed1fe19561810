"""Sessions that go on at another server over the same file, for their caller, as they were."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.server.http.conftest import INITIALIZE, JSON_HEADERS, Running, Serve
from tests.server.test_offers import running

from toolexec import Exec, ToolContext
from toolexec.model.origin import current_origin
from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings
from toolexec.server.settings import ServeSettings

AUTH = AuthSettings(api_keys=tuple(ApiKey(id=name, sha256=hash_key(f"{name}'s")) for name in ("ann", "bob")))
ANN, BOB = ({"authorization": f"Bearer {name}'s"} for name in ("ann", "bob"))


class Servers:
    """Starts servers over one file, each as a process of its own would be."""

    def __init__(self, serve: Serve, path: Path) -> None:
        self.path = path
        self._serve = serve

    @asynccontextmanager
    async def up(
        self, auth: AuthSettings = AUTH, http: HttpSettings | None = None, docs: str = ""
    ) -> AsyncIterator[Session]:
        http, ex = http or HttpSettings(port=0), exec_()
        async with ToolServer(ex, ServeSettings(state_path=str(self.path), http=http)) as tools:
            if docs:
                await ex.add_mcp("docs", url=docs)
            server = await self._serve(http, auth, tools)
            yield Session(server)
            await server.end()


def exec_() -> Exec:
    ex = Exec()

    async def talk(context: ToolContext) -> str:
        context.log("info", "only where that is wanted")
        context.log("error", "care!")
        return current_origin().session

    ex.add(talk, "t:talk")
    return ex


class Session:
    """A raw client of the handshake era at one server."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self._numbers = itertools.count(2)

    async def open(self, version: str = "2025-06-18", **headers: Any) -> str:
        params = {**INITIALIZE["params"], "protocolVersion": version}  # type: ignore[dict-item]
        answer = await self.server.post({**INITIALIZE, "params": params}, headers)
        assert answer.status_code == 200, answer.text
        session_id = answer.headers["mcp-session-id"]
        await self.send(session_id, "notifications/initialized", notice=True, **headers)
        return session_id

    async def send(
        self, session_id: str, method: str, params: Any = None, *, notice: bool = False, **headers: Any
    ) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        message |= {} if notice else {"id": next(self._numbers)}
        return await self.server.post(message, {"mcp-session-id": session_id, **headers})

    async def talk(self, session_id: str, **headers: Any) -> tuple[str, list[str]]:
        """Return the session that a tool knows, and what it has said."""
        params = {"name": "run_tool", "arguments": {"tool_id": "t:talk"}}
        answer = await self.send(session_id, "tools/call", params, **headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["mcp-session-id"] == session_id
        messages = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        said = [one["params"]["data"] for one in messages if one.get("method") == "notifications/message"]
        [result] = [one["result"] for one in messages if "result" in one]
        return result["structuredContent"]["structured"], said

    async def changed(self, session_id: str, uri: str) -> None:
        """Have resources change until the client is notified that this one has."""
        said = {"accept": "text/event-stream", "mcp-session-id": session_id}
        wanted = {"method": "notifications/resources/updated", "params": {"uri": uri}}
        touch = {"name": "run_tool", "arguments": {"tool_id": "docs:touch"}}
        async with httpx2.AsyncClient(timeout=20, verify=False) as client:
            async with client.stream("GET", self.server.url, headers=said) as stream:
                await self.send(session_id, "tools/call", touch)
                async for line in stream.aiter_lines():
                    found = json.loads(line[6:]) if line.startswith("data: {") else {}
                    if found.get("method") == wanted["method"]:
                        assert found["params"]["uri"] == uri
                        return
        raise AssertionError("the stream ended")

    async def end(self, session_id: str, **headers: Any) -> int:
        answer = await self.server.request("DELETE", headers={**JSON_HEADERS, "mcp-session-id": session_id, **headers})
        return answer.status_code


@pytest.fixture
def servers(serve: Serve, tmp_path: Path) -> Servers:
    """Servers over a new file."""
    return Servers(serve, tmp_path / "state" / "server.db")


async def test_goes_on_at_the_next_server(servers: Servers) -> None:
    """Sessions keep their ID, their name in logs and approvals, their protocol version and
    their log level; for their caller alone."""
    async with servers.up() as first:
        session_id = await first.open(**ANN)
        await first.send(session_id, "logging/setLevel", {"level": "error"}, **ANN)
        before = await first.talk(session_id, **ANN)
        assert before[1] == ["care!"]
    assert os.name == "nt" or servers.path.stat().st_mode & 0o777 == 0o600
    assert session_id.encode() not in servers.path.read_bytes()
    async with servers.up() as second:
        for stranger in (BOB, {}):
            refused = await second.send(session_id, "tools/list", **stranger)
            assert refused.status_code in (401, 404)
        both = await asyncio.gather(second.talk(session_id, **ANN), second.talk(session_id, **ANN))
        assert both == [before, before]
        version = {"mcp-protocol-version": "2025-06-18"}
        listed = await second.send(session_id, "tools/list", **ANN, **version)
        assert "execution" not in listed.text
        assert (await second.send(session_id, "tools/list", **BOB)).status_code == 404
        assert (await second.send("0" * 32, "tools/list", **ANN)).status_code == 404
        await second.send(session_id, "logging/setLevel", {"level": "info"}, **ANN)
    async with servers.up() as third:
        assert len((await third.talk(session_id, **ANN))[1]) == 2
        assert await third.end(session_id, **ANN) == 200
        assert (await third.send(session_id, "tools/list", **ANN)).status_code == 404
    async with servers.up() as fourth:
        assert (await fourth.send(session_id, "tools/list", **ANN)).status_code == 404


async def test_versions_go_with_it(servers: Servers) -> None:
    """Clients have what their version has at the next server, and go on without a key where none is needed."""
    async with servers.up(AuthSettings()) as first:
        session_id = await first.open("2025-11-25")
    async with servers.up(AuthSettings()) as second:
        listed = await second.send(session_id, "tools/list")
        assert "taskSupport" in listed.text  # of 2025-11-25 only


async def test_subscriptions_go_with_it(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    """Clients are notified of changes at the next server, and a subscription that it refuses is in its log."""
    uri = "toolexec://docs/shared://same"
    async with running("old", "docs") as url:
        async with servers.up(AuthSettings(), docs=url) as first:
            session_id = await first.open("2025-11-25")
            answer = await first.send(session_id, "resources/subscribe", {"uri": uri})
            assert '"result"' in answer.text
        async with servers.up(AuthSettings(), docs=url) as second:
            await second.send(session_id, "ping")
            assert "which was refused" not in caplog.text
            await second.changed(session_id, uri)
    async with servers.up(AuthSettings()) as third:
        assert (await third.send(session_id, "ping")).status_code == 200
        assert "a session goes on without its resources/subscribe, which was refused" in caplog.text


async def test_goes_on_only_for_a_while(servers: Servers) -> None:
    """Sessions that were not used for as long as one may be idle are over at the next server, too."""
    http = HttpSettings(port=0, session_idle=0.2)
    async with servers.up(http=http) as first:
        session_id = await first.open(**ANN)
    await asyncio.sleep(0.3)
    async with servers.up(http=http) as second:
        assert (await second.send(session_id, "tools/list", **ANN)).status_code == 404


async def test_room_is_shared(servers: Servers) -> None:
    """Sessions that go on count, and one that gave way to another goes on nowhere."""
    http = HttpSettings(port=0, max_sessions=1)
    async with servers.up(http=http) as first:
        old = await first.open(**ANN)
        new = await first.open(**ANN)
    async with servers.up(http=http) as second:
        assert (await second.send(old, "tools/list", **ANN)).status_code == 404
        assert (await second.send(new, "tools/list", **ANN)).status_code == 200
