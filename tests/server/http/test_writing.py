"""Heads and bodies of answers, as they leave the server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import pytest
from tests.waiting import until

from toolexec.server.http.writing import Together


@pytest.fixture
async def ends() -> AsyncGenerator[tuple[Together, socket.socket]]:
    """A transport that writes together, and the other end of its connection."""
    near, far = socket.socketpair()
    far.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=near)
    yield Together(transport, loop), far
    transport.abort()
    far.close()


async def test_a_head_and_its_body_are_one(ends: tuple[Together, socket.socket]) -> None:
    """Bytes that are written first are sent with the next ones, in order, and alone when the turn is over."""
    near, far = ends
    near.write(b"head ")
    assert near.get_write_buffer_size() == 5
    with pytest.raises(BlockingIOError):
        far.recv(100)
    near.write(b"body ")
    assert far.recv(100) == b"head body "
    near.write(b"alone")
    assert await asyncio.get_running_loop().sock_recv(far, 100) == b"alone"
    assert near.get_write_buffer_size() == 0


async def test_the_end_loses_nothing(ends: tuple[Together, socket.socket]) -> None:
    """Bytes that are kept are sent before the connection is closed."""
    near, far = ends
    near.write(b"last")
    near.close()
    near.close()
    loop = asyncio.get_running_loop()
    assert [await loop.sock_recv(far, 100) for _ in range(2)] == [b"last", b""]


async def test_what_is_cut_off_sends_no_more(ends: tuple[Together, socket.socket]) -> None:
    """A connection that is cut off does not send what was kept."""
    near, far = ends
    near.write(b"never")
    near.abort()
    assert await asyncio.get_running_loop().sock_recv(far, 100) == b""


async def test_the_next_connection_is_read_after_a_lost_one(ends: tuple[Together, socket.socket]) -> None:
    """A connection that has the file number of one that was lost while it was written to is read as any other."""
    near, _ = ends
    lost: socket.socket = near.get_extra_info("socket")
    number = lost.fileno()
    near.abort()
    near.write(b"head ")
    near.write(b"body ")
    await until(lambda: lost.fileno() < 0)
    loop = asyncio.get_running_loop()
    next_one, other = socket.socketpair()
    assert next_one.fileno() == number
    reader = asyncio.StreamReader()
    transport, _ = await loop.create_connection(lambda: asyncio.StreamReaderProtocol(reader), sock=next_one)
    with other:
        other.send(b"hello")
        async with asyncio.timeout(20):
            assert await reader.read(5) == b"hello"
    transport.close()
    await until(lambda: next_one.fileno() < 0)


async def test_a_lost_connection_is_written_nothing() -> None:
    """An answer to a client that is gone by then is dropped: the loop would wait for a file that is closed, and not see
    what comes to the next connection that has its number."""
    lost = Lost()
    near = Together(lost, asyncio.get_running_loop())
    near.write(b"head ")
    near.write(b"body ")
    assert lost.written == []


class Lost(asyncio.Transport):
    """A transport whose connection was lost in this turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def is_closing(self) -> bool:
        return True

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.written.extend(list_of_data)
