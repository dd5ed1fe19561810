"""Frames from one end to the other: within a loop, over sockets, over pipes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from toolexec.errors import ConfigurationError, ConnectionClosedError, ProtocolError
from toolexec.runtime.protocol.connections import Connection, connect_pipes, connect_socket, memory_pair

Pair = Callable[..., AbstractAsyncContextManager[tuple[Connection, Connection]]]


@asynccontextmanager
async def over_memory(**settings: Any) -> AsyncGenerator[tuple[Connection, Connection]]:
    one, other = memory_pair(**settings)
    yield one, other
    await one.aclose()


@asynccontextmanager
async def over_sockets(**settings: Any) -> AsyncGenerator[tuple[Connection, Connection]]:
    one, other = [await connect_socket(sock, **settings) for sock in socket.socketpair()]
    yield one, other
    await one.aclose()
    await other.aclose()


@asynccontextmanager
async def over_pipes(**settings: Any) -> AsyncGenerator[tuple[Connection, Connection]]:
    there, back = os.pipe(), os.pipe()
    one = await connect_pipes(back[0], there[1], **settings)
    other = await connect_pipes(there[0], back[1], **settings)
    yield one, other
    await one.aclose()
    await other.aclose()


PAIRS: list[Pair] = [over_memory, over_sockets, over_pipes]
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.__name__)


@every_pair
class TestEveryConnection:
    """What holds for each."""

    async def test_frames_arrive_whole_and_in_order(self, pair: Pair) -> None:
        """Both ways, empty and large ones, too."""
        frames = [b"one", b"", os.urandom(3 << 20), b"four"]
        async with pair() as (one, other):
            for here, there in ((one, other), (other, one)):
                sending = asyncio.gather(*(here.send(frame) for frame in frames))
                assert [await there.receive() for _ in frames] == frames
                await sending

    async def test_many_senders(self, pair: Pair) -> None:
        """Frames of several tasks do not mix."""
        frames = [bytes([number]) * 200_000 for number in range(20)]
        async with pair() as (one, other):
            sending = asyncio.gather(*(one.send(frame) for frame in frames))
            assert sorted([await other.receive() for _ in frames]) == frames
            await sending

    async def test_too_large_a_frame(self, pair: Pair) -> None:
        """Such a frame is not sent, and the connection works on."""
        async with pair(max_frame_bytes=10) as (one, other):
            with pytest.raises(ProtocolError, match="over the limit of 10"):
                await one.send(b"x" * 11)
            await one.send(b"x" * 10)
            assert await other.receive() == b"x" * 10

    async def test_waiting_can_be_cancelled(self, pair: Pair) -> None:
        """No frame is lost by it."""
        async with pair() as (one, other):
            task = asyncio.ensure_future(other.receive())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await one.send(b"still there")
            assert await other.receive() == b"still there"

    async def test_after_closing(self, pair: Pair) -> None:
        """A closed connection can neither send nor receive; closing again does nothing."""
        async with pair() as (one, other):
            await other.send(b"unread")
            await one.aclose()
            await one.aclose()
            with pytest.raises(ConnectionClosedError):
                await one.send(b"x")
            with pytest.raises(ConnectionClosedError):
                await one.receive()

    async def test_the_other_side_closes(self, pair: Pair) -> None:
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

    async def test_closing_wakes_who_waits(self, pair: Pair) -> None:
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
    sender, receiver = await connect_socket(left), await connect_socket(right, max_frame_bytes=10)
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
    receiver = await connect_socket(right)
    left.sendall(b"\x00\x00\x00\x05ab")
    left.close()
    with pytest.raises(ConnectionClosedError, match="middle of a frame"):
        await receiver.receive()
    await receiver.aclose()


@pytest.mark.full
async def test_a_side_that_does_not_read() -> None:
    """Sending waits for it; closing does not wait for ever, and cancelled closing closes all the same."""
    left, right = socket.socketpair()
    sender = await connect_socket(left)
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
    connection = await connect_socket(accepted)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()
    with pytest.raises(ConnectionClosedError):
        await connection.receive()
    await connection.aclose()
    server.close()


async def test_a_socket_that_cannot_be_used() -> None:
    """Such a socket is closed, and the error has the reason."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with pytest.raises(ValueError, match=r"[Ss]tream"):
        await connect_socket(sock)
    assert sock.fileno() == -1


@pytest.mark.parametrize("which", [0, 1], ids=["to read from", "to write to"])
async def test_a_file_is_no_pipe(which: int, tmp_path: Any) -> None:
    """A gateway does not talk over files; all that was opened is closed."""
    path = tmp_path / "file"
    path.touch()
    pipe = os.pipe()
    ends = [*pipe]
    os.close(ends[which])
    ends[which] = os.open(path, os.O_RDWR)
    with pytest.raises(ConfigurationError, match="cannot talk over"):
        await connect_pipes(*ends)
    for each in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)
