"""Frames from one end to the other, over sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolexec.errors import ConnectionClosedError, ProtocolError
from toolexec.runtime.protocol.connections import Connection, StreamConnection


async def connected(sock: socket.socket, **settings: Any) -> StreamConnection:
    return StreamConnection(*await asyncio.open_connection(sock=sock), **settings)


@asynccontextmanager
async def pair(**settings: Any) -> AsyncGenerator[tuple[Connection, Connection]]:
    """Both ends of a connection."""
    one, other = [await connected(sock, **settings) for sock in socket.socketpair()]
    yield one, other
    await one.aclose()
    await other.aclose()


class TestEveryConnection:
    """What holds for each."""

    async def test_frames_arrive_whole_and_in_order(self) -> None:
        """Both ways, empty and large ones, too."""
        frames = [b"one", b"", os.urandom(3 << 20), b"four"]
        async with pair() as (one, other):
            for here, there in ((one, other), (other, one)):
                sending = asyncio.gather(*(here.send(frame) for frame in frames))
                assert [await there.receive() for _ in frames] == frames
                await sending

    async def test_many_senders(self) -> None:
        """Frames of several tasks do not mix."""
        frames = [bytes([number]) * 200_000 for number in range(20)]
        async with pair() as (one, other):
            sending = asyncio.gather(*(one.send(frame) for frame in frames))
            assert sorted([await other.receive() for _ in frames]) == frames
            await sending

    async def test_too_large_a_frame(self) -> None:
        """Such a frame is not sent, and the connection works on."""
        async with pair(max_frame_bytes=10) as (one, other):
            with pytest.raises(ProtocolError, match="over the limit of 10"):
                await one.send(b"x" * 11)
            await one.send(b"x" * 10)
            assert await other.receive() == b"x" * 10

    async def test_waiting_can_be_cancelled(self) -> None:
        """No frame is lost by it."""
        async with pair() as (one, other):
            task = asyncio.ensure_future(other.receive())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await one.send(b"still there")
            assert await other.receive() == b"still there"

    async def test_after_closing(self) -> None:
        """A closed connection can neither send nor receive; closing again does nothing."""
        async with pair() as (one, other):
            await other.send(b"unread")
            await one.aclose()
            await one.aclose()
            with pytest.raises(ConnectionClosedError):
                await one.send(b"x")
            with pytest.raises(ConnectionClosedError):
                await one.receive()

    async def test_the_other_side_closes(self) -> None:
        """Frames sent before the close can still be received, then it is over."""
        async with pair() as (one, other):
            await one.send(b"last words")
            await one.aclose()
            assert await other.receive() == b"last words"
            with pytest.raises(ConnectionClosedError):
                await other.receive()
            with pytest.raises(ConnectionClosedError):
                for _ in range(100):
                    await other.send(b"anybody?" * 1000)
                    await asyncio.sleep(0.001)

    async def test_closing_wakes_who_waits(self) -> None:
        """At both ends."""
        async with pair() as (one, other):
            waiting = [asyncio.ensure_future(each.receive()) for each in (one, other)]
            await asyncio.sleep(0)
            await one.aclose()
            for outcome in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10):
                assert isinstance(outcome, ConnectionClosedError)


async def test_an_incoming_frame_over_the_limit() -> None:
    """Such a frame is skipped with an error in its position, and the next one is read."""
    left, right = socket.socketpair()
    sender, receiver = await connected(left), await connected(right, max_frame_bytes=10)
    await sender.send(b"x" * 100_000)
    await sender.send(b"next")
    with pytest.raises(ProtocolError, match="100000 bytes"):
        await receiver.receive()
    assert await receiver.receive() == b"next"
    await sender.aclose()
    await receiver.aclose()


async def test_half_a_frame() -> None:
    """A stream that ends in the middle of a frame says so."""
    left, right = socket.socketpair()
    receiver = await connected(right)
    left.sendall(b"\x00\x00\x00\x05ab")
    left.close()
    with pytest.raises(ConnectionClosedError, match="middle of a frame"):
        await receiver.receive()
    await receiver.aclose()


@pytest.mark.full
async def test_a_side_that_does_not_read() -> None:
    """Sending waits for it; closing does not wait for ever, and cancelled closing closes all the same."""
    left, right = socket.socketpair()
    sender = await connected(left)
    stuck = asyncio.ensure_future(sender.send(b"x" * (8 << 20)))
    await asyncio.sleep(0.05)
    assert not stuck.done()
    closing = asyncio.ensure_future(sender.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait_for(sender.aclose(), 20)
    with pytest.raises(ConnectionClosedError):
        await stuck
    right.close()


async def test_a_reset_connection() -> None:
    """A connection that breaks is a closed one."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    connection = await connected(accepted)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()
    with pytest.raises(ConnectionClosedError):
        await connection.receive()
    await connection.aclose()
    server.close()
