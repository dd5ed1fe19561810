"""What an MCP server says of itself while it is connected: that its tools, resources or prompts are others now."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from mcp import Client, MCPError
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Subscription,
    SubscriptionLost,
)
from mcp_types import (
    EmptyResult,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ServerNotification,
    SubscribeRequest,
    SubscribeRequestParams,
    ToolListChangedNotification,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.mcp.failures import connection_closed
from toolexec.backend.offers import OfferEvent

logger: logging.Logger = logging.getLogger(__name__)
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_DEBOUNCE = 0.05
_ANSWER_PATIENCE = 1.0
_UNSUBSCRIBE_PATIENCE = 5.0


class ChangeFeed:
    """The changes that a server reports, in either era of the protocol, over all of its connections.

    *read_tools* is awaited when its tools have changed, once for a burst of reports, and *on_event* is called when its
    resources or prompts have. *describe* says what a failure was without naming secrets.
    """

    def __init__(
        self,
        server: MCPServer,
        read_tools: Callable[[Client], Awaitable[None]],
        on_event: Callable[[OfferEvent], None],
        describe: Callable[[BaseException], str],
    ) -> None:
        self._server = server
        self._read_tools = read_tools
        self._on_event = on_event
        self._describe = describe
        self._subscribed: set[str] = set()
        self.reset()

    def reset(self) -> None:
        """Belong to the event loop of the next use; what is subscribed to stays."""
        self._changed = asyncio.Event()
        self._listen_again = asyncio.Event()
        self._answered = asyncio.Event()
        self._is_late = False

    def report_offers(self) -> None:
        """Report that resources and prompts may be others now, since there was no report of them for a while."""
        self._on_event(OfferEvent("resources"))
        self._on_event(OfferEvent("prompts"))

    @asynccontextmanager
    async def listening(self, client: Client) -> AsyncGenerator[None]:
        """Take the changes of a new connection, from before the body begins: what it reads cannot be out of date
        without a report. Where the server is slow to answer that, the body begins, and the changes come later."""
        self._changed.clear()
        self._answered.clear()
        self._is_late = False
        task = asyncio.create_task(self._listen(client))
        try:
            try:
                async with asyncio.timeout(_ANSWER_PATIENCE):
                    await self._answered.wait()
            except TimeoutError:
                self._is_late = True
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def take(self, message: ServerNotification | Exception) -> None:
        """Take what the server has said of itself, from the SDK's client."""
        if isinstance(message, ToolListChangedNotification):
            self._changed.set()
        elif isinstance(message, ResourceListChangedNotification):
            self._on_event(OfferEvent("resources"))
        elif isinstance(message, PromptListChangedNotification):
            self._on_event(OfferEvent("prompts"))
        elif isinstance(message, ResourceUpdatedNotification):
            self._on_event(OfferEvent("updated", str(message.params.uri)))

    async def subscribe(self, client: Client, uri: str) -> None:
        """Have the server report changes of the resource, also after a new connection; raises what the SDK does."""
        self._subscribed.add(uri)
        try:
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                self._listen_again.set()
            else:
                request = SubscribeRequest(params=SubscribeRequestParams(uri=uri))
                await client.session.send_request(request, EmptyResult)
        except BaseException:
            self._subscribed.discard(uri)
            raise

    async def unsubscribe(self, client: Client | None, uri: str) -> None:
        """Have the server report no more changes of the resource; what it says to that does not matter, and there
        may be no connection."""
        self._subscribed.discard(uri)
        if client is None:
            return
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._listen_again.set()
            return
        try:
            async with asyncio.timeout(_UNSUBSCRIBE_PATIENCE):
                request = UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uri))
                await client.session.send_request(request, EmptyResult)
        except Exception as error:
            logger.debug("MCP server %s: a subscription was not ended: %s", self._server.name, type(error).__name__)

    async def follow_tools(self, client: Client) -> None:
        """Read the tools again after each burst of reports, until this is cancelled."""
        pause = _DEBOUNCE
        while True:
            asked = time.monotonic()
            await self._changed.wait()
            # A server that announces a change whenever it is asked for its tools must not keep both sides busy.
            pause = _DEBOUNCE if time.monotonic() - asked > 2 * pause else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)
            self._changed.clear()
            try:
                async with asyncio.timeout(self._server.connect_timeout):
                    await self._read_tools(client)
            except Exception as error:
                reason = self._describe(error)
                logger.warning("MCP server %s: cannot read its changed tools: %s", self._server.name, reason)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes, as clients must from 2026-07-28 on, and again when the server ends the subscription, or
        other resources are subscribed to."""
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._answered.set()  # such a server reports without being asked
            await self._subscribe_again(client)
            return
        has = client.server_capabilities
        tools = has.tools is not None and bool(has.tools.list_changed)
        prompts = has.prompts is not None and bool(has.prompts.list_changed)
        resources = has.resources is not None and bool(has.resources.list_changed)
        pause = _FIRST_PAUSE
        while True:
            self._listen_again.clear()
            uris = sorted(self._subscribed)
            if not (tools or prompts or resources or uris):
                self._answered.set()
                await self._listen_again.wait()
                continue
            try:
                async with client.listen(
                    tools_list_changed=tools,
                    prompts_list_changed=prompts,
                    resources_list_changed=resources,
                    resource_subscriptions=uris,
                ) as changes:
                    self._answered.set()
                    if self._is_late or pause > _FIRST_PAUSE:  # changes before this subscription were not reported
                        self._is_late = False
                        self._changed.set()
                        self.report_offers()
                    came = asyncio.Event()
                    await _ended_or_set(asyncio.ensure_future(self._take_changes(changes, came)), self._listen_again)
                    pause = _FIRST_PAUSE if came.is_set() else pause
                if self._listen_again.is_set():
                    continue
            except MCPError as error:
                self._answered.set()
                if not connection_closed(error):  # it promised to report changes, but refuses
                    await self._listen_again.wait()
                    continue
            except SubscriptionLost:
                self._answered.set()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _take_changes(self, changes: Subscription, came: asyncio.Event) -> None:
        async for change in changes:
            came.set()
            if isinstance(change, ResourceUpdated):
                self._on_event(OfferEvent("updated", str(change.uri)))
            elif isinstance(change, ResourcesListChanged):
                self._on_event(OfferEvent("resources"))
            elif isinstance(change, PromptsListChanged):
                self._on_event(OfferEvent("prompts"))
            else:
                self._changed.set()

    async def _subscribe_again(self, client: Client) -> None:
        """Subscribe on a new connection to what was subscribed to on the last one."""
        for uri in sorted(self._subscribed):
            try:
                await self.subscribe(client, uri)
            except Exception as error:
                logger.warning("MCP server %s: a subscription was lost: %s", self._server.name, type(error).__name__)


async def _ended_or_set(work: asyncio.Future[None], event: asyncio.Event) -> None:
    """Wait until *work* has ended, and raise what it does, or until *event* is set; then it is cancelled."""
    waiter = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([work, waiter], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
        if not work.done():
            work.cancel()
        await asyncio.gather(waiter, work, return_exceptions=True)
    if not work.cancelled():
        work.result()
