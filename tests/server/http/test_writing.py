"""Heads and bodies of answers, as they leave the server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator

import pytest

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
