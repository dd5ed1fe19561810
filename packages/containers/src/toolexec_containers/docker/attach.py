"""Stdin and stdout of a container as one stream, over a connection that the Docker daemon has handed over.

The daemon packs what the container writes into frames: one byte for the stream it is of, three of nothing, four for
its length. What comes in on stderr is not for the reader; its end is kept.
"""

from __future__ import annotations

import asyncio
from typing import Final

_MAX_HEAD: Final = 1 << 16
_HIGH_WATER: Final = 1 << 20
_PIECE: Final = 1 << 18
_OVERHEAD: Final = 64
_SAID: Final = 4000
_STDOUT: Final = 1


class RefusedError(Exception):
    """The daemon does not hand over the streams of a container: the HTTP status, and the beginning of what it says."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status
        self.text = text


class AttachedStream(asyncio.Protocol):
    """The `Stream` of a container; the factory for the connection that it goes over. `attach` comes first."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._head: bytearray | None = bytearray()
        self._header = bytearray()
        self._left = 0
        self._kind = 0
        self._chunks: list[bytes] = []
        self._held = 0
        self._stopped = False
        self._stderr = bytearray()
        self._ended = False
        self._error: OSError | None = None
        self._refused: RefusedError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()

    async def attach(self, path: str) -> None:
        """Ask the daemon for the streams of a container, with the request for *path*.

        Raises RefusedError when the daemon does not hand them over, OSError when it is lost.
        """
        assert self._transport is not None
        request = (
            f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"
        )
        self._transport.write(request.encode("ascii"))
        while self._head is not None and not self._ended:
            await self._news()
        if self._refused is not None:
            raise self._refused
        if self._error is not None:
            raise self._error
        if self._head is not None:
            raise ConnectionResetError("the daemon hung up when it was asked for the streams of the container")

    async def read(self) -> bytes:
        """Implement `Stream.read`."""
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._news()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        if self._stopped and self._transport is not None:
            self._stopped = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Implement `Stream.write`."""
        view = memoryview(data)
        for start in range(0, len(view), _PIECE):
            if self._ended or self._transport is None or self._transport.is_closing():
                raise self._error or BrokenPipeError("the container takes no more input")
            self._transport.write(view[start : start + _PIECE])
            if self._writer is not None:
                await asyncio.shield(self._writer)

    def write_now(self, data: bytes) -> int:
        """Implement `QuickStream.write_now`."""
        if self._ended or self._transport is None or self._transport.is_closing():
            raise self._error or BrokenPipeError("the container takes no more input")
        if self._writer is not None:
            return 0
        self._transport.write(data)
        return len(data)

    async def aclose(self) -> None:
        """Implement `Stream.aclose`. What has not been sent is dropped: the container may never take it."""
        if self._transport is not None:
            self._transport.abort()
            await asyncio.shield(self._closed)

    def said(self) -> str:
        """Return the end of what came on stderr."""
        return bytes(self._stderr).decode("utf-8", "replace")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Implement `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Implement `asyncio.Protocol`."""
        if self._head is not None:
            data = self._take_head(self._head, data)
        if self._error is None:
            self._take(data)
        if self._held > _HIGH_WATER and not self._stopped and self._transport is not None:
            self._stopped = True
            self._transport.pause_reading()
        if not self._left or self._held > _PIECE:  # the rest of a frame is on its way
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Implement `asyncio.Protocol`."""
        self._ended = True
        if self._error is None and (exc is not None or self._left or self._header):
            self._error = (
                exc if isinstance(exc, OSError) else ConnectionResetError("the connection to the daemon broke")
            )
        self._wake()
        self.resume_writing()
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        """Implement `asyncio.Protocol`."""
        self._writer = self._loop.create_future()

    def resume_writing(self) -> None:
        """Implement `asyncio.Protocol`."""
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)
        self._writer = None

    def _take_head(self, head: bytearray, data: bytes) -> bytes:
        """Read the head of the daemon's answer; gives what follows it."""
        head += data
        end = head.find(b"\r\n\r\n")
        if end < 0:
            if len(head) > _MAX_HEAD:
                self._break("the daemon's answer has no end; is it a Docker daemon?")
            return b""
        rest = bytes(head[end + 4 :])
        line = bytes(head[: head.index(b"\r\n")]).decode("ascii", "replace")
        version, _, words = line.partition(" ")
        status = words[:3]
        if not version.startswith("HTTP/") or not status.isdecimal():
            self._break("the daemon's answer is not HTTP; is it a Docker daemon?")
            return b""
        if status not in ("101", "200"):
            self._refused = RefusedError(int(status), rest.decode("utf-8", "replace")[:_SAID])
            self._break(line[:100])
            return b""
        self._head = None
        return rest

    def _take(self, data: bytes) -> None:
        position, size = 0, len(data)
        while position < size:
            if not self._left:
                taken = data[position : position + 8 - len(self._header)]
                self._header += taken
                position += len(taken)
                if len(self._header) < 8:
                    return
                self._kind, self._left = self._header[0], int.from_bytes(self._header[4:], "big")
                self._header.clear()
                continue
            piece = data[position : position + self._left]
            position += len(piece)
            self._left -= len(piece)
            if self._kind == _STDOUT:
                self._chunks.append(piece)
                self._held += len(piece) + _OVERHEAD
            else:
                self._stderr += piece[-_SAID:]
                del self._stderr[:-_SAID]

    def _break(self, why: str) -> None:
        self._error = ConnectionError(why)
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

    async def _news(self) -> None:
        """Wait for bytes, or for the end of the connection."""
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
