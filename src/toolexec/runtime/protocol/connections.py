"""Connections: how frames get from one process to another. They know nothing of what is in a frame."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from typing import Protocol

from toolexec.errors import ConfigurationError, ConnectionClosedError, ProtocolError
from toolexec.runtime.protocol.messages import MAX_FRAME_BYTES, FrameReader

__all__ = ["Connection", "MemoryConnection", "StreamConnection"]

_CHUNK = 1 << 18
_GRACE = 1.0


class Connection(Protocol):
    """Carries frames both ways, whole and in order. Many tasks may send at once, one receives."""

    async def send(self, frame: bytes) -> None:
        """Send a frame; waits while the other side is too slow.

        Raises ProtocolError, with nothing sent, for a frame that is too large; ConnectionClosedError when the
        connection is closed or the other side is gone. Cancelled, it may have been sent or not, but never in part.
        """
        ...

    async def receive(self) -> bytes:
        """Return the next frame. Cancelling loses none.

        Raises ConnectionClosedError once there will be no more; ProtocolError in place of a frame that is too large,
        and the next one can be received as usual.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection and free what it holds; both sides' pending and later calls raise
        ConnectionClosedError. Closing it again does nothing."""
        ...


class _Lane:
    """What is on its way in one direction."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.changed: asyncio.Event = asyncio.Event()
        self.closed = False

    def close(self) -> None:
        """Let nothing more in."""
        self.closed: bool = True
        self.changed.set()


class MemoryConnection:
    """One end of a connection within one event loop; `memory_pair` makes both. It never makes a sender wait."""

    def __init__(self, incoming: _Lane, outgoing: _Lane, max_frame_bytes: int) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._max = max_frame_bytes

    async def send(self, frame: bytes) -> None:
        """Send a frame; see `Connection.send`."""
        if self._outgoing.closed:
            raise ConnectionClosedError("the connection is closed")
        if len(frame) > self._max:
            raise ProtocolError(f"a frame of {len(frame)} bytes is over the limit of {self._max}")
        self._outgoing.frames.append(frame)
        self._outgoing.changed.set()

    async def receive(self) -> bytes:
        """Return the next frame; see `Connection.receive`."""
        incoming = self._incoming
        while not incoming.frames:
            if incoming.closed:
                raise ConnectionClosedError("the connection is closed")
            incoming.changed.clear()
            await incoming.changed.wait()
        return incoming.frames.popleft()

    async def aclose(self) -> None:
        """Close both ends; the other one can still receive what was sent."""
        self._incoming.frames.clear()
        self._incoming.close()
        self._outgoing.close()


def memory_pair(max_frame_bytes: int = MAX_FRAME_BYTES) -> tuple[MemoryConnection, MemoryConnection]:
    """Return two ends of a connection within this event loop: what one sends, the other receives."""
    there, back = _Lane(), _Lane()
    return MemoryConnection(there, back, max_frame_bytes), MemoryConnection(back, there, max_frame_bytes)


class StreamConnection:
    """Frames over two streams of bytes, each frame behind its length in four bytes, most significant first.

    It owns the streams. A frame over *max_frame_bytes* is refused when it is to be sent and skipped when it comes in.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, max_frame_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(max_frame_bytes)
        self._received: deque[bytes | ProtocolError] = deque()
        self._closing: asyncio.Task[None] | None = None

    async def send(self, frame: bytes) -> None:
        """Send a frame; see `Connection.send`."""
        if self._closing is not None:
            raise ConnectionClosedError("the connection is closed")
        packed = self._frames.pack(frame)
        try:
            self._writer.write(packed)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise ConnectionClosedError("the other side is gone") from error
        if self._closing is not None:
            raise ConnectionClosedError("the connection was closed before the frame had gone out")

    async def receive(self) -> bytes:
        """Return the next frame; see `Connection.receive`."""
        while not self._received:
            if self._closing is not None:
                raise ConnectionClosedError("the connection is closed")
            try:
                data = await self._reader.read(_CHUNK)
            except OSError as error:
                raise ConnectionClosedError("the other side is gone") from error
            if not data:
                half = " in the middle of a frame" if self._frames.pending else ""
                raise ConnectionClosedError(f"the other side has closed the connection{half}")
            self._received.extend(self._frames.feed(data))
        frame = self._received.popleft()
        if isinstance(frame, ProtocolError):
            raise frame
        return frame

    async def aclose(self) -> None:
        """Close both streams; what was sent goes out first, as long as the other side takes it (for at most 1 s)."""
        if self._closing is None:
            self._received.clear()
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._writer.close()
        closed = asyncio.ensure_future(self._writer.wait_closed())
        await asyncio.wait([closed], timeout=_GRACE)
        if not closed.done():
            self._writer.transport.abort()
            await asyncio.wait([closed], timeout=_GRACE)
        if closed.done():
            closed.exception()  # how it ended is of no interest any more
        else:
            closed.cancel()
        self._reader.feed_eof()  # a reader may be waiting for it


class _PipeConnection(StreamConnection):
    """Over two pipes, one for each direction."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        incoming: asyncio.ReadTransport,
        max_frame_bytes: int,
    ) -> None:
        super().__init__(reader, writer, max_frame_bytes=max_frame_bytes)
        self._incoming = incoming

    async def _close(self) -> None:
        self._incoming.close()
        await super()._close()
        await asyncio.sleep(0)  # the transport closes its pipe in the next round of the loop


async def connect_socket(sock: socket.socket, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> StreamConnection:
    """Return a connection over a connected stream socket, such as one end of `socket.socketpair()`; it owns the
    socket.
    """
    sock.setblocking(False)
    try:
        reader, writer = await asyncio.open_connection(sock=sock)
    except BaseException:
        sock.close()
        raise
    return StreamConnection(reader, writer, max_frame_bytes=max_frame_bytes)


async def connect_pipes(read_fd: int, write_fd: int, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> StreamConnection:
    """Return a connection that reads from one file descriptor and writes to another; it owns both.

    Raises ConfigurationError, with both closed, when they are not pipes, sockets or terminals.
    """
    loop = asyncio.get_running_loop()
    incoming = os.fdopen(read_fd, "rb", buffering=0)
    outgoing = os.fdopen(write_fd, "wb", buffering=0)
    reader = asyncio.StreamReader()
    read_transport: asyncio.ReadTransport | None = None
    # The writer's protocol is one for readers, too: only that one reports when it has been closed.
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    try:
        read_transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), incoming)
        write_transport, _ = await loop.connect_write_pipe(lambda: protocol, outgoing)
    except BaseException as error:
        if read_transport is not None:
            read_transport.close()
            await asyncio.sleep(0)
        incoming.close()
        outgoing.close()
        if isinstance(error, ValueError | OSError):
            raise ConfigurationError(f"a gateway cannot talk over these file descriptors: {error}") from error
        raise
    writer = asyncio.StreamWriter(write_transport, protocol, None, loop)
    return _PipeConnection(reader, writer, read_transport, max_frame_bytes)
