"""Network connections over the guest protocol, with a guest that is played by the test, hostile for the most part."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec
from toolexec.code.tools import Tools
from toolexec.code.types import ExecuteRequest, Output
from toolexec.process.stream import SocketStream
from toolexec.runtime.guest.python.protocol import MAX_CONNECTIONS, PROTOCOL, VERSION, WINDOW
from toolexec.runtime.outcome import Ending
from toolexec.runtime.protocol import tunnel as module
from toolexec.runtime.protocol.conversation import Conversation
from toolexec.runtime.protocol.messages import FrameReader, encode_data_frame, is_data_frame, read_data_frame
from toolexec.runtime.protocol.tunnel import Tunnel

LONG = 60
Heard = tuple[str, str, Any, bytes]


class Bench:
    """A conversation, the guest's end of it, and the connections that were opened."""

    def __init__(self, serve: Callable[[Any], Awaitable[None]] | None = None, *, network: bool = True) -> None:
        ours, self.end = socket.socketpair()
        self.end.setblocking(False)
        self.streams: list[Tunnel] = []
        self.cancelled = 0
        self.release = asyncio.Event()
        self._serve = serve or self.hold
        self.talk = Conversation(SocketStream(ours), self.connect if network else None)
        self.ex = Exec()
        self.running: asyncio.Task[Ending] | None = None
        self._received: list[Heard] = []
        self._reader = FrameReader()

    async def connect(self, stream: Any) -> None:
        """Note the connection, and serve it."""
        self.streams.append(stream)
        await self._serve(stream)

    async def hold(self, stream: Any) -> None:
        """Do nothing with a connection until released or cancelled."""
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def say(self, kind: str, message_id: str = "0", **payload: Any) -> None:
        """Send a message."""
        body = json.dumps({"type": kind, "id": message_id, "payload": payload}).encode()
        await self.raw(self._reader.pack(body))

    async def data(self, connection: str, data: bytes) -> None:
        """Send data of a connection."""
        await self.raw(encode_data_frame("net_data", connection, "{}", data))

    async def raw(self, data: bytes) -> None:
        """Send bytes."""
        await asyncio.get_running_loop().sock_sendall(self.end, data)

    async def hear(self) -> Heard:
        """The next message: type, id, payload and data."""
        while not self._received:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.end, 1 << 18), LONG)
            assert data, "the host has hung up"
            for frame in self._reader.feed(data):
                assert isinstance(frame, bytes)
                if is_data_frame(frame):
                    message, data = read_data_frame(frame)
                    self._received.append((message.type, message.id, message.payload, data))
                else:
                    self._received += [(m["type"], m["id"], m["payload"], b"") for m in json.loads(frame)]
        return self._received.pop(0)

    async def received(self, kind: str, connection: str) -> Heard:
        """The next message, which is known."""
        message = await self.hear()
        assert message[:2] == (kind, connection), message
        return message

    async def begin(self) -> Bench:
        """Greet, and begin a run."""
        await self.say("hello", protocol=PROTOCOL, version=VERSION)
        await self.received("hello", "0")
        await self.run("1")
        return self

    async def run(self, run_id: str) -> None:
        """Have the host run something."""
        tools = Tools(self.ex.index, self.ex.docs, self.ex.runner, output=Output())
        self.running = asyncio.create_task(self.talk.run(ExecuteRequest(code="x", gateway=tools)))
        await self.received("execute", run_id)

    async def open(self, connection: str = "n1") -> Tunnel:
        """Open a connection, and give the host's end of it."""
        count = len(self.streams)
        await self.say("net_open", connection)
        await until(lambda: len(self.streams) != count)
        return self.streams[-1]

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait for something to become true."""
        for _ in range(LONG * 100):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came")

    async def aclose(self) -> None:
        """Put it away."""
        self.release.set()
        self.end.close()
        await self.talk.aclose()
        if self.running is not None:
            await self.running


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Awaitable[Bench]]]:
    """Makes benches with a run under way, which are put away in the end."""
    made: list[Bench] = []

    async def make(serve: Any = None, **settings: Any) -> Bench:
        made.append(Bench(serve, **settings))
        return await made[-1].begin()

    yield make
    for bench in made:
        await bench.aclose()


@pytest.fixture
async def bench(make: Callable[..., Awaitable[Bench]]) -> Bench:
    """One whose connections are left alone."""
    return await make()


# -- the usual ---------------------------------------------------------------------------------------------------------


async def test_bytes_go_both_ways_and_each_side_can_end(make: Any) -> None:
    """A server that answers what it read until the end; its return ends the connection."""

    async def reverse(stream: Any) -> None:
        said = b""
        while data := await stream.read():
            said += data
        await stream.write(said[::-1])
        await stream.write_eof()
        await stream.write_eof()

    bench = await make(reverse)
    await bench.say("net_open", "n1")
    await bench.data("n1", b"abc")
    await bench.data("n1", b"def")
    await bench.say("net_eof", "n1")
    assert (await bench.received("net_data", "n1"))[3] == b"fedcba"
    await bench.received("net_eof", "n1")
    await bench.received("net_close", "n1")
    await bench.say("net_close", "n1")
    await bench.say("net_open", "n1")  # its ID is free again
    await bench.data("n1", b"xy")
    await bench.say("net_eof", "n1")
    assert (await bench.received("net_data", "n1"))[3] == b"yx"


async def test_what_the_host_writes_waits_for_the_guest(bench: Bench) -> None:
    """No more than a window is under way; what was acknowledged may be sent again."""
    stream = await bench.open()
    data = bytes(range(256)) * (WINDOW // 128)
    writing = asyncio.create_task(stream.write(data))
    received = b""
    while len(received) < WINDOW:
        received += (await bench.received("net_data", "n1"))[3]
    await asyncio.sleep(0.02)
    assert (len(received), writing.done(), bench._received) == (WINDOW, False, [])
    await bench.say("net_ack", "n1", bytes=1)
    assert len((await bench.received("net_data", "n1"))[3]) == 1
    await bench.say("net_ack", "n1", bytes=WINDOW)
    received += b"?"
    while len(received) < len(data):
        received += (await bench.received("net_data", "n1"))[3]
    await writing
    assert received[:WINDOW] == data[:WINDOW]
    assert received[WINDOW + 1 :] == data[WINDOW + 1 :]


async def test_what_the_guest_sends_is_acknowledged_when_it_was_read(bench: Bench) -> None:
    """Not before, and not byte by byte."""
    stream = await bench.open()
    for _ in range(16):
        await bench.data("n1", bytes(WINDOW // 16))
    await bench.until(lambda: stream.owed == WINDOW)
    assert bench._received == []
    assert await stream.read() == bytes(WINDOW)
    assert (await bench.received("net_ack", "n1"))[2] == {"bytes": WINDOW}
    await bench.data("n1", bytes(1000))
    assert await stream.read() == bytes(1000)
    await bench.data("n1", bytes(WINDOW - 1000))
    assert await stream.read()
    assert (await bench.hear())[0] == "net_ack"


async def test_the_guest_closes(bench: Bench) -> None:
    """Earlier data can still be read, and then the end; nothing can be written."""
    stream = await bench.open()
    await bench.data("n1", b"last")
    await bench.say("net_close", "n1")
    await bench.received("net_close", "n1")
    assert await stream.read() == b"last"
    with pytest.raises(ConnectionResetError):
        await stream.read()
    with pytest.raises(BrokenPipeError):
        await stream.write(b"x")
    await stream.write_eof()
    await stream.aclose()
    await bench.say("net_open", "n1")
    await bench.until(lambda: len(bench.streams) == 2)
    assert bench._received == []


async def test_whoever_waits_hears_of_the_end(bench: Bench) -> None:
    """To read, and to write."""
    stream = await bench.open()
    reading = asyncio.create_task(stream.read())
    writing = asyncio.create_task(stream.write(bytes(2 * WINDOW)))
    await asyncio.sleep(0.01)
    await bench.say("net_close", "n1")
    with pytest.raises(ConnectionResetError):
        await reading
    with pytest.raises(BrokenPipeError):
        await writing


async def test_the_host_closes(bench: Bench) -> None:
    """Data that the guest has sent meanwhile are dropped without an error; its ID is in use until it has closed, too."""
    stream = await bench.open()
    await bench.data("n1", b"before")
    await bench.until(lambda: stream.owed)
    await stream.aclose()
    await bench.received("net_close", "n1")
    await bench.data("n1", b"late")
    await bench.say("net_eof", "n1")
    await bench.say("net_open", "n1")
    assert (await bench.received("error", "n1"))[2]["code"] == "protocol"
    await bench.say("net_close", "n1")
    await bench.open("n1")
    with pytest.raises(ConnectionResetError):
        await bench.streams[0].read()


# -- lifetimes ---------------------------------------------------------------------------------------------------------


async def test_the_end_of_a_run_ends_its_connections(bench: Bench) -> None:
    """Those who serve them are cancelled; the guest is notified, and the next run begins with none."""
    await bench.open("n1")
    await bench.open("n2")
    await bench.say("result", "1", value=1)
    assert bench.running is not None
    assert (await bench.running).result == {"value": 1}
    assert bench.cancelled == 2
    assert {(await bench.hear())[:2] for _ in range(2)} == {("net_close", "n1"), ("net_close", "n2")}
    await bench.say("net_open", "n3")  # of something that runs on
    await bench.received("net_close", "n3")
    for connection in ("n1", "n2", "n3"):
        await bench.say("net_close", connection)
    await bench.run("2")
    await bench.open("n4")
    assert len(bench.streams) == 3


async def test_cancelling_a_run_ends_its_connections(bench: Bench) -> None:
    """As its result does."""
    await bench.open()
    assert bench.running is not None
    bench.running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bench.running
    bench.running = None
    assert bench.cancelled == 1


async def test_a_guest_that_is_gone_has_no_connections(bench: Bench) -> None:
    """Their handlers are cancelled; a kept connection raises that it is closed."""
    stream = await bench.open()
    bench.end.close()
    assert bench.running is not None
    assert (await bench.running).result is None
    assert bench.cancelled == 1
    with pytest.raises(ConnectionResetError):
        await stream.read()
    with pytest.raises(BrokenPipeError):
        await stream.write(b"x")


async def test_who_ignores_cancellation_is_not_waited_for(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not for ever; the log tells."""
    monkeypatch.setattr(module, "_GRACE", 0.05)
    release = asyncio.Event()

    async def stubborn(_: Any) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    bench = await make(stubborn)
    await bench.open()
    with caplog.at_level(logging.WARNING):
        await bench.say("result", "1", value=1)
        assert (await bench.running).result == {"value": 1}
    assert "though their run is over" in caplog.text
    release.set()


