"""A proxy of SOCKS 5 on loopback: it opens connections, and counts what it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class SocksServer:
    """`asked` are the hosts and ports. With `expects`, a user and a password, others are refused; with `refuses` all
    connections are. It connects to loopback, whatever the name."""

    url: str = ""
    expects: tuple[str, str] | None = None
    refuses: bool = False
    asked: list[tuple[str, int]] = field(default_factory=list)


@asynccontextmanager
async def socks_server() -> AsyncGenerator[SocksServer]:
    """Run the proxy on this event loop."""
    found = SocksServer()
    tasks: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readexactly((await reader.readexactly(2))[1])
            writer.write(b"\x05\x02" if found.expects else b"\x05\x00")
            if found.expects:
                user = await reader.readexactly((await reader.readexactly(2))[1])
                password = await reader.readexactly((await reader.readexactly(1))[0])
                is_known = (user.decode(), password.decode()) == found.expects
                writer.write(b"\x01\x00" if is_known else b"\x01\x01")
            kind = (await reader.readexactly(4))[3]
            size = 4 if kind == 1 else (await reader.readexactly(1))[0]
            host = await reader.readexactly(size)
            port = int.from_bytes(await reader.readexactly(2), "big")
            found.asked.append((host.decode() if kind == 3 else ".".join(map(str, host)), port))
            writer.write((b"\x05\x02" if found.refuses else b"\x05\x00") + b"\x00\x01\x00\x00\x00\x00\x00\x00")
            if not found.refuses:
                other = await asyncio.open_connection("127.0.0.1", port)
                for pair in ((reader, other[1]), (other[0], writer)):
                    task = asyncio.create_task(copy(*pair))
                    tasks.add(task)
                return
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.url = f"socks5://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
