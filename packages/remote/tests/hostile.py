"""What one tenant, or a stranger, can do to a server of sandboxes that others use, too: one way each."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

from packages.remote.tests.servers import OTHER, Client, identity
from tests.waiting import PATIENCE, until

from toolexec.sandbox import ExecuteRequest
from toolexec_remote.signature import Target, signed_headers
from toolexec_remote.wire import encode_request

Way = Callable[[str], AbstractAsyncContextManager[None]]
_MEGABYTE: Final = 1 << 20
_PART: Final = b"x" * (256 << 10)
_OWN: Final = uuid4().hex[:8]
"""Part of the names of runs: a server runs none again that it knows from an earlier process."""


async def clients(stack: AsyncExitStack, endpoint: str, number: int) -> list[Client]:
    """Return the connections of the hostile tenant that the server takes, of so many that it asks for."""
    found: list[Client] = []
    for each in range(number):
        client = Client(endpoint, OTHER, name=f"hostile-{each}")
        stack.push_async_callback(client.lose)
        with suppress(Exception):  # it is refused
            await client.connect()
            found.append(client)
    return found


async def _raw(stack: AsyncExitStack, endpoint: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(endpoint)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    stack.push_async_callback(_abort, writer)
    return reader, writer


async def _abort(writer: asyncio.StreamWriter) -> None:
    writer.close()
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


def _transport(client: Client) -> asyncio.Transport:
    return client._socket._conn.transport


async def _drained(transport: asyncio.Transport) -> None:
    """Wait until little is left to be sent, or the connection is over."""
    await until(lambda: transport.is_closing() or transport.get_write_buffer_size() <= len(_PART), 0.001)


async def _pour(transport: asyncio.Transport, size: int) -> None:
    """Send so many bytes, unless the other side ends it before."""
    for _ in range(size // len(_PART)):
        if transport.is_closing():
            return
        transport.write(_PART)
        await _drained(transport)


@asynccontextmanager
async def connections(endpoint: str) -> AsyncGenerator[None]:
    """Open as many connections as there can be."""
    async with AsyncExitStack() as stack:
        await clients(stack, endpoint, 60)
        yield


@asynccontextmanager
async def strangers(endpoint: str) -> AsyncGenerator[None]:
    """Open connections without a key, and say nothing."""
    async with AsyncExitStack() as stack:
        for _ in range(300):
            await _raw(stack, endpoint)
        yield


@asynccontextmanager
async def nonsense(endpoint: str) -> AsyncGenerator[None]:
    """Send what is not HTTP, without a key."""
    async with AsyncExitStack() as stack:
        for _ in range(100):
            reader, writer = await _raw(stack, endpoint)
            writer.write(b"GET / HTTP/1.1\r\nContent-Length: no\r\n" + b"X" * 2000 + b"\r\n\r\n")
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), PATIENCE)
        yield


@asynccontextmanager
async def half_messages(endpoint: str) -> AsyncGenerator[None]:
    """Send most of large messages, on several connections, and not the rest."""
    async with AsyncExitStack() as stack:
        found = await clients(stack, endpoint, 20)
        for client in found:
            _transport(client).write(b"\x82\xff" + struct.pack(">Q", 15 * _MEGABYTE) + bytes(4))
        await asyncio.gather(*(_pour(_transport(client), 14 * _MEGABYTE) for client in found))
        yield


@asynccontextmanager
async def half_bodies(endpoint: str) -> AsyncGenerator[None]:
    """Send most of large requests by POST, and not the rest."""
    async with AsyncExitStack() as stack:
        headers = signed_headers(OTHER, Target(await identity(endpoint), "POST", urlsplit(endpoint).path))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {urlsplit(endpoint).path} HTTP/1.1\r\nHost: x\r\nContent-Length: {8 * _MEGABYTE}\r\n{lines}\r\n"
        writers = [(await _raw(stack, endpoint))[1] for _ in range(40)]
        for writer in writers:
            writer.write(head.encode())
        await asyncio.gather(*(_pour(writer.transport, 7 * _MEGABYTE) for writer in writers))
        yield


@asynccontextmanager
async def large_requests(endpoint: str) -> AsyncGenerator[None]:
    """Have large requests wait."""
    async with AsyncExitStack() as stack:
        [client] = await clients(stack, endpoint, 1)
        files = {"large.bin": b"x" * (4 * _MEGABYTE)}
        for number in range(50):
            with suppress(ConnectionError):
                await client.execute(f"large-{_OWN}-{number}", "while True: pass", timeout=600, files=files)
        yield


@asynccontextmanager
async def unacknowledged(endpoint: str) -> AsyncGenerator[None]:
    """Read large results, and acknowledge none."""
    async with AsyncExitStack() as stack:
        [client] = await clients(stack, endpoint, 1)
        runs = [f"result-{_OWN}-{number}" for number in range(120)]
        for run in runs:
            await client.execute(run, f"return 'x' * {2 * _MEGABYTE}", timeout=600)
        await client.expect("result", "refused")
        reading = asyncio.create_task(_read(client))
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.wait([reading])


async def _read(client: Client) -> None:
    """Read all that comes, and answer nothing."""
    while not _transport(client).is_closing():
        await client._socket.receive()


@asynccontextmanager
async def unread(endpoint: str) -> AsyncGenerator[None]:
    """Ask for large results on several connections, and read none of them."""
    async with AsyncExitStack() as stack:
        for client in await clients(stack, endpoint, 6):
            _transport(client).pause_reading()
            for number in range(20):
                await client.execute(f"{client._name}-{_OWN}-{number}", f"return 'x' * {2 * _MEGABYTE}", timeout=600)
        yield


@asynccontextmanager
async def places(endpoint: str) -> AsyncGenerator[None]:
    """Have as many programs wait as there can be."""
    async with AsyncExitStack() as stack:
        [client] = await clients(stack, endpoint, 1)
        for number in range(500):
            await client.execute(f"place-{_OWN}-{number}", "while True: pass", timeout=600)
        yield


@asynccontextmanager
async def unconfirmed(endpoint: str) -> AsyncGenerator[None]:
    """Ask for programs, and confirm the start of none."""
    async with AsyncExitStack() as stack:
        [client] = await clients(stack, endpoint, 1)
        for number in range(50):
            await client.execute(f"held-{_OWN}-{number}", "return 1", go=False)
        await client.expect("ready")
        yield


@asynccontextmanager
async def sessions(endpoint: str) -> AsyncGenerator[None]:
    """Open sessions, and run nothing in them."""
    async with AsyncExitStack() as stack:
        [client] = await clients(stack, endpoint, 1)
        for number in range(20):
            body = encode_request(ExecuteRequest(code="0"), run=f"session-{_OWN}-{number}")
            await client.begin("open", f"session-{_OWN}-{number}", body)
        await client.expect("opened")
        yield


@asynccontextmanager
async def hanging_calls(endpoint: str) -> AsyncGenerator[None]:
    """Run programs that call a tool, and never answer."""
    async with AsyncExitStack() as stack:
        [client] = await clients(stack, endpoint, 1)
        for number in range(20):
            await client.execute(f"call-{_OWN}-{number}", "return tools.math.add(a=1, b=2)", timeout=600)
        await client.expect("frame")
        yield


@asynccontextmanager
async def floods(endpoint: str) -> AsyncGenerator[None]:
    """Send requests that are refused, as fast as they are taken."""
    async with AsyncExitStack() as stack:
        [client] = await clients(stack, endpoint, 1)
        flooding = asyncio.create_task(_flood(client))
        try:
            yield
        finally:
            flooding.cancel()
            await asyncio.wait([flooding])


@asynccontextmanager
async def hanging_up(endpoint: str) -> AsyncGenerator[None]:
    """Have as many programs wait as there can be, and hang up, again and again."""
    hanging = asyncio.create_task(_hang_up(endpoint))
    try:
        yield
    finally:
        hanging.cancel()
        await asyncio.wait([hanging])


async def _hang_up(endpoint: str) -> None:
    for number in count():
        async with AsyncExitStack() as stack:
            for client in await clients(stack, endpoint, 1):
                for each in range(200):
                    await client.execute(f"hung-{_OWN}-{number}-{each}", "while True: pass", timeout=600)
                await client.expect("refused", "ready", "started")


async def _flood(client: Client) -> None:
    frame = {"type": "resume", "run": "", "fields": {"incarnation": "x"}}
    transport, number = _transport(client), 0
    while not transport.is_closing():
        for _ in range(100):
            number += 1
            text = json.dumps({**frame, "run": f"flood-{_OWN}-{number}"}).encode() + b"\n"
            transport.write(bytes([0x82, 0x80 | len(text)]) + bytes(4) + text)
        await _drained(transport)
        await asyncio.sleep(0)


WAYS: dict[str, Way] = {
    way.__name__: way
    for way in (
        connections,
        strangers,
        nonsense,
        half_messages,
        half_bodies,
        large_requests,
        unacknowledged,
        unread,
        places,
        unconfirmed,
        sessions,
        hanging_calls,
        floods,
        hanging_up,
    )
}


def peak_of(pid: int) -> int:
    """Return the most memory, in bytes, that a process had since `reset_peak`."""
    return _status(pid, "VmHWM")


def memory_of(pid: int) -> int:
    """Return the memory of a process, in bytes."""
    return _status(pid, "VmRSS")


def _status(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def reset_peak(pid: int) -> None:
    """Have the peak of a process be what it has now."""
    file = os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY)
    try:
        os.write(file, b"5")
    finally:
        os.close(file)
