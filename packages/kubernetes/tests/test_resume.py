"""The streams of a container over connections that break, with a server that drops them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from tests.waiting import until

from toolexec.sandbox import Exit
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.link import Link
from toolexec_kubernetes.resume import ResumedStream
from toolexec_kubernetes.stream import ChannelStream


class Place:
    """The other end: what it was sent comes back, over as many connections as it takes."""

    def __init__(self) -> None:
        self.link = Link()
        self.connections = 0
        self.drop_after = 0
        self.refuses = False
        self.why: list[str] = []
        self.gone: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.socket: web.WebSocketResponse | None = None

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = self.socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        self.connections += 1
        received = 0
        async for message in socket:
            brought, answer = self.link.take(message.data[1:])
            received += len(brought)
            for frame in (answer, self.link.send(brought) if brought else b""):
                if frame:
                    await socket.send_bytes(b"\x01" + frame)
            if self.drop_after and received >= self.drop_after:
                self.drop()
        return socket

    def drop(self) -> None:
        assert self.socket is not None
        assert self.socket._req is not None
        if self.socket._req.transport is not None:
            self.socket._req.transport.abort()

    async def ended(self, why: str) -> None:
        self.why.append(why)


@asynccontextmanager
async def connected(patience: float = 30) -> AsyncIterator[tuple[ResumedStream, Place]]:
    """A stream to a place, which the test makes break."""
    place = Place()
    app = web.Application()
    app.router.add_get("/", place.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    async with aiohttp.ClientSession() as session:

        async def stay(_: str) -> None:
            return

        async def reopen() -> ChannelStream:
            if place.refuses:
                raise KubeError(0, "the server is away")
            return ChannelStream(await session.ws_connect(url, protocols=("v5.channel.k8s.io",)), stay)

        stream = ResumedStream(await reopen(), reopen, place.ended, place.gone, patience)
        await stream.begin()
        yield stream, place
        await stream.aclose()
        await stream.aclose()
    await runner.cleanup()


async def listen(stream: ResumedStream, size: int) -> bytes:
    came = b""
    while len(came) < size and (data := await stream.read()):
        came += data
    return came


async def test_bytes_pass_over_connections_that_break() -> None:
    """Both directions arrive whole, however often another connection has to take over."""
    data = bytes(range(256)) * 8_000
    async with connected() as (stream, place):
        place.drop_after = 300_000
        reading = asyncio.create_task(listen(stream, len(data)))
        await stream.write(data)
        assert await reading == data
        assert place.connections == stream.resumed + 1 > 5
        assert place.why == []


async def test_a_writer_alone_finds_another_connection() -> None:
    """A write makes it, without a reader."""
    async with connected() as (stream, place):
        await stream.write(b"one")
        assert await listen(stream, 3) == b"one"
        place.drop()
        while not stream.resumed:
            await stream.write(b"x")
            await asyncio.sleep(0)
        assert place.connections == 2


async def test_a_connection_that_cannot_be_made_again_is_the_end() -> None:
    """The reader learns why, once, and a writer gets an error."""
    async with connected(patience=0.2) as (stream, place):
        place.refuses = True
        place.drop()
        assert await stream.read() == b""
        assert await stream.read() == b""
        assert place.why == ["the server is away"]
        with pytest.raises(BrokenPipeError):
            await stream.write(b"x")
        await stream.close_input()


async def test_a_container_that_is_gone_is_not_connected_to() -> None:
    """Its end is known, and the wait for another connection ends with it."""
    async with connected(patience=600) as (stream, place):
        place.refuses = True
        place.drop()
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        place.gone.set_result(Exit(code=1))
        assert await reading == b""
        assert len(place.why) == 1
        assert place.connections == 1


async def test_the_end_of_the_other_side_comes_after_all_that_it_said() -> None:
    """The last bytes are read before, and the other side receives that we have them."""
    async with connected() as (stream, place):
        await stream.write(b"one")
        assert await listen(stream, 3) == b"one"
        assert place.socket is not None
        await place.socket.send_bytes(b"\x01" + place.link.send(b"last") + place.link.end(b"0"))
        assert await stream.read() == b"last"
        assert await stream.read() == b""
        assert place.why == [""]
        await until(lambda: place.link.waiting == 0)


async def test_the_end_of_input_is_sent() -> None:
    """A guest ends by itself then."""
    async with connected() as (stream, place):
        await stream.write(b"one")
        await stream.close_input()
        assert await listen(stream, 3) == b"one"
        await until(lambda: place.link.ended is not None)
        assert stream.said() == ""


async def test_a_pod_that_never_says_what_it_has_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has a bound, also where the other end takes everything and confirms nothing."""
    monkeypatch.setattr("toolexec_kubernetes.resume._MOST_KEPT", 1 << 20)
    async with connected() as (stream, place):
        place.link.take = lambda data: (b"", b"")  # type: ignore[method-assign]
        with pytest.raises(BrokenPipeError):
            for _ in range(100):
                await stream.write(b"x" * 40_000)
        assert stream._link.waiting < 2 << 20
        assert place.why == ["it does not say that it has what it was sent"]
        assert await stream.read() == b""
