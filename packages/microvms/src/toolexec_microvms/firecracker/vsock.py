"""Vsock as Firecracker offers it: a Unix socket on the host, and a line that names the port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolexec.machines import SocketStream, Stream, pauses
from toolexec_microvms.firecracker.api import connect_inside

_LONGEST: Final = 32
_ATTEMPT: Final = 5.0
_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.1


async def dial_vsock(directory: Path, name: str, port: int) -> Stream:
    """Return a connection to a *port* of the guest, through the socket *name* in the *directory* of a jail.

    Raises OSError where nothing listens there (yet).
    """
    connection = await connect_inside(directory, name)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_ATTEMPT):
            await loop.sock_sendall(connection, f"CONNECT {port}\n".encode("ascii"))
            answer = b""
            while not answer.endswith(b"\n"):  # one by one: what follows the line is the guest's
                byte = await loop.sock_recv(connection, 1)
                answer += byte
                if not byte or len(answer) > _LONGEST:
                    raise ConnectionRefusedError(f"no connection to port {port} of the guest")
            if not answer.startswith(b"OK "):
                raise ConnectionRefusedError(f"no connection to port {port} of the guest: {answer!r}")
    except BaseException:
        connection.close()
        raise
    return SocketStream(connection)


class DialedStream:
    """A `Stream` over a connection that *dial* makes, which is tried again and again until it works.

    With *after* it first waits for that one to be connected. It is tried at once, or if *lazy* when it is used first.
    Once it is closed or the machine has ended, which `fail` reports, the attempts end. Belongs to the event loop.
    """

    def __init__(
        self, dial: Callable[[], Awaitable[Stream]], *, after: DialedStream | None = None, lazy: bool = False
    ) -> None:
        self._dial = dial
        self._after = after
        self._stream: Stream | None = None
        self._task: asyncio.Task[Stream] | None = None
        self._why = ""
        if not lazy:
            self._start()

    async def read(self) -> bytes:
        """Read as `Stream.read` does."""
        return await (self._stream or await self.connected()).read()

    async def write(self, data: bytes) -> None:
        """Write as `Stream.write` does."""
        await (self._stream or await self.connected()).write(data)

    async def connected(self) -> Stream:
        """Return the connection, once it is there. Raises ConnectionError when there will be none."""
        task = self._start()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ConnectionResetError(self._why or "the channel is closed") from None
            raise

    def fail(self, why: str) -> None:
        """End the attempts for this reason; a connection that is there ends by itself."""
        self._why = self._why or why
        if self._stream is None and self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """Close as `Stream.aclose` does."""
        self.fail("the channel is closed")
        if self._task is not None:
            with suppress(asyncio.CancelledError, OSError):
                await asyncio.wait({self._task})
        if self._stream is not None:
            await self._stream.aclose()

    def _start(self) -> asyncio.Task[Stream]:
        if self._task is None:
            self._task = asyncio.create_task(self._connect())
            if self._why:
                self._task.cancel()
        return self._task

    async def _connect(self) -> Stream:
        if self._after is not None:
            await self._after.connected()
        waits = pauses(_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                self._stream = await self._dial()
                return self._stream
            except (OSError, TimeoutError):
                await asyncio.sleep(next(waits))
