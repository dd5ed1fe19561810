"""The end of a connection whose client still sends: its answer must not be lost."""

from __future__ import annotations

import asyncio
from typing import Final

_SECONDS: Final = 2.0


class Lingering(asyncio.Protocol):
    """Takes the place of *protocol* when its answer is sent and the client goes on with its body.

    A socket that is closed with bytes unread is reset, and many a client then loses the answer that it has. So the
    connection is closed for writing, what comes is discarded, and the rest is closed at its end: after 2 seconds, or
    *most* bytes, at the latest.
    """

    def __init__(self, transport: asyncio.Transport, protocol: asyncio.Protocol, most: int) -> None:
        self._transport = transport
        self._protocol = protocol
        self._left = most
        self._timer = asyncio.get_running_loop().call_later(_SECONDS, transport.close)
        transport.set_protocol(self)
        if transport.can_write_eof():
            transport.write_eof()
        transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Discard more of the body."""
        self._left -= len(data)
        if self._left < 0:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Have the former protocol end."""
        self._timer.cancel()
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the client does not read its answer."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Note that it does."""
        self._protocol.resume_writing()