@pytest.mark.parametrize(("error", "logged"), [(ConnectionError("gone"), False), (ValueError("a bug"), True)])
async def test_a_failure_ends_one_connection(
    make: Any, caplog: pytest.LogCaptureFixture, error: Exception, logged: bool
) -> None:
    """Only that connection fails; an exception that is not of the network is logged."""

    async def fail(_: Any) -> None:
        raise error

    bench = await make(fail)
    await bench.say("net_open", "n1")
    await bench.received("net_close", "n1")
    assert ("a network connection of a guest failed" in caplog.text) is logged
    await bench.say("result", "1", value=1)
    assert (await bench.running).result == {"value": 1}


# -- breaking the rules ------------------------------------------------------------------------------------------------


async def test_without_a_network_there_are_no_connections(make: Any) -> None:
    """To ask for one is an offence."""
    bench = await make(network=False)
    await bench.say("net_open", "n1")
    assert "may not open" in (await bench.received("error", "n1"))[2]["error"]
    await bench.data("n1", b"x")
    await bench.received("error", "n1")
    assert bench.streams == []


async def test_there_are_only_so_many(bench: Bench) -> None:
    """One more is an offence; the others go on."""
    for number in range(MAX_CONNECTIONS):
        await bench.say("net_open", f"n{number}")
    await bench.say("net_open", "more")
    assert f"{MAX_CONNECTIONS} network connections" in (await bench.received("error", "more"))[2]["error"]
    assert len(bench.streams) == MAX_CONNECTIONS
    await bench.say("net_close", "n0")
    await bench.received("net_close", "n0")
    await bench.open("more")


