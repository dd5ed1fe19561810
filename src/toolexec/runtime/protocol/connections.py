"""Connections: how frames get from one process to another. They know nothing of what is in a frame."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from toolexec.errors import ConnectionClosedError, ProtocolError
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES
from toolexec.runtime.protocol.messages import FrameReader

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


class StreamConnection:
    """Frames over two streams of bytes, each frame behind its length in four bytes, most significant first.

    *reader* and *writer* are those that `asyncio.open_connection`, `open_unix_connection` and their servers give, or a
    child's `stdout` and `stdin`; it owns them. A frame over *max_frame_bytes* is refused when it is to be sent and
    skipped when it comes in.
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
