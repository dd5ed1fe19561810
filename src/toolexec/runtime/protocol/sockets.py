"""Connections over sockets: Unix domain sockets, and TCP on the loopback interface.

Anyone on the machine can connect to a port of the loopback interface, so a client has to show a secret token before
anything is read from it. A Unix socket is protected by its file: only its owner may connect.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from toolexec.errors import ConfigurationError, ConnectionClosedError
from toolexec.runtime.protocol.connections import Connection, StreamConnection
from toolexec.runtime.protocol.messages import MAX_FRAME_BYTES

__all__ = ["ConnectionHandler", "TCPAddress"]

logger: logging.Logger = logging.getLogger(__name__)
_HOST = "127.0.0.1"
_PATIENCE = 5.0
_MAX_CONNECTIONS = 64

ConnectionHandler: TypeAlias = Callable[[Connection], Awaitable[None]]
"""Talks with one client until it is done; the connection is closed after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TCPAddress:
    """Where a listener on the loopback interface can be reached, and the secret that it asks for."""

    port: int
    token: str = field(repr=False)


@asynccontextmanager
async def listen_unix(
    path: str | os.PathLike[str], handle: ConnectionHandler, *, max_frame_bytes: int = MAX_FRAME_BYTES
) -> AsyncGenerator[Path]:
    """Have *handle* talk with everyone who connects to the Unix socket *path*, at most 64 at once.

    Only the owner of the process may connect. At the end the handlers are cancelled and the file is removed. Raises
    ConfigurationError when there can be no socket at that path.
    """
    sock = _bind(Path(path))
    try:
        listener = _Listener(handle, b"", max_frame_bytes)
        async with listener.serving(await asyncio.start_unix_server(listener.accept, sock=sock)):
            yield Path(path)
    finally:
        sock.close()
        _remove(Path(path))


@asynccontextmanager
async def listen_tcp(
    handle: ConnectionHandler, *, port: int = 0, max_frame_bytes: int = MAX_FRAME_BYTES
) -> AsyncGenerator[TCPAddress]:
    """Have *handle* talk with everyone who connects to *port* (0: any free one) of the loopback interface and shows
    the token, at most 64 at once. Give the address to `connect_tcp`.

    At the end the handlers are cancelled. Raises ConfigurationError when the port is taken.
    """
    token = secrets.token_urlsafe(32)
    listener = _Listener(handle, token.encode(), max_frame_bytes)
    try:
        server = await asyncio.start_server(listener.accept, _HOST, port)
    except OSError as error:
        raise ConfigurationError(f"cannot listen at port {port}: {error}; use 0 for a free one") from error
    async with listener.serving(server):
        yield TCPAddress(port=server.sockets[0].getsockname()[1], token=token)


async def connect_unix(path: str | os.PathLike[str], *, max_frame_bytes: int = MAX_FRAME_BYTES) -> StreamConnection:
    """Return a connection to the Unix socket *path*; raises ConnectionClosedError when nothing listens there."""
    try:
        reader, writer = await asyncio.open_unix_connection(os.fspath(path))
    except OSError as error:
        raise ConnectionClosedError(f"cannot connect to {os.fspath(path)}: {error}") from error
    return StreamConnection(reader, writer, max_frame_bytes=max_frame_bytes)


async def connect_tcp(address: TCPAddress, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> StreamConnection:
    """Return a connection to a listener on the loopback interface; raises ConnectionClosedError when nothing listens
    there.

    A token that is not the listener's shows in that it closes the connection.
    """
    try:
        reader, writer = await asyncio.open_connection(_HOST, address.port)
    except OSError as error:
        raise ConnectionClosedError(f"cannot connect to port {address.port}: {error}") from error
    writer.write(address.token.encode())
    return StreamConnection(reader, writer, max_frame_bytes=max_frame_bytes)


def _bind(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(os.fspath(path))
        path.chmod(0o600)  # no client can connect before it listens
    except (OSError, ValueError) as error:
        sock.close()
        raise ConfigurationError(f"cannot listen at {path}: {error}; use a path of its own that is short") from error
    return sock


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


class _Listener:
    """Takes clients, and ends what they do at the end."""

    def __init__(self, handle: ConnectionHandler, token: bytes, max_frame_bytes: int) -> None:
        self._handle = handle
        self._token = token
        self._max = max_frame_bytes
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk with a client in a task of its own."""
        task = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @asynccontextmanager
    async def serving(self, server: asyncio.Server) -> AsyncGenerator[None]:
        """Close *server* at the end, and end its clients."""
        try:
            yield
        finally:
            server.close()
            tasks = [*self._tasks]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            await server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = StreamConnection(reader, writer, max_frame_bytes=self._max)
        try:
            if len(self._tasks) > _MAX_CONNECTIONS:
                logger.warning("a gateway has %d connections; another one is refused", _MAX_CONNECTIONS)
            elif await self._is_welcome(reader):
                await self._handle(connection)
        except Exception:
            logger.exception("a gateway failed on a connection")
        finally:
            await connection.aclose()

    async def _is_welcome(self, reader: asyncio.StreamReader) -> bool:
        """Return whether the client has the token; what it says is not read further before."""
        if not self._token:
            return True
        shown = b""
        with suppress(asyncio.IncompleteReadError, TimeoutError, OSError):
            async with asyncio.timeout(_PATIENCE):
                shown = await reader.readexactly(len(self._token))
        if hmac.compare_digest(shown, self._token):
            return True
        logger.warning("a client without the token was refused")
        return False
