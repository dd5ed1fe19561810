"""The stream of a container over a connection that the other side cuts, stops and fills at will."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.waiting import until

from toolexec_containers.docker.attach import AttachedStream, RefusedError

HEAD = b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n"
Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def frame(kind: int, data: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@asynccontextmanager
async def daemon(directory: Path, play: Play) -> AsyncIterator[AttachedStream]:
    """Something that plays the daemon, and a stream that is connected to it."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await play(reader, writer)
        finally:
            writer.close()
            over.set()

    server = await asyncio.start_unix_server(serve, str(directory / "s"))
    _, stream = await asyncio.get_running_loop().create_unix_connection(AttachedStream, str(directory / "s"))
    try:
        yield stream
    finally:
        await stream.aclose()
        await over.wait()
        server.close()


def says(*pieces: bytes, end: bool = True) -> Play:
    """A daemon that writes these, one after the other."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.001)
        if not end:
            await reader.read()

    return play


async def read_all(stream: AttachedStream) -> bytes:
    found = b""
    while data := await stream.read():
        found += data
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 1000])
async def test_frames_may_be_cut_anywhere(tmp_path: Path, size: int) -> None:
    text = HEAD + frame(1, b"one") + frame(2, b"err") + frame(1, b"") + frame(1, b"two" * 20) + frame(2, b"or")
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    async with daemon(tmp_path, says(*pieces)) as stream:
        await stream.attach("/x")
        assert await read_all(stream) == b"one" + b"two" * 20
        assert await stream.read() == b""
        assert stream.said() == "error"


async def test_only_the_end_of_stderr_is_kept(tmp_path: Path) -> None:
    async with daemon(tmp_path, says(HEAD, frame(2, b"a" * 100_000), frame(2, b"bc"), frame(3, b"\xff"))) as stream:
        await stream.attach("/x")
        assert await read_all(stream) == b""
        assert stream.said() == "a" * 3997 + "bc\ufffd"


async def test_what_nobody_reads_is_not_taken_in(tmp_path: Path) -> None:
    taken = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        writer.write(HEAD)
        for _ in range(640):
            writer.write(frame(1, bytes(1 << 15)))
            await writer.drain()
            taken += 1 << 15

    async with daemon(tmp_path, play) as stream:
        await stream.attach("/x")
        await asyncio.sleep(0.3)
        assert taken < 4 << 20
        assert len(await read_all(stream)) == 20 << 20


async def test_a_write_waits_until_it_is_taken(tmp_path: Path) -> None:
    go = asyncio.Event()
    got = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        writer.write(HEAD)
        await go.wait()
        while got < 8 << 20:
            got += len(await reader.read(1 << 20))

    async with daemon(tmp_path, play) as stream:
        await stream.attach("/x")
        writing = asyncio.create_task(stream.write(bytes(8 << 20)))
        await asyncio.sleep(0.05)
        assert not writing.done()
        go.set()
        await writing
        await until(lambda: got >= 8 << 20)


async def test_a_refusal_has_its_status_and_what_was_said(tmp_path: Path) -> None:
    text = b'HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n{"a": 42}'
    async with daemon(tmp_path, says(text)) as stream:
        with pytest.raises(RefusedError, match=r'404 \{"a": 42\}') as caught:
            await stream.attach("/x")
        assert caught.value.status == 404


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "hung up when it was asked"),
        (b"HTTP/1.1 101", "hung up when it was asked"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 wat\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 " + b"x" * 100_000, "has no end"),
    ],
)
async def test_what_is_no_answer_is_an_error(tmp_path: Path, said: bytes, why: str) -> None:
    async with daemon(tmp_path, says(said)) as stream:
        with pytest.raises(OSError, match=why):
            await stream.attach("/x")


async def test_a_connection_that_breaks_in_a_frame_is_lost(tmp_path: Path) -> None:
    async with daemon(tmp_path, says(HEAD, frame(1, b"12345")[:-2])) as stream:
        await stream.attach("/x")
        found = b""
        with pytest.raises(OSError, match="the connection to the daemon broke"):
            while data := await stream.read():
                found += data
        assert found == b"123"
        with pytest.raises(OSError):
            await stream.write(b"x")


async def test_closing_wakes_who_writes_and_is_fine_twice(tmp_path: Path) -> None:
    over = asyncio.Event()

    async def reads_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        await writer.drain()
        await over.wait()

    async with daemon(tmp_path, reads_nothing) as stream:
        await stream.attach("/x")
        writing = asyncio.create_task(stream.write(bytes(64 << 20)))
        await asyncio.sleep(0.05)
        await stream.aclose()
        await stream.aclose()
        with pytest.raises(OSError):
            await writing
        over.set()
    unconnected = AttachedStream()
    await unconnected.aclose()
