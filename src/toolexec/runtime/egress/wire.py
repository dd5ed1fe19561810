"""One side of an HTTP/1.1 connection: messages over a stream, read by h11."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import MissingExtraError
from toolexec.process.stream import Stream

if TYPE_CHECKING:
    import h11

_MAX_HEAD: Final = 64 << 10


class Wire:
    """Either end of a connection. What breaks the protocol raises `h11.ProtocolError`, what breaks the line OSError.

    *patience* is how many seconds the other side has to take what is sent.
    """

    def __init__(self, stream: Stream, *, server_side: bool, patience: float) -> None:
        h11 = require_h11()
        self.stream = stream
        self._patience = patience
        self.state: h11.Connection = h11.Connection(
            h11.SERVER if server_side else h11.CLIENT, max_incomplete_event_size=_MAX_HEAD
        )

    async def next(self, seconds: float) -> Any:
        """Return the next event. Raises TimeoutError when not a byte comes for so long."""
        h11 = require_h11()
        while (event := self.state.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(seconds):
                data = await self.stream.read()
            self.state.receive_data(data)
        return event

    async def head(self, idle: float, seconds: float) -> h11.Request | None:
        """Return the head of the next request, once it has begun at most *seconds* later; None when there is no other
        one.
        """
        h11 = require_h11()
        event: Any = self.state.next_event()
        if event is h11.NEED_DATA and not self.state.trailing_data[0]:
            async with asyncio.timeout(idle):
                self.state.receive_data(await self.stream.read())
            event = self.state.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(seconds):
                event = await self.next(seconds)
        return event if isinstance(event, h11.Request) else None

    async def send(self, *events: Any) -> None:
        """Send messages, or parts of one; raises TimeoutError when the other side does not take them."""
        data = b"".join(self.state.send(event) or b"" for event in events)
        if data:
            async with asyncio.timeout(self._patience):
                await self.stream.write(data)


class Ahead:
    """A stream of which *data* has been read already."""

    def __init__(self, stream: Stream, data: bytes) -> None:
        self._stream = stream
        self._data = data

    async def read(self) -> bytes:
        """Implement `Stream.read`."""
        if self._data:
            data, self._data = self._data, b""
            return data
        return await self._stream.read()

    async def write(self, data: bytes) -> None:
        """Implement `Stream.write`."""
        await self._stream.write(data)

    async def aclose(self) -> None:
        """Implement `Stream.aclose`."""
        await self._stream.aclose()


def require_h11() -> Any:
    """Return the module h11; raises MissingExtraError without it."""
    try:
        import h11
    except ModuleNotFoundError as error:
        raise MissingExtraError("egress", needed_for="an egress policy with hosts") from error
    return h11
