"""Open the transport that a server's configuration asks for, and notice when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio

from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.mcp.stdio import StdioTransport

__all__ = ["WatchedTransport", "open_http", "open_sse"]


class WatchedTransport:
    """Any transport of the SDK, with *lost* set as soon as the server's side of it has ended."""

    def __init__(self, inner: Any, lost: asyncio.Event) -> None:
        self._inner = inner
        self._lost = lost

    async def __aenter__(self) -> Any:
        incoming, outgoing = await self._inner.__aenter__()
        return _WatchedStream(incoming, self._lost), outgoing

    async def __aexit__(self, *exc: object) -> Any:
        return await self._inner.__aexit__(*exc)


class _WatchedStream:
    """A read stream that reports its end."""

    def __init__(self, inner: Any, lost: asyncio.Event) -> None:
        self._inner = inner
        self._lost = lost

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        try:
            return await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._lost.set()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    def close(self) -> None:
        self._inner.close()

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


@asynccontextmanager
async def open_http(server: MCPServer) -> AsyncGenerator[Any, None]:
    """Streamable HTTP."""
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async with (
        create_mcp_http_client(headers=dict(server.headers) or None) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def open_sse(server: MCPServer) -> AsyncGenerator[Any, None]:
    """The older HTTP+SSE transport."""
    from mcp.client.sse import sse_client

    async with sse_client(server.url, headers=dict(server.headers) or None) as streams:
        yield streams


def open_stdio(server: MCPServer) -> StdioTransport:
    """A child process."""
    return StdioTransport(server)