async def test_who_opens_and_closes_without_end_is_turned_away(bench: Bench) -> None:
    """As long as those who serve what was closed are not done; that is no offence."""
    for number in range(2 * MAX_CONNECTIONS):
        await bench.say("net_open", f"n{number}")
        await bench.say("net_close", f"n{number}")
        await bench.received("net_close", f"n{number}")
    await bench.say("net_open", "more")
    await bench.received("net_close", "more")
    assert len(bench.streams) == 2 * MAX_CONNECTIONS
    assert bench.talk._offences == 0


@pytest.mark.parametrize("message_id", ["", "n1"])
async def test_an_id_is_used_once_at_a_time(bench: Bench, message_id: str) -> None:
    """An ID must not be in use or empty."""
    await bench.open("n1")
    await bench.say("net_open", message_id)
    assert "in use or empty" in (await bench.received("error", message_id))[2]["error"]
    assert len(bench.streams) == 1


@pytest.mark.parametrize("kind", ["net_data", "net_eof", "net_ack", "net_close"])
async def test_connections_that_are_not_there(bench: Bench, kind: str) -> None:
    """Whatever is said of them."""
    if kind == "net_data":
        await bench.data("n9", b"x")
    else:
        await bench.say(kind, "n9", bytes=1)
    assert "there is no network connection 'n9'" in (await bench.received("error", "n9"))[2]["error"]


