"""Notifying clients that the tools have changed: once per burst, those that can receive it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import anyio
import anyio.lowlevel
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import NotificationParams

from toolexec.discovery.index import ChangeEvent, Index
from toolexec.model.bound import Bound
from toolexec.server.callers import connection_of

logger: logging.Logger = logging.getLogger(__name__)
_Watchers = Callable[[str], Awaitable[Collection[object]]]
_STREAM: Final[ContextVar[object]] = ContextVar("_STREAM", default=None)
_LONGEST = 10
_SEND_SECONDS = 5.0
_MOST_EVENTS = 1000


class NoticeBus:
    """Gives events to the streams of clients, to each those of resources that *watchers* names it for."""

    def __init__(self, watchers: _Watchers) -> None:
        self._watchers = watchers
        self._listeners: dict[object, tuple[object, Callable[[ServerEvent], None]]] = {}

    @contextmanager
    def stream(self, owner: object) -> Generator[None, None, None]:
        """Have what subscribes in the block do so for *owner*."""
        with Bound(_STREAM, owner):
            yield

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Have *listener* called with events; returns how to stop that."""
        key = object()
        self._listeners[key] = _STREAM.get(), listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    async def publish(self, event: ServerEvent) -> None:
        """Give an event to those that may be notified of it."""
        watchers = await self._watchers(event.uri) if isinstance(event, ResourceUpdated) else None
        for owner, listener in list(self._listeners.values()):
            if watchers is None or owner in watchers:
                listener(event)
        await anyio.lowlevel.checkpoint()  # so that streams take a burst one by one


class ChangeNotices:
    """Watches *index* and, when nothing has changed for *debounce* seconds, notifies all clients.

    A burst that does not end is notified every ten times *debounce*. Clients of the handshake era receive it on their
    connection; those of the newer era on the streams that they opened, by way of `bus`. *watchers* gives the
    connections and streams that are to be notified of a change of one resource, by its URI.
    """

    def __init__(self, index: Index, debounce: float, watchers: _Watchers) -> None:
        self.bus: NoticeBus = NoticeBus(watchers)
        self._index = index
        self._debounce = debounce
        self._watchers = watchers
        self._connections: dict[Connection, None] = {}
        self._events: dict[ServerEvent, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unwatch: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._telling: asyncio.Task[None] | None = None

    async def remember(self, ctx: ServerRequestContext[Any, Any], params: NotificationParams) -> None:
        """Notify this connection of changes until it ends; the handler of `notifications/initialized`."""
        connection = connection_of(ctx)
        if connection not in self._connections:
            self._connections[connection] = None
            connection.exit_stack.callback(self._connections.pop, connection, None)

    def start(self) -> None:
        """Watch from now on; must be called on the event loop. Further calls do nothing."""
        if self._unwatch is None:
            self._loop = asyncio.get_running_loop()
            self._unwatch = self._index.on_change(self._changed)

    def stop(self) -> None:
        """Watch no more."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    def _changed(self, event: ChangeEvent) -> None:
        # Changes come from any thread.
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.notify, ToolsListChanged())

    def notify(self, event: ServerEvent) -> None:
        """Notify clients of *event*, once in a burst; must be called on the event loop."""
        if len(self._events) < _MOST_EVENTS:
            self._events[event] = None
        self._wait()

    def _wait(self) -> None:
        loop = self._loop
        if loop is None or self._unwatch is None:
            return
        now = loop.time()
        if self._timer is None:
            self._since = now
        else:
            self._timer.cancel()
        latest = self._since + _LONGEST * self._debounce
        self._timer = loop.call_at(min(now + self._debounce, latest), self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())
        else:
            self._wait()  # a client is slow to receive the last notice: it receives this one a little later

    async def _tell(self) -> None:
        events, self._events = list(self._events), {}
        for event in events:
            await self.bus.publish(event)
        await asyncio.gather(*(self._tell_one(connection, events) for connection in list(self._connections)))

    async def _tell_one(self, connection: Connection, events: Sequence[ServerEvent]) -> None:
        with anyio.move_on_after(_SEND_SECONDS) as scope:
            for event in events:
                await self._send(connection, event)
        if scope.cancelled_caught:
            logger.warning("a client does not read what it is sent; it hears of no more changes")
            self._connections.pop(connection, None)

    async def _send(self, connection: Connection, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated):
            if connection in await self._watchers(event.uri):
                await connection.send_resource_updated(event.uri)
        elif isinstance(event, ResourcesListChanged):
            await connection.send_resource_list_changed()
        elif isinstance(event, PromptsListChanged):
            await connection.send_prompt_list_changed()
        else:
            await connection.send_tool_list_changed()
