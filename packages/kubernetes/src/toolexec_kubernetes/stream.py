"""Stdin and stdout of a container as one stream, over the WebSocket that the API server opens to its node.

Each message begins with a byte for its channel: 0 is stdin, 1 stdout, 2 stderr, 3 how it all ended. The fifth version
of the protocol can close one channel alone. What comes in on stderr is not for the reader; its end is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp

_STDIN: Final = b"\x00"
_STDOUT: Final = 1
_STDERR: Final = 2
_CLOSE: Final = b"\xff"
_PIECE: Final = 1 << 17
_SAID: Final = 4000
_CLOSING: Final = 0.5
_ENDS: Final = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)


class ChannelStream:
    """The `Stream` of a container. *ended* is awaited when the other side hangs up, with what it said of it ("" for an
    ordinary end): the reader learns of the end only after it.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, ended: Callable[[str], Awaitable[None]]) -> None:
        self._socket = socket
        self._ended = ended
        self._stderr = bytearray()
        self._over = False
        self._closed = False
        self.why: str = ""
        """Why the other side hung up; "" before, and for an ordinary end."""

    async def read(self) -> bytes:
        """Implement `Stream.read`."""
        while not self._over:
            try:
                message = await self._socket.receive()
            except (aiohttp.ClientError, OSError, RuntimeError) as error:
                await self._hang_up(str(error) or type(error).__name__)
                break
            if message.type == aiohttp.WSMsgType.BINARY:
                data: bytes = message.data
            elif message.type == aiohttp.WSMsgType.TEXT:
                data = str(message.data).encode()
            elif message.type in _ENDS:
                code = self._socket.close_code
                await self._hang_up("" if code in (1000, 1005) else f"closed with {code}")
                break
            else:
                await self._hang_up(str(message.data or "it was cut"))
                break
            if len(data) > 1 and data[0] == _STDOUT:
                return data[1:]
            if data[:1] == bytes([_STDERR]):
                self._stderr += data[1:][-_SAID:]
                del self._stderr[:-_SAID]
        return b""

    async def write(self, data: bytes) -> None:
        """Implement `Stream.write`."""
        view = memoryview(data)
        for start in range(0, len(view), _PIECE):
            if self._closed or self._over or self._socket.closed:
                raise BrokenPipeError("the container takes no more input")
            try:
                await self._socket.send_bytes(_STDIN + view[start : start + _PIECE])
            except (aiohttp.ClientError, RuntimeError) as error:
                raise BrokenPipeError(f"the container takes no more input: {error}") from error

    async def close_input(self) -> None:
        """Close stdin of the container, where the protocol can: a guest then ends by itself. Does not raise."""
        if self._socket.closed or self._socket.protocol != "v5.channel.k8s.io":
            return
        try:
            async with asyncio.timeout(_CLOSING):
                await self._socket.send_bytes(_CLOSE + _STDIN)
        except (aiohttp.ClientError, OSError, RuntimeError, TimeoutError):
            return

    async def aclose(self) -> None:
        """Implement `Stream.aclose`. What has not been sent is dropped: the container may never take it."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(_CLOSING):
                await self._socket.close()
        except (aiohttp.ClientError, OSError, RuntimeError, TimeoutError):
            return

    def said(self) -> str:
        """Return the end of what came on stderr."""
        return bytes(self._stderr).decode("utf-8", "replace")

    async def _hang_up(self, why: str) -> None:
        self._over: bool = True
        self.why: str = why
        await self._ended(why)
