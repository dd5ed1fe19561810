"""Streams of containers over a WebSocket, whose messages are sorted by their first byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from toolexec_kubernetes.stream import ChannelStream

Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


class Ends:
    def __init__(self) -> None:
        self.why: list[str] = []

    async def __call__(self, why: str) -> None:
        self.why.append(why)


@asynccontextmanager
async def connected(serve: Serve, protocol: str = "v5.channel.k8s.io") -> AsyncIterator[tuple[ChannelStream, Ends]]:
    """A stream to a server that does *serve*."""

    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=(protocol,))
        await socket.prepare(request)
        await serve(socket)
        return socket

    app = web.Application()
    app.router.add_get("/", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    ends = Ends()
    async with aiohttp.ClientSession() as session:
        socket = await session.ws_connect(
            f"http://127.0.0.1:{port}/", protocols=("v5.channel.k8s.io", "v4.channel.k8s.io")
        )
        stream = ChannelStream(socket, ends)
        yield stream, ends
        await stream.aclose()
        await stream.aclose()
    await runner.cleanup()


async def test_output_is_read_and_errors_are_kept_apart() -> None:
    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01")  # as servers do when the streams are there
        await socket.send_bytes(b"\x01one")
        await socket.send_bytes(b"\x02bad" + b"x" * 5000)
        await socket.send_bytes(b"\x03{}")
        await socket.send_bytes(b"\x01two")

    async with connected(serve) as (stream, ends):
        assert [await stream.read(), await stream.read(), await stream.read()] == [b"one", b"two", b""]
        assert stream.said() == "x" * 4000
        assert ends.why == [""]
        assert await stream.read() == b""


async def test_input_goes_out_in_pieces_and_can_be_closed() -> None:
    received: list[bytes] = []
    done = asyncio.Event()

    async def serve(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            received.append(message.data)
            if message.data[:1] == b"\xff":
                done.set()

    async with connected(serve) as (stream, _):
        await stream.write(b"x" * 300_000)
        await stream.close_input()
        await asyncio.wait_for(done.wait(), 30)
    assert all(piece[:1] == b"\x00" for piece in received[:-1])
    assert b"".join(piece[1:] for piece in received[:-1]) == b"x" * 300_000
    assert received[-1] == b"\xff\x00"


async def test_the_older_protocol_cannot_close_its_input() -> None:
    received: list[bytes] = []

    async def serve(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            received.append(message.data)

    async with connected(serve, "v4.channel.k8s.io") as (stream, _):
        await stream.write(b"x")
        await stream.close_input()
    assert received == [b"\x00x"]


async def test_a_connection_that_breaks_says_so() -> None:
    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01one")
        assert socket._req is not None
        assert socket._req.transport is not None
        await asyncio.sleep(0.05)
        socket._req.transport.abort()

    async with connected(serve) as (stream, ends):
        assert await stream.read() == b"one"
        assert await stream.read() == b""
        assert len(ends.why) == 1
        assert ends.why[0]
        with pytest.raises(BrokenPipeError):
            await stream.write(b"x")


class Broken:
    """A connection whose every call fails, as one does that the client has lost."""

    protocol = "v5.channel.k8s.io"
    closed = False

    async def receive(self) -> None:
        raise aiohttp.ClientError

    async def send_bytes(self, _: bytes) -> None:
        raise aiohttp.ClientConnectionResetError("cannot write")

    async def close(self) -> None:
        raise OSError("no route")


async def test_a_connection_that_is_lost_ends_the_stream_once() -> None:
    """A writer gets an error, and a reader the end with its reason; closing does not raise."""
    ends = Ends()
    stream = ChannelStream(Broken(), ends)  # type: ignore[arg-type]
    with pytest.raises(BrokenPipeError, match="no more input: cannot write"):
        await stream.write(b"x")
    assert await stream.read() == b""
    assert await stream.read() == b""
    assert (ends.why, stream.why) == (["ClientError"], "ClientError")
    await stream.close_input()
    await stream.aclose()
    with pytest.raises(BrokenPipeError, match=r"no more input$"):
        await stream.write(b"x")


async def test_a_server_that_closes_for_a_reason_says_which() -> None:
    """An ordinary end has none; output that comes as letters is read as well."""

    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.send_str("\x01letters")
        await socket.close(code=1011)

    async with connected(serve) as (stream, ends):
        assert await stream.read() == b"letters"
        assert await stream.read() == b""
        assert ends.why == ["closed with 1011"]
