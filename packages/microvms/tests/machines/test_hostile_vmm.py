"""A Firecracker that was broken out of may send anything over its sockets: each case ends with a typed error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from toolexec.errors import SandboxUnavailableError
from toolexec_microvms.firecracker.api import FirecrackerAPI, connect_inside
from toolexec_microvms.firecracker.vsock import DialedStream, dial_vsock

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 \r\nContent-Length: "


@asynccontextmanager
async def peer(directory: Path, answer: bytes, *, forever: bool = False) -> AsyncGenerator[None]:
    """Answer each connection to the socket with *answer*, once or *forever*, and hang up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read(1)
            writer.write(answer)
            while forever:
                await writer.drain()
                writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, directory / "socket")
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("answer", "forever", "why"),
    [
        (b"", False, "hung up"),
        (b"SSH-2.0-server\r\n\r\n", False, "is not HTTP"),
        (b"x" * 65536, True, "has no end"),
        (HEAD + b"99999999999\r\n\r\n", False, "has a length"),
        (HEAD + b"-1\r\n\r\n", False, "has a length"),
        (HEAD + b"5\r\n\r\n[[[[[", False, "is not JSON"),
    ],
)
async def test_api(tmp_path: Path, answer: bytes, forever: bool, why: str) -> None:
    """An answer that is not one of the API's is an error that says so, and a retry is safe."""
    async with peer(tmp_path, answer, forever=forever):
        api = FirecrackerAPI(await connect_inside(tmp_path, "socket"))
        with pytest.raises(SandboxUnavailableError, match=why) as caught:
            await api.version()
        assert caught.value.retryable
        assert caught.value.outcome == "not_sent"
        api.close()


@pytest.mark.parametrize(("answer", "forever"), [(b"", False), (b"x" * 4096, True), (b"NO\n", False)])
async def test_vsock(tmp_path: Path, answer: bytes, forever: bool) -> None:
    """A connection that is not confirmed in one short line is refused, however much the peer sends."""
    async with peer(tmp_path, answer, forever=forever):
        with pytest.raises(OSError, match=r"no connection|reset"):
            await dial_vsock(tmp_path, "socket", 1024)


async def test_ended_machine(tmp_path: Path) -> None:
    """A channel that never comes about ends with its machine, for those who read and for those who come later."""

    def dial() -> Awaitable[DialedStream]:
        raise ConnectionRefusedError

    dialing: Callable[[], Awaitable[DialedStream]] = dial
    channel = DialedStream(dialing)
    reading = asyncio.ensure_future(channel.read())
    await asyncio.sleep(0)
    channel.fail("the virtual machine has ended")
    for attempt in (reading, channel.write(b"x")):
        with pytest.raises(ConnectionResetError, match="has ended"):
            await attempt
    await channel.aclose()