async def test_more_than_the_window(bench: Bench) -> None:
    """Data beyond the window are not kept, however often they are sent, and whatever their pieces are."""
    stream = await bench.open()
    for _ in range(20):
        await bench.data("n1", bytes(WINDOW // 8))
    for _ in range(12):
        await bench.received("error", "n1")
    assert (stream.owed, len(stream._incoming)) == (WINDOW, WINDOW)
    await stream.aclose()
    await bench.received("net_close", "n1")
    await bench.data("n1", b"x")
    await bench.received("error", "n1")


@pytest.mark.full
async def test_small_pieces_take_no_more_memory_than_they_hold(bench: Bench) -> None:
    """A hundred thousand single bytes."""
    stream = await bench.open()
    await bench.raw(encode_data_frame("net_data", "n1", "{}", b"x") * 100_000)
    await bench.until(lambda: stream.owed == 100_000)
    assert isinstance(stream._incoming, bytearray)
    assert await stream.read() == b"x" * 100_000


async def test_nothing_comes_after_the_end(bench: Bench) -> None:
    """Neither data nor another end; and data are never none."""
    stream = await bench.open()
    await bench.data("n1", b"")
    await bench.received("error", "n1")
    await bench.say("net_eof", "n1")
    await bench.data("n1", b"x")
    await bench.received("error", "n1")
    await bench.say("net_eof", "n1")
    await bench.received("error", "n1")
    assert await stream.read() == b""
    assert await stream.read() == b""


@pytest.mark.parametrize("size", [0, -1, 4, 1 << 80, True, 1.0, "1", None, [1]])
async def test_only_what_was_sent_is_acknowledged(bench: Bench, size: Any) -> None:
    """Anything else would let the host send without bounds."""
    stream = await bench.open()
    await stream.write(b"abc")
    await bench.received("net_data", "n1")
    await bench.say("net_ack", "n1", bytes=size)
    await bench.received("error", "n1")
    await bench.say("net_ack", "n1", bytes=3)
    await bench.until(lambda: stream._credit == WINDOW)


async def test_a_flood_of_offences_ends_the_talk(bench: Bench) -> None:
    """All connections end with it."""
    stream = await bench.open()
    await bench.raw(encode_data_frame("net_data", "n9", "{}", b"x") * 101)
    assert bench.running is not None
    assert (await bench.running).stopped == "violation"
    with pytest.raises(ConnectionResetError):
        await stream.read()
