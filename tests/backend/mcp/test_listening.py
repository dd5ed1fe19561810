"""Hearing of changes from 2026-07-28 on: a subscription that ends is made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

from mcp import MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import METHOD_NOT_FOUND
from tests.waiting import until

from toolexec.backend.mcp import MCPServer
from toolexec.backend.mcp.changes import ChangeFeed
from toolexec.backend.offers import OfferEvent


class Client:
    """Just enough of the SDK's client; each subscription ends as the script says."""

    protocol_version = "2026-07-28"

    def __init__(self, *script: Any, list_changed: bool = True, before: asyncio.Event | None = None) -> None:
        self.script = list(script)
        self.before = before
        self.asked = False
        tools = SimpleNamespace(list_changed=list_changed)
        self.server_capabilities = SimpleNamespace(tools=tools, prompts=None, resources=None)

    @asynccontextmanager
    async def listen(self, **_: Any) -> AsyncIterator[AsyncIterator[str]]:
        self.asked = True
        if self.before is not None:
            await self.before.wait()
        outcome = self.script.pop(0)
        if isinstance(outcome, MCPError):
            raise outcome
        yield self.events(outcome)

    async def events(self, outcome: Any) -> AsyncIterator[str]:
        yield "changed"
        if outcome == "lost":
            raise SubscriptionLost("lost")


class Listener:
    """A feed, and what it has reported."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.read = 0
        self.feed = ChangeFeed(MCPServer(name="s", command="x"), self._read, self._note, str)

    async def _read(self, client: object) -> None:
        self.read += 1

    def _note(self, event: OfferEvent) -> None:
        self.events.append(event.kind)


async def test_a_subscription_that_ends_is_made_again():
    """Lost or closed, the next one is opened, until the server refuses; every event counts as a change."""
    refusal = MCPError(METHOD_NOT_FOUND, "no")
    client = Client("lost", "closed", MCPError(-32000, "Connection closed"), refusal)
    listener = Listener()
    async with listener.feed.listening(client):
        await until(lambda: client.script == [])
        following = asyncio.create_task(listener.feed.follow_tools(client))
        await until(lambda: listener.read)
        await ended(following)


async def test_a_server_that_reports_nothing_is_not_asked():
    """Without the capability there is no subscription, until a resource is subscribed to."""
    client = Client("closed", list_changed=False)
    listener = Listener()
    async with listener.feed.listening(client):
        assert client.script == ["closed"]
        await listener.feed.subscribe(client, "file:///a.md")
        await until(lambda: client.script == [])


async def test_nothing_is_read_before_the_server_reports_changes():
    """A change between the two would be seen by neither; a server that is slow with its answer is not waited for, and
    what was read is read again when the answer comes."""
    slow = asyncio.Event()
    client = Client("closed", "closed", MCPError(METHOD_NOT_FOUND, "no"), before=slow)
    listener = Listener()
    entered = asyncio.create_task(enter(listener, client))
    await until(lambda: client.asked)
    assert not entered.done()
    await until(entered.done)
    assert (listener.events, client.script[0]) == ([], "closed")
    slow.set()
    await until(lambda: listener.events)
    assert listener.events[:2] == ["resources", "prompts"]
    await entered.result().aclose()


async def enter(listener: Listener, client: Client) -> AsyncExitStack:
    stack = AsyncExitStack()
    await stack.enter_async_context(listener.feed.listening(client))
    return stack


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
