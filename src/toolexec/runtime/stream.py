"""A stream of bytes to a guest, whatever it goes over."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Protocol, runtime_checkable

__all__ = ["PipeStream", "QuickStream", "SocketStream", "Stream"]

_CHUNK = 1 << 18


class Stream(Protocol):
    """A duplex stream of bytes, used by one event loop: one task reads, one task writes."""

    async def read(self) -> bytes:
        """The next bytes, as they come; b"" once the other side has closed its end. Raises OSError when it is lost."""
        ...

    async def write(self, data: bytes) -> None:
        """Send all of *data*; waits while the other side does not take it. Raises OSError when it is gone."""
        ...

    async def aclose(self) -> None:
        """Close it; nobody may be reading or writing. Closing twice is fine."""
        ...


@runtime_checkable
class QuickStream(Protocol):
    """A stream that can send without a wait."""

    def write_now(self, data: bytes) -> int:
        """Send as much of *data* as the other side takes at once, and say how much that was; nobody may be writing.

        Raises OSError when it is gone.
        """
        ...


class SocketStream:
    """A stream over a connected socket, which it takes over."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection

    async def read(self) -> bytes:
        """See `Stream.read`."""
        return await asyncio.get_running_loop().sock_recv(self._socket, _CHUNK)

    async def write(self, data: bytes) -> None:
        """See `Stream.write`."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    def write_now(self, data: bytes) -> int:
        """See `QuickStream.write_now`."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
        self._socket.close()


class PipeStream:
    """A stream over a pair of asyncio's: the output of a process and its input, or both ends of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """See `Stream.read`."""
        return await self._reader.read(_CHUNK)

    async def write(self, data: bytes) -> None:
        """See `Stream.write`."""
        self._writer.write(data)
        await self._writer.drain()

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
