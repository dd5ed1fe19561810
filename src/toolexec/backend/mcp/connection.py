"""One connection to an MCP server, kept up: connect, watch, connect again within a budget."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Literal, TypeAlias

from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import Implementation, ServerNotification, ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.mcp.stdio import StdioTransport
from toolexec.backend.mcp.transport import WatchedTransport, open_http, open_sse, open_stdio
from toolexec.errors import BackendUnavailableError

__all__ = ["MCPConnection", "describe_failure"]

logger = logging.getLogger(__name__)
State: TypeAlias = Literal["idle", "connecting", "ready", "unavailable", "closed"]
_CLOSE_PATIENCE = 10.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class MCPConnection:
    """A task of its own owns the SDK's client, because its scopes must be left by the task that entered them.

    *on_ready* is awaited after each connect, within the time limit for connecting; *on_tools_changed* is awaited when
    the server says that its tools have changed.
    """

    def __init__(
        self,
        server: MCPServer,
        on_ready: Callable[[Client], Awaitable[None]],
        on_tools_changed: Callable[[Client], Awaitable[None]],
    ) -> None:
        self.server = server
        self.state: State = "idle"
        self.reason: str | None = "not started"
        self.restarts = 0
        self._on_ready = on_ready
        self._on_tools_changed = on_tools_changed
        self._client: Client | None = None
        self._transport: StdioTransport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._lost = asyncio.Event()
        self._stop = asyncio.Event()
        self._retry = asyncio.Event()
        self._failures: deque[float] = deque()

    async def start(self) -> None:
        """Begin connecting and wait for the first attempt to end, well or badly."""
        if self._task is None and self.state != "closed":
            self._loop = asyncio.get_running_loop()
            self.state, self.reason = "connecting", "connecting"
            self._task = asyncio.create_task(self._supervise(), name=f"toolexec-mcp-{self.server.name}")
        await self._settled.wait()

    async def aclose(self) -> None:
        """End the connection and the server's process."""
        self.state, self.reason = "closed", "closed"
        self._stop.set()
        self._settled.set()
        task, self._task = self._task, None
        if task is not None:
            done, _ = await asyncio.wait([task], timeout=self.server.stop_timeout + _CLOSE_PATIENCE)
            if not done:
                task.cancel()
                await asyncio.wait([task], timeout=_CLOSE_PATIENCE)

    async def client(self) -> Client:
        """The connected client; starts, waits for, or (when the budget allows again) renews the connection.

        Raises BackendUnavailableError with the reason.
        """
        client = self._client
        if client is not None and self._loop is asyncio.get_running_loop():
            return client
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise self.unavailable("it belongs to another event loop; use it from the loop that started it")
        if self._task is None:
            await self.start()
        elif self.state == "unavailable" and self._has_budget():
            self._settled.clear()
            self._retry.set()
        await self._settled.wait()
        if self._client is None:
            raise self.unavailable(self.reason or "not connected")
        return self._client

    def unavailable(self, reason: str) -> BackendUnavailableError:
        """The error for a call that finds no connection."""
        return BackendUnavailableError(
            f"MCP server {self.server.name} is unavailable: {reason}", backend=self.server.name, op="execute"
        )

    def report_lost(self) -> None:
        """Told by a call that found the connection dead."""
        self._lost.set()

    def info(self) -> dict[str, Any]:
        """Facts worth showing."""
        data: dict[str, Any] = {"restarts": self.restarts} if self.restarts else {}
        if self._transport is not None and self.state == "ready":
            data["pid"] = self._transport.pid
        if self._client is not None:
            data["protocol"] = self._client.protocol_version
            if self._client.server_info is not None:
                data["server"] = f"{self._client.server_info.name} {self._client.server_info.version}".strip()
        return data

    async def _supervise(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            self._lost.clear()
            self._retry.clear()
            began = time.monotonic()
            try:
                await self._session()
                failure = "the connection was lost"
            except asyncio.CancelledError:
                raise
            except Exception as error:
                failure = describe_failure(error)
            finally:
                self._client = None
            if self._stop.is_set():
                return
            diagnosis = self._transport.diagnosis() if self._transport is not None else ""
            self.state, self.reason = "unavailable", f"{failure}{f'; {diagnosis}' if diagnosis else ''}"
            logger.info("MCP server %s: %s", self.server.name, failure)
            self._settled.set()
            if time.monotonic() - began > self.server.restart_window:
                pause = _FIRST_PAUSE
            if not self._spend_budget():
                await _first(self._retry, self._stop)
            else:
                await _first(self._retry, self._stop, timeout=pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                self.restarts += 1

    async def _session(self) -> None:
        """Connect, report ready, and stay until told to stop or the connection is lost."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self.server.connect_timeout):
                    client = await self._connect(stack)
                    await self._on_ready(client)
            except TimeoutError:
                raise TimeoutError(f"no answer within {self.server.connect_timeout:g} s") from None
            self._client = client
            self.state, self.reason = "ready", None
            self._settled.set()
            listener = asyncio.create_task(self._listen(client))
            try:
                await _first(self._lost, self._stop)
            finally:
                self._client = None
                listener.cancel()
                await asyncio.wait([listener])

    async def _connect(self, stack: AsyncExitStack) -> Client:
        server = self.server
        if server.command:
            self._transport = open_stdio(server)
            return await self._enter(stack, self._transport)
        if server.transport == "sse":
            return await self._enter(stack, open_sse(server))
        try:
            async with AsyncExitStack() as attempt:
                client = await self._enter(attempt, open_http(server))
                stack.push_async_exit(attempt.pop_all())
                return client
        except Exception as error:
            # A server of the older kind answers the first POST with an HTTP error; only then is SSE worth a try.
            if server.transport == "http" or not _refuses_post(error):
                raise
            try:
                return await self._enter(stack, open_sse(server))
            except Exception:
                raise error from None

    async def _enter(self, stack: AsyncExitStack, transport: Any) -> Client:
        client = Client(
            WatchedTransport(transport, self._lost),  # pyright: ignore[reportArgumentType]
            message_handler=self._on_message,
            client_info=Implementation(name="toolexec", version="1"),
            cache=None,
        )
        await stack.enter_async_context(client)
        # The SDK would turn a reply that breaks the tool's output schema into an exception and lose the reply. Here the
        # runner checks it, and what a breach means is the caller's choice.
        client.session.validate_tool_result = _accept_reply
        return client

    async def _on_message(self, message: ServerNotification | Exception) -> None:
        if isinstance(message, ToolListChangedNotification) and self._client is not None:
            await self._on_tools_changed(self._client)

    async def _listen(self, client: Client) -> None:
        """From 2026-07-28 on a client must ask to hear of changes."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        with suppress(MCPError, SubscriptionLost, TimeoutError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    await self._on_tools_changed(client)

    def _has_budget(self) -> bool:
        oldest = time.monotonic() - self.server.restart_window
        while self._failures and self._failures[0] < oldest:
            self._failures.popleft()
        return len(self._failures) < self.server.max_restarts

    def _spend_budget(self) -> bool:
        if not self._has_budget():
            return False
        self._failures.append(time.monotonic())
        return True


async def _accept_reply(name: str, result: Any) -> None:
    """Takes the place of the SDK's check of a reply."""


def _refuses_post(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_refuses_post(inner) for inner in error.exceptions)
    text = str(error)
    return isinstance(error, MCPError) or any(code in text for code in ("400", "404", "405", "406"))


def describe_failure(error: BaseException) -> str:
    """One line on why a connection failed, looking into exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"the command {error.filename!r} was not found; is it installed and on PATH?"
    text = " ".join(str(error).split())[:500]
    return text if isinstance(error, MCPError | TimeoutError) and text else f"{type(error).__name__}: {text}"


async def _first(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Wait until one of the events is set, or the time is over."""
    waiters = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiters, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
