"""A daemon that does not do all that it is asked for: a proxy in front of a real one, which leaves options out."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def leaving_out(
    daemon: str, socket: str, names: Sequence[str], claimed: tuple[str, int] | None = None
) -> AsyncIterator[str]:
    """Yield the address, at *socket*, of a daemon that makes containers as the one at *daemon* does, but without the
    options *names* of their host configuration. It answers as if all was well, and where it has *claimed* the ID and
    the process of another container, says that each is that one."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        ours, theirs = await asyncio.open_unix_connection(daemon)
        back = asyncio.create_task(_copy(ours, writer, claimed))
        try:
            while head := await _head(reader):
                line, length = head.split(b"\r\n", 1)[0], _length(head)
                body = await reader.readexactly(length)
                if b"/containers/create" in line:
                    asked = json.loads(body)
                    for name in names:
                        asked["HostConfig"].pop(name)
                    body = json.dumps(asked).encode()
                    head = head.replace(f"Content-Length: {length}".encode(), f"Content-Length: {len(body)}".encode())
                theirs.write(head + body)
                if b"upgrade: tcp" in head.lower():
                    await _copy(reader, theirs)
                    break
            await back
        finally:
            back.cancel()
            writer.close()
            theirs.close()

    server = await asyncio.start_unix_server(serve, socket)
    try:
        yield f"unix://{socket}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _head(reader: asyncio.StreamReader) -> bytes:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        return await reader.readuntil(b"\r\n\r\n")
    return b""


def _length(head: bytes) -> int:
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    return int(fields.get(b"content-length", b"0"))


def _claim(data: bytes, id: str, pid: int) -> bytes:
    """Return an answer that is about another container, as long as it was."""
    data = re.sub(rb'"Id":"[0-9a-f]{64}"', f'"Id":"{id}"'.encode(), data)
    return re.sub(rb'"Pid":(\d+)', lambda found: f'"Pid":{pid:>{len(found[1])}}'.encode(), data)


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, claimed: tuple[str, int] | None = None
) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            data = data if claimed is None else _claim(data, *claimed)
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
