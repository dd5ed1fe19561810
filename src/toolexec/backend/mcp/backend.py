"""Tools of an MCP server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence

import pydantic
from mcp import Client, MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from mcp_types import Tool as SDKTool

from toolexec.backend.base import BackendStatus, ToolsListener
from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.mcp.connection import MCPConnection, describe_failure
from toolexec.backend.mcp.convert import convert_reply, convert_tools
from toolexec.errors import (
    BackendDisabledError,
    ConnectionLostError,
    ExecutionError,
    RemoteToolError,
    ToolTimeoutError,
)
from toolexec.model.binding import BindingKind, MCPBinding
from toolexec.model.call import Progress, ProgressCallback, ToolCall, tell
from toolexec.model.content import ToolReply
from toolexec.model.events import StreamEvent
from toolexec.model.tool import Tool

__all__ = ["MCPBackend"]

logger = logging.getLogger(__name__)
_MAX_PAGES = 1000
_MAX_TOOLS = 100_000
_DEBOUNCE = 0.05


class MCPBackend:
    """Hosts the tools of one MCP server, in either protocol era, over stdio, streamable HTTP or SSE.

    It never fails to start: a server that cannot be reached leaves the backend unavailable, with the reason in its
    status, and is tried again within the server's restart budget. A server that dies is started again; calls that were
    under way fail with ConnectionLostError. When the server's tools change, so do the backend's.
    """

    kind: BindingKind = "mcp"

    def __init__(self, server: MCPServer) -> None:
        self.server = server
        self.name = server.name
        self.enabled = server.enabled
        self._connection = MCPConnection(server, self._read_tools, self._tools_changed)
        self._tools: dict[str, Tool] = {}
        self._skipped: dict[str, str] = {}
        self._listeners: list[ToolsListener] = []
        self._remote_names: dict[str, str] = {}
        self._refreshes: set[asyncio.Task[None]] = set()
        self._refresh_due = False

    def status(self) -> BackendStatus:
        """How the server is."""
        reason = self._connection.reason if self.enabled else "switched off"
        where = {"transport": self.server.transport if self.server.url else "stdio"}
        return BackendStatus(
            name=self.name,
            kind="mcp",
            enabled=self.enabled,
            available=self.enabled and self._connection.state == "ready",
            reason=reason,
            tools=len(self._tools),
            skipped=dict(self._skipped),
            info=where | self._connection.info(),
        )

    async def start(self) -> None:
        """Connect and list the tools; returns after the first attempt, also when it failed (see `status`)."""
        if self.enabled:
            await self._connection.start()

    async def aclose(self) -> None:
        """Close the connection and end the server's process with all that it started."""
        for task in list(self._refreshes):
            task.cancel()
        await asyncio.gather(*self._refreshes, return_exceptions=True)
        await self._connection.aclose()

    async def list_tools(self) -> Sequence[Tool]:
        """The server's tools as last read; connects first if that has not happened yet.

        Raises BackendUnavailableError when they were never read.
        """
        if not self._tools and self.enabled:
            await self._connection.client()
        return list(self._tools.values())

    def bind(self, tool: Tool) -> MCPBinding:
        """The binding of one of these tools, with the name that the server knows it by."""
        return MCPBinding(self.name, self._remote_names.get(tool.id, tool.name))

    def on_tools(self, listener: ToolsListener) -> Callable[[], None]:
        """Have *listener* called with all tools after each listing; see `LiveBackend`."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    async def call(self, name: str, call: ToolCall) -> ToolReply:
        """Call the server's tool; see `Backend.call`. Cancelling tells the server so."""
        if not self.enabled:
            raise BackendDisabledError(f"MCP server {self.name} is switched off", backend=self.name)
        client = await self._connection.client()
        report = _progress_reporter(call.on_progress) if call.on_progress is not None else None
        try:
            result = await client.call_tool(name, dict(call.args or {}), progress_callback=report)
        except Exception as error:
            failure = self._failure(name, error)
            raise failure from error
        return convert_reply(result)

    async def stream(self, name: str, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """The server's progress, then the reply; see `StreamingBackend.stream`."""
        queue: asyncio.Queue[Progress | None] = asyncio.Queue()
        task = asyncio.ensure_future(self.call(name, ToolCall(call.tool_id, call.args, on_progress=queue.put_nowait)))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (progress := await queue.get()) is not None:
                yield StreamEvent(kind="progress", data=progress.to_dict())
            yield StreamEvent(kind="done", data=task.result())
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    def _failure(self, name: str, error: Exception) -> ExecutionError:
        """What an exception out of the SDK means for the call."""
        label = f"{self.name}:{name}"
        if isinstance(error, MCPError):
            if error.code == CONNECTION_CLOSED and error.message == "Connection closed":
                self._connection.report_lost()
                return ConnectionLostError(f"MCP server {self.name} went away during the call", backend=self.name)
            if error.code == REQUEST_TIMEOUT:
                return ToolTimeoutError(f"{label} did not answer in time", backend=self.name)
            details = {"code": error.code, **({"data": error.data} if error.data is not None else {})}
            return RemoteToolError(f"{label}: {error.message}", backend=self.name, details=details)
        if isinstance(error, pydantic.ValidationError):
            return RemoteToolError(
                f"{label} sent a reply that does not follow MCP: {error.error_count()} faults, the first: "
                f"{error.errors(include_url=False, include_input=False)[0]['msg']}",
                backend=self.name,
            )
        self._connection.report_lost()
        return ConnectionLostError(f"{label}: {describe_failure(error)}", backend=self.name)

    async def _read_tools(self, client: Client) -> None:
        found: list[SDKTool] = []
        cursor: str | None = None
        seen: set[str] = set()
        trouble = ""
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
            if cursor in seen or len(found) > _MAX_TOOLS:
                trouble = "the server repeats a page" if cursor in seen else f"there are more than {_MAX_TOOLS} tools"
                break
            seen.add(cursor)
        else:
            trouble = f"there are more than {_MAX_PAGES} pages"
        tools, self._skipped = convert_tools(found, self.server.namespace or self.name)
        if trouble:
            self._skipped["(listing)"] = f"{trouble}; tools after that are missing"
        self._tools = tools
        self._remote_names = {tool.id: remote for remote, tool in tools.items()}
        for reason in list(self._skipped.items())[:20]:
            logger.warning("MCP server %s: left out %s: %s", self.name, *reason)
        for listener in list(self._listeners):
            try:
                listener(list(tools.values()))
            except Exception:
                logger.exception("a tools listener of MCP server %s failed", self.name)

    async def _tools_changed(self, client: Client) -> None:
        """Read the tools anew, once for a burst of notifications."""
        if not self._refresh_due:
            self._refresh_due = True
            task = asyncio.create_task(self._refresh(client))
            self._refreshes.add(task)
            task.add_done_callback(self._refreshes.discard)

    async def _refresh(self, client: Client) -> None:
        await asyncio.sleep(_DEBOUNCE)
        self._refresh_due = False  # a notification from here on asks for another reading
        try:
            await self._read_tools(client)
        except Exception as error:
            logger.warning("MCP server %s: cannot read its changed tools: %s", self.name, describe_failure(error))


def _progress_reporter(callback: ProgressCallback) -> ProgressFnT:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        tell(callback, Progress(done=progress, total=total, message=message or ""))

    return report
