"""A connection that is for another process behind the same port: what arrives is passed on, both ways."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from toolexec.errors import SandboxUnavailableError
from toolexec_remote.wire import encode_error

_PATIENCE: Final = 5.0
_AWAY: Final = SandboxUnavailableError(
    "the server process that this is for is not there; it is being started again", retryable=True
)


class HandedOver(asyncio.Protocol):
    """The way from a connection of this process to the Unix socket of another one, at *path*.

    What one side does not take in time, the other one does not send: each way has a buffer of some 64 KB.
    """

    def __init__(self, near: asyncio.Transport, path: Path, early: bytes) -> None:
        self._near = near
        self._early = early
        self._far: asyncio.Transport | None = None
        near.pause_reading()
        self._opening = asyncio.get_running_loop().create_task(self._open(path))

    async def _open(self, path: Path) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await asyncio.get_running_loop().create_unix_connection(lambda: self, str(path))
        except (OSError, TimeoutError):
            if not self._near.is_closing():
                self._near.write(_unavailable())
                self._near.close()

    # -- what comes from the client -----------------------------------------------------------------------------------

    def pass_on(self, data: bytes) -> None:
        """Send what the client has sent."""
        if self._far is not None:
            self._far.write(data)
        else:
            self._early += data  # it came before reading was paused

    def pause_far(self) -> None:
        """Have the other process send nothing for now, as the client does not read."""
        if self._far is not None and not self._far.is_closing():
            self._far.pause_reading()

    def resume_far(self) -> None:
        """Undo `pause_far`."""
        if self._far is not None and not self._far.is_closing():
            self._far.resume_reading()

    def close(self) -> None:
        """Note that the client is gone."""
        self._opening.cancel()
        if self._far is not None:
            self._far.close()

    # -- what comes from the other process ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Do as `asyncio.Protocol` says."""
        assert isinstance(transport, asyncio.Transport)
        if self._near.is_closing():
            transport.abort()
            return
        self._far = transport
        transport.write(self._early)
        self._early = b""
        self._near.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Do as `asyncio.Protocol` says."""
        self._near.write(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Do as `asyncio.Protocol` says."""
        self._near.close()

    def pause_writing(self) -> None:
        """Have the client send nothing for now, as the other process does not read."""
        if not self._near.is_closing():
            self._near.pause_reading()

    def resume_writing(self) -> None:
        """Undo `pause_writing`."""
        if not self._near.is_closing():
            self._near.resume_reading()


def _unavailable() -> bytes:
    body = encode_error(_AWAY)
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
