"""A connection within one event loop: what one end sends, the other receives."""

from __future__ import annotations

import asyncio
from collections import deque

from toolexec.errors import ConnectionClosedError, ProtocolError
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES


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
