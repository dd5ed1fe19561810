"""Hearing of changes from 2026-07-28 on: a subscription that ends is made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from mcp import MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import METHOD_NOT_FOUND
from tests.waiting import until

from toolexec.backend.mcp import MCPServer
from toolexec.backend.mcp.connection import MCPConnection


class Client:
    """Just enough of the SDK's client; each subscription ends as the script says."""

    protocol_version = "2026-07-28"

    def __init__(self, *script: Any, list_changed: bool = True) -> None:
        self.script = list(script)
        tools = SimpleNamespace(list_changed=list_changed)
        self.server_capabilities = SimpleNamespace(tools=tools, prompts=None, resources=None)

    @asynccontextmanager
    async def listen(self, **_: Any) -> AsyncIterator[AsyncIterator[str]]:
        outcome = self.script.pop(0)
        if isinstance(outcome, MCPError):
            raise outcome
        yield self.events(outcome)

    async def events(self, outcome: Any) -> AsyncIterator[str]:
        yield "changed"
        if outcome == "lost":
            raise SubscriptionLost("lost")


async def read(client: object) -> None:
    """Nothing to read."""


def connection() -> MCPConnection:
    return MCPConnection(MCPServer(name="s", command="x"), read)


async def test_a_subscription_that_ends_is_made_again():
    """Lost or closed, the next one is opened, until the server refuses; every event counts as a change."""
    refusal = MCPError(METHOD_NOT_FOUND, "no")
    client = Client("lost", "closed", MCPError(-32000, "Connection closed"), refusal)
    made = connection()
    listening = asyncio.create_task(made._listen(client))
    await until(lambda: client.script == [])
    assert made._changed.is_set()
    await ended(listening)


async def test_a_server_that_tells_nothing_is_not_asked():
    """Without the capability there is no subscription, until a resource is subscribed to."""
    client = Client("closed", list_changed=False)
    made = connection()
    listening = asyncio.create_task(made._listen(client))
    await asyncio.sleep(0)
    assert client.script == ["closed"]
    await made.subscribe(client, "file:///a.md")
    await until(lambda: client.script == [])
    await ended(listening)


async def ended(listening: asyncio.Task[None]) -> None:
    listening.cancel()
    await asyncio.wait([listening])
