"""Streams of bytes to another process, whatever they go over."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Final, Protocol, runtime_checkable

_CHUNK: Final = 1 << 18


class Stream(Protocol):
    """A duplex stream of bytes, used by one event loop: one task reads, one task writes."""

    async def read(self) -> bytes:
        """Return the next bytes; b"" once the other side has closed its end. Raises OSError when it is lost."""
        ...

    async def write(self, data: bytes) -> None:
        """Send all of *data*; waits while the other side does not take it. Raises OSError when it is gone."""
        ...

    async def aclose(self) -> None:
        """Close it; no task may be reading or writing. Closing twice is fine."""
        ...


@runtime_checkable
class QuickStream(Protocol):
    """A stream that can send without a wait."""

    def write_now(self, data: bytes) -> int:
        """Send as much of *data* as the other side takes at once, and return how much that was; no task may be writing.

        Raises OSError when it is gone.
        """
        ...


class SocketStream:
    """A stream over a connected socket, which it takes over."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection

    async def read(self) -> bytes:
        """Read as `Stream.read` does."""
        return await asyncio.get_running_loop().sock_recv(self._socket, _CHUNK)

    async def write(self, data: bytes) -> None:
        """Write as `Stream.write` does."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    def write_now(self, data: bytes) -> int:
        """Write as `QuickStream.write_now` does."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def aclose(self) -> None:
        """Close as `Stream.aclose` does."""
        self._socket.close()


class PipeStream:
    """A stream over a pair of asyncio's: the output of a process and its input, or both ends of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Read as `Stream.read` does."""
        return await self._reader.read(_CHUNK)

    async def write(self, data: bytes) -> None:
        """Write as `Stream.write` does."""
        self._writer.write(data)
        await self._writer.drain()

    async def aclose(self) -> None:
        """Close as `Stream.aclose` does."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class PipeReader:
    """Reads a pipe, or whatever else an event loop can watch, for one task; *reading* stays its owner's to close.

    Quicker than asyncio's transports, as there is nothing between a waiting reader and the pipe.
    """

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._loop = asyncio.get_running_loop()
        self._ready: bytes | None = None
        self._reader: asyncio.Future[None] | None = None
        self._watched = False
        self._is_over = False

    async def read(self) -> bytes:
        """Read as `Stream.read` does."""
        while not self._is_over:
            if self._ready is not None:
                data, self._ready = self._ready, None
                return data
            if not self._watched:
                self._watched = True
                self._loop.add_reader(self._reading, self._readable)
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return b""

    def _readable(self) -> None:
        """Take what there is, for the task that waits now or comes next; but no more than that."""
        if self._ready is not None:
            self._unwatch()
            return
        with suppress(BlockingIOError):
            self._ready = os.read(self._reading, _CHUNK)
        _wake(self._reader)

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._reading)

    def end_reading(self) -> None:
        """Have `read` return b"" from now on, also to a task that waits in it; the other side notices nothing."""
        self._is_over = True
        self._unwatch()
        _wake(self._reader)


class Pipes(PipeReader):
    """A stream over two pipes, which it takes over: *reading* is what it reads from, *writing* what it writes to."""

    def __init__(self, reading: int, writing: int) -> None:
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        super().__init__(reading)
        self._writing = writing
        self._writer: asyncio.Future[None] | None = None

    async def write(self, data: bytes) -> None:
        """Write as `Stream.write` does."""
        left = memoryview(data)
        while left:
            if self._writing < 0:
                raise BrokenPipeError("the stream is closed")
            try:
                left = left[os.write(self._writing, left) :]
            except BlockingIOError:
                await self._writable()

    def write_now(self, data: bytes) -> int:
        """Write as `QuickStream.write_now` does."""
        if self._writing < 0:
            raise BrokenPipeError("the stream is closed")
        try:
            return os.write(self._writing, data)
        except BlockingIOError:
            return 0

    async def _writable(self) -> None:
        self._writer = self._loop.create_future()
        self._loop.add_writer(self._writing, _wake, self._writer)
        try:
            await self._writer
        finally:
            self._writer = None
            if self._writing >= 0:
                self._loop.remove_writer(self._writing)

    async def aclose(self) -> None:
        """Close as `Stream.aclose` does."""
        self.close()

    def close(self) -> None:
        """Close both; twice is fine. A task that still reads gets b"", one that still writes an OSError."""
        self.close_writing()
        self.end_reading()
        if self._reading >= 0:
            os.close(self._reading)
            self._reading = -1

    def close_writing(self) -> None:
        """Close the pipe that it writes to, so that the other side reads to an end."""
        if self._writing >= 0:
            self._loop.remove_writer(self._writing)
            os.close(self._writing)
            self._writing = -1
            _wake(self._writer)


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
