"""Requests of one session that come to a server which does not have it look for it one after another."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from mcp.server.lowlevel import Server
from tests.waiting import until

from toolexec.server.http.sessions import Sessions
from toolexec.server.http.settings import HttpSettings
from toolexec.server.kept_sessions import KeptSessions
from toolexec.state import StateStore


class _Store:
    """A store that is slow, and has no session."""

    def __init__(self) -> None:
        self.asking: list[asyncio.Event] = []
        self.most = 0

    async def get(self, kind: str, key: str) -> None:
        answer = asyncio.Event()
        self.asking.append(answer)
        self.most = max(self.most, len(self.asking))
        await answer.wait()
        self.asking.remove(answer)


async def _nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"{}", "more_body": False}


async def _request(sessions: Sessions) -> int:
    """Return the status of the answer to a request of a session."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"mcp-session-id", b"one"), (b"content-type", b"application/json"), (b"accept", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "query_string": b""}
    await sessions(scope, _nothing, send)
    return int(sent[0]["status"])


async def test_no_two_look_for_it_at_once() -> None:
    """One that comes while the second of two looks waits for it, too, though the first has gone."""
    store = _Store()
    lowlevel: Any = Server("kept")
    lowlevel.kept_sessions = KeptSessions(lambda: cast("StateStore", store), 60.0)
    sessions = Sessions(lowlevel, HttpSettings(port=0))
    async with sessions.running():
        first = asyncio.create_task(_request(sessions))
        await until(lambda: store.asking, pause=0)
        second = asyncio.create_task(_request(sessions))
        await asyncio.sleep(0)
        store.asking[0].set()
        assert await first >= 400
        await until(lambda: store.asking, pause=0)
        third = asyncio.create_task(_request(sessions))
        for _ in range(5):
            await asyncio.sleep(0)

        def both_are_answered() -> bool:
            for each in store.asking:
                each.set()
            return second.done() and third.done()

        await until(both_are_answered, pause=0)
        assert (await second >= 400, await third >= 400, store.most) == (True, True, 1)
