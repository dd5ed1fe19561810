"""Streams of bytes, over sockets and over asyncio's own."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolexec.process.stream import PipeReader, PipeStream, SocketStream, Stream

LONG = 60


@pytest.fixture(params=["socket", "pipe"])
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Stream, socket.socket]]:
    """A stream, and the other end of it."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    if request.param == "socket":
        stream: Any = SocketStream(ours)
    else:
        stream = PipeStream(*await asyncio.open_connection(sock=ours))
    yield stream, theirs
    theirs.close()
    await stream.aclose()


async def test_bytes_go_both_ways(ends: tuple[Stream, socket.socket]) -> None:
    """As they come."""
    stream, other = ends
    await stream.write(b"ping")
    assert await asyncio.get_running_loop().sock_recv(other, 100) == b"ping"
    other.send(b"pong")
    assert await asyncio.wait_for(stream.read(), LONG) == b"pong"


async def test_much_is_sent_to_its_end(ends: tuple[Stream, socket.socket]) -> None:
    """The writer waits while the other side does not read."""
    stream, other = ends
    writing = asyncio.create_task(stream.write(b"x" * 10_000_000))
    size = 0
    while size < 10_000_000:
        size += len(await asyncio.wait_for(asyncio.get_running_loop().sock_recv(other, 1 << 20), LONG))
    await writing


async def test_the_end_is_no_bytes(ends: tuple[Stream, socket.socket]) -> None:
    """Once the other side has closed."""
    stream, other = ends
    other.close()
    assert await asyncio.wait_for(stream.read(), LONG) == b""


async def test_writing_to_nobody_fails(ends: tuple[Stream, socket.socket]) -> None:
    """With an OSError, sooner or later."""
    stream, other = ends
    other.close()
    with pytest.raises(OSError):
        for _ in range(1000):
            await stream.write(b"x" * 100_000)
            await asyncio.sleep(0)


async def test_closing_twice_is_fine(ends: tuple[Stream, socket.socket]) -> None:
    """Closing twice is fine, and the other side sees the end."""
    stream, other = ends
    await stream.aclose()
    await stream.aclose()
    assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(other, 1), LONG) == b""


async def test_reading_ends_for_the_reader_alone() -> None:
    """A task that waits in `read` gets no bytes once reading is ended, and the writer finds the pipe open."""
    reading, writing = os.pipe()
    try:
        reader = PipeReader(reading)
        waiting = asyncio.create_task(reader.read())
        await asyncio.sleep(0)
        reader.end_reading()
        assert await asyncio.wait_for(waiting, LONG) == b""
        os.write(writing, b"late")
        assert await asyncio.wait_for(reader.read(), LONG) == b""
        assert os.read(reading, 10) == b"late"
    finally:
        os.close(reading)
        os.close(writing)
