"""A proxy of HTTP on loopback: it forwards requests, opens tunnels, and counts what it is asked for."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class ProxyServer:
    """`asked` are the request lines, `authorizations` what came with them. With `expects`, others are refused.

    It connects to loopback, whatever the name.
    """

    url: str = ""
    expects: str = ""
    asked: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)


@asynccontextmanager
async def proxy_server(context: ssl.SSLContext | None = None) -> AsyncGenerator[ProxyServer]:
    """Run the proxy on this event loop, over TLS with a *context*."""
    found = ProxyServer()
    tasks: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, OSError):
                while data := await reader.read(65536):
                    writer.write(data)
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await talk(reader, writer)
        finally:
            tasks.discard(task)
            writer.close()
            with suppress(ConnectionError, OSError):
                await writer.wait_closed()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        found.asked.append(line)
        found.authorizations.append(headers.get("proxy-authorization", ""))
        if found.authorizations[-1] != found.expects:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        method, target, _ = line.split()
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        there, back = await asyncio.open_connection("127.0.0.1", parts.port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            kept = [each for each in lines if not each.lower().startswith("proxy-")]
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            back.write("\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "\r\n"]).encode())
        try:
            await asyncio.gather(copy(reader, back), copy(there, writer))
        finally:
            back.close()
            with suppress(ConnectionError, OSError):
                await back.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    scheme = "https" if context is not None else "http"
    found.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
        open_ones = [*tasks]
        for task in open_ones:
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)
