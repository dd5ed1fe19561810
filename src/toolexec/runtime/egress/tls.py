"""TLS over any stream, for either side of it."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from toolexec.process.stream import Stream

_PLAIN = 1 << 16


class TlsStream:
    """A `Stream` inside of another, which it takes over. `handshake` comes first."""

    def __init__(
        self,
        stream: Stream,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        host: str | None = None,
        received: bytes = b"",
    ) -> None:
        """*host* is whose certificate a client expects. *received* has been read from the stream already."""
        self._stream = stream
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self._sending = asyncio.Lock()
        if received:
            self._incoming.write(received)

    async def handshake(self) -> None:
        """Shake hands; raises OSError (`ssl.SSLError` is one) when that fails."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLError:
                with suppress(OSError):
                    await self._flush()  # the alert that says why
                raise
            else:
                await self._flush()
                return

    async def read(self) -> bytes:
        """Implement `Stream.read`."""
        while True:
            try:
                return self._tls.read(_PLAIN)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def write(self, data: bytes) -> None:
        """Implement `Stream.write`."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view[:_PLAIN]) :]
            await self._flush()

    async def aclose(self) -> None:
        """Implement `Stream.aclose`."""
        with suppress(OSError):  # the other side has not said good bye yet, or never will
            self._tls.unwrap()
        with suppress(OSError):
            async with asyncio.timeout(1):
                await self._flush()
        await self._stream.aclose()

    async def _fill(self) -> None:
        data = await self._stream.read()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        async with self._sending:
            data = self._outgoing.read()
            if data:
                await self._stream.write(data)
