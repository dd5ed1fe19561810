"""Connections that are held and not used."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import ExitStack
from contextvars import ContextVar

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from tests.waiting import until
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from toolexec.server.auth import AuthSettings
from toolexec.server.http import HttpSettings, Metrics, build_app
from toolexec.server.http import connections as connections_module
from toolexec.server.http.accepting import Accepting
from toolexec.server.http.connections import connections
from toolexec.server.http.seats import STATE, Seat, Seats

from .conftest import Certificate, Serve, small_server

HEAD = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


async def test_a_head_that_never_ends(serve: Serve) -> None:
    """A client that sends a byte now and then is dropped all the same, and others are served meanwhile."""
    metrics = Metrics()
    server = await serve(HttpSettings(port=0, header_timeout=0.4), metrics=metrics)
    slow = asyncio.create_task(server.raw(HEAD, *([b"x"] * 20), pause=0.1))
    assert (await server.request("GET", "/healthz")).status_code == 200
    assert await slow == b""
    assert b'{reason="header_timeout"} 1.0' in metrics.text()


async def test_a_connection_without_a_request(serve: Serve) -> None:
    """Saying nothing is no way to stay either."""
    server = await serve(HttpSettings(port=0, header_timeout=0.2))
    assert await server.raw(b"") == b""


async def test_a_second_head_that_never_ends(serve: Serve) -> None:
    """The time limit holds for each head on a connection."""
    server = await serve(HttpSettings(port=0, header_timeout=0.3))
    answer = await server.raw(HEAD + b"\r\n", HEAD, *([b"x"] * 12), pause=0.1)
    assert answer.count(b"HTTP/1.1 200 ") <= 1


async def test_an_idle_connection_is_closed(serve: Serve) -> None:
    """After its last answer a connection may wait for so long."""
    server = await serve(HttpSettings(port=0, keep_alive=0.2))
    assert (await server.raw(HEAD + b"\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_body_after_its_answer(serve: Serve) -> None:
    """A client that has its answer and goes on sending the body is cut off."""
    server = await serve(HttpSettings(port=0, keep_alive=60))
    drops = [b"x"] * 3
    answer = await server.raw(HEAD + b"content-length: 1000\r\n\r\n", *drops, pause=0.1)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 200 ")  # empty: the end came before it was read


async def test_more_connections_than_allowed(serve: Serve) -> None:
    """One too many is told to come back; when others have left, there is room again."""
    metrics = Metrics()
    server = await serve(HttpSettings(port=0, max_connections=3), metrics=metrics)
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
    assert (await server.raw(b"")).startswith(b"HTTP/1.1 503 ")
    assert b'{reason="connections"} 1.0' in metrics.text()
    for _, writer in held:
        writer.close()
    await asyncio.sleep(0.1)
    assert (await server.request("GET", "/healthz")).status_code == 200


@pytest.mark.full
async def test_a_client_that_does_not_read(serve: Serve) -> None:
    """Such a client is dropped when its answers pile up."""
    metrics = Metrics()
    server = await serve(HttpSettings(port=0, read_timeout=0.3), metrics=metrics)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    request = HEAD.replace(b"/healthz", b"/" + b"a" * 10) + b"\r\n"
    writer.transport.set_write_buffer_limits(high=2**26)
    writer.write((HEAD.replace(b"/healthz", b"/metrics") + b"\r\n") * 20_000 + request)
    async with asyncio.timeout(60):
        await until(lambda: b'{reason="reading"} 1.0' in metrics.text(), 0.1)
    writer.transport.abort()


def requests_answered(metrics: Metrics) -> int:
    """Return how many there were so far."""
    return int(
        metrics.registry.get_sample_value("toolexec_http_requests_total", {"method": "GET", "status": "200"}) or 0
    )


@pytest.mark.full
async def test_a_client_that_reads_late(serve: Serve) -> None:
    """A late reader gets everything, as long as it reads at all."""
    metrics = Metrics()
    server = await serve(HttpSettings(port=0, read_timeout=30), metrics=metrics)
    count = 6000
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**16)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    writer.transport.set_write_buffer_limits(high=2**26)
    writer.write((HEAD.replace(b"/healthz", b"/metrics") + b"\r\n") * (count - 1))
    writer.write(HEAD + b"connection: close\r\n\r\n")
    before, now = -1, 0
    while before != now:  # until nothing fits between them any more
        await asyncio.sleep(0.5)
        before, now = now, requests_answered(metrics)
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    async with asyncio.timeout(60):
        answer = await reader.read(-1)
    writer.close()
    assert now < count
    assert answer.count(b"HTTP/1.1 200 ") == count
    assert b'{reason="reading"}' not in metrics.text()


@pytest.mark.parametrize("asks", [False, True])
async def test_who_gives_way_over_tls_is_gone(
    asks: bool, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that never ends TLS has no connection for long once it has no seat, whether it had an answer or not."""
    monkeypatch.setattr(connections_module, "_LEAVE", 0.0)
    own, other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    own.load_cert_chain(certificate.cert, certificate.key)
    other.load_verify_locations(certificate.cert)
    config = uvicorn.Config(build_app(small_server(), HttpSettings(), AuthSettings()), lifespan="off", log_config=None)
    config.load()
    made, seats, state = (
        connections(HttpSettings(), lambda reason: None),
        Seats(3, proven=True, patience=0.0),
        ServerState(),
    )

    def make(seat: Seat | None) -> asyncio.Protocol:
        return made(config=config, server_state=state, app_state={STATE: seat})

    with socket.create_server(("127.0.0.1", 0)) as bound, ExitStack() as clients:
        address = bound.getsockname()
        accepting = Accepting((bound,), seats, make, tls=own, handshake_timeout=5)

        def come() -> None:
            client = other.wrap_socket(socket.create_connection(address, 20), server_hostname="127.0.0.1")
            clients.enter_context(client)
            if asks:
                client.sendall(HEAD + b"\r\n")
                assert client.recv(1000)

        for _ in range(9):
            await asyncio.to_thread(come)
        await until(lambda: len(state.connections) <= 3)
    await until(lambda: not state.connections)
    accepting.close()
    await accepting.wait_closed()


