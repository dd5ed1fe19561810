"""Writing the head of an answer and its body at once, as one packet where they are short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Together:
    """A transport that keeps the first write of a turn of the event loop until the next one, at most until the turn is
    over. Everything else is that of *transport*, after what was kept; *close* closes it, where that
    is not simply done."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        close: Callable[[], None] | None = None,
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._close = close if close is not None else transport.close
        self._is_closing = False
        self._kept = b""
        self._timer: asyncio.Handle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write *data*, or keep it for now."""
        if not data:  # how uvicorn ends a body that said its length
            return
        if self._timer is None:
            self._kept = data
            self._timer = self._loop.call_soon(self._flush)
        else:
            kept = self._take()
            if not self._transport.is_closing():  # Python 3.12 would have the loop wait for a file that is closed
                self._transport.writelines((kept, data))

    def get_write_buffer_size(self) -> int:
        """Return how many bytes were not sent yet."""
        return len(self._kept) + self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close the connection once everything is sent; at once where that has begun."""
        self._flush()
        if self._is_closing:
            self._transport.close()
        else:
            self._is_closing = True
            self._close()

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or about to be."""
        return self._is_closing or self._transport.is_closing()

    def abort(self) -> None:
        """Close the connection at once."""
        self._take()
        self._transport.abort()

    def _take(self) -> bytes:
        kept, self._kept = self._kept, b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return kept

    def _flush(self) -> None:
        if kept := self._take():
            self._transport.write(kept)