_SEEN: ContextVar[str] = ContextVar("seen", default="")


@pytest.mark.parametrize("size", [0, 300_000])
async def test_a_request_knows_nothing_of_an_earlier_one(size: int) -> None:
    """A request that was sent before the earlier one was answered, or after a large one, has no variables of that."""
    seen: list[str] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(_SEEN.get())
        _SEEN.set(scope["path"])
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(answer, lifespan="off", log_config=None)
    config.load()
    made, seats = connections(HttpSettings(), lambda reason: None), Seats(10, proven=True)

    def make(seat: Seat | None) -> asyncio.Protocol:
        return made(config=config, server_state=ServerState(), app_state={STATE: seat})

    with socket.create_server(("127.0.0.1", 0)) as bound:
        accepting = Accepting((bound,), seats, make, tls=None, handshake_timeout=5)
        reader, writer = await asyncio.open_connection(*bound.getsockname())
    first = b"POST /first HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size
    then = b"GET /then HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    writer.write(first if size else first + then)
    assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
    writer.write(then if size else b"")
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    accepting.close()
    await accepting.wait_closed()
    assert seen == ["", ""]


class Transport(asyncio.Transport):
    """A transport that holds as much as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.held

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.full
async def test_a_client_that_reads_slowly() -> None:
    """A slow client is not dropped while it reads anything at all, and it is when it stops to."""
    made = connections(HttpSettings(read_timeout=0.4), lambda reason: None)
    config = uvicorn.Config(build_app(small_server(), HttpSettings(), AuthSettings()), log_config=None)
    config.load()
    connection = made(config=config, server_state=ServerState(), app_state={})
    transport = Transport()
    connection.transport, connection.flow = transport, FlowControl(transport)
    transport.held = 100
    connection.pause_writing()
    for _ in range(12):
        await asyncio.sleep(0.05)
        transport.held -= 5
    assert not transport.aborted
    connection.resume_writing()
    await asyncio.sleep(0.5)
    assert not transport.aborted
    connection.pause_writing()
    async with asyncio.timeout(20):
        await until(lambda: transport.aborted, 0.05)


async def test_heads_that_are_too_long(serve: Serve) -> None:
    """Refuses such heads without keeping them."""
    server = await serve(HttpSettings(port=0, max_header_bytes=2000))
    answer = await server.raw(HEAD + b"x: " + b"y" * 5000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    answer = await server.raw(HEAD + b"x: " + b"y" * 5000)
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_bytes_that_are_no_http(serve: Serve) -> None:
    """Whatever they are, the answer is 400 or none, and the server goes on."""
    server = await serve(HttpSettings(port=0, header_timeout=0.3))
    for noise in (b"\x16\x03\x01\x02\x00\x01" + b"\x00" * 50, b"GET\r\n\r\n", b"\x00" * 999, b"PRI * HTTP/2.0\r\n\r\n"):
        answer = await server.raw(noise)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    smuggled = HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    answer = await server.raw(smuggled + HEAD + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"HTTP/1.1 200" not in answer
    assert (await server.request("GET", "/healthz")).status_code == 200


async def test_no_websockets(serve: Serve) -> None:
    """An upgrade is not made."""
    server = await serve()
    upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "x"}
    assert (await server.request("GET", "/nothing", headers=upgrade)).status_code == 404
