"""Network connections out of a guest that has no network: each is carried over the guest protocol as a `Stream`.

A side sends at most `WINDOW` bytes that the other one has not consumed yet, so that neither a slow reader nor a hostile
guest can fill memory. Each side ends a connection with one `net_close`, and its ID is free again when both have.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from toolexec.errors import ProtocolError
from toolexec.process.stream import Stream
from toolexec.runtime.guest.python.protocol import MAX_CONNECTIONS, WINDOW
from toolexec.runtime.protocol.messages import Message, encode_data_frame
from toolexec.runtime.protocol.sender import Sender

logger: logging.Logger = logging.getLogger(__name__)

_ACK: Final = WINDOW // 4
_PIECE: Final = 1 << 16
_GRACE: Final = 2.0

Connect: TypeAlias = Callable[[Stream], Awaitable[None]]
"""Serves one connection that a guest has opened; the connection ends when it returns."""


class Tunnel:
    """One connection, as a `Stream`; made by `Tunnels`."""

    def __init__(self, connection_id: str, sender: Sender) -> None:
        self.closed = False
        """Whether this side has ended it, or the other one."""
        self.owed: int = 0
        """Bytes that came and were not acknowledged yet."""
        self._id = connection_id
        self._sender = sender
        self._incoming = bytearray()
        self._consumed = 0
        self._credit = WINDOW
        self._eof_in = self._eof_out = self._closed_here = False
        self._changed = asyncio.Event()

    async def read(self) -> bytes:
        """Implement `Stream.read`; b"" once the guest sends no more, even if it still reads."""
        while not self._incoming:
            if self._eof_in and not self._closed_here:
                return b""
            if self.closed:
                raise ConnectionResetError("the connection is closed")
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._incoming)
        self._incoming.clear()
        self._consume(len(data))
        return data

    async def write(self, data: bytes) -> None:
        """Implement `Stream.write`; waits while the guest does not read."""
        rest = memoryview(data)
        while rest:
            if self.closed or self._eof_out:
                raise BrokenPipeError("the connection is closed")
            if not self._credit:
                self._changed.clear()
                await self._changed.wait()
                continue
            piece = rest[: min(self._credit, _PIECE)]
            rest = rest[len(piece) :]
            self._credit -= len(piece)
            self._say("net_data", data=piece)

    async def write_eof(self) -> None:
        """Send no more; what the guest sends can still be read."""
        if not self.closed and not self._eof_out:
            self._eof_out = True
            self._say("net_eof")

    async def aclose(self) -> None:
        """Implement `Stream.aclose`. What was written before still gets to the guest."""
        self.close()

    # -- what the guest says -------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take data that came."""
        if not data or self._eof_in:
            raise ProtocolError("data came after the end of a connection, or none at all")
        if self.owed + len(data) > WINDOW:
            raise ProtocolError(f"more than {WINDOW} bytes of a connection came that were not consumed yet")
        self.owed += len(data)
        if not self.closed:
            self._incoming += data
            self._changed.set()

    def end(self) -> None:
        """Note that no more data will come."""
        if self._eof_in:
            raise ProtocolError("the end of a connection came twice")
        self._eof_in = True
        self._changed.set()

    def acknowledge(self, size: object) -> None:
        """Note that the guest has consumed *size* bytes."""
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= WINDOW - self._credit:
            raise ProtocolError("a guest acknowledged what was not sent")
        self._credit += size
        self._changed.set()

    def drop(self) -> None:
        """Note that the guest is gone; what came before can still be read."""
        self.closed: bool = True
        self._changed.set()

    def leave(self) -> None:
        """Note that the guest has closed it; what came before can still be read."""
        if not self.closed:
            self._say("net_close")
            self.drop()

    def close(self) -> None:
        """End it from this side."""
        self._closed_here = True
        self._incoming.clear()
        self.leave()

    def _consume(self, size: int) -> None:
        self._consumed += size
        if self._consumed >= _ACK and not self.closed:
            self._say("net_ack", json.dumps({"bytes": self._consumed}))
            self.owed -= self._consumed
            self._consumed = 0

    def _say(self, kind: str, payload: str = "{}", data: bytes | memoryview = b"") -> None:
        self._sender.put(encode_data_frame(kind, self._id, payload, data))


class Tunnels:
    """All connections of one guest. They live no longer than the run that they were opened in."""

    def __init__(self, connect: Connect, sender: Sender) -> None:
        self._connect = connect
        self._sender = sender
        self._open: dict[str, Tunnel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = False

    def begin(self) -> None:
        """Begin a run, which may open connections."""
        self._accepting = True

    def stop(self) -> None:
        """Close what is open, and cancel the tasks that serve it: the run is over."""
        self._accepting = False
        for task in self._tasks:
            task.cancel()
        for tunnel in self._open.values():
            tunnel.close()

    async def wait(self) -> None:
        """Wait for those who serve connections that are over, though not for ever."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=_GRACE)
            if left:
                logger.warning("%d network connections go on though their run is over", len(left))

    def lose(self) -> None:
        """Note that the guest is gone."""
        for tunnel in self._open.values():
            tunnel.drop()
        self._open.clear()
        self.stop()

    def receive(self, message: Message, data: bytes) -> None:
        """Handle a `net_` message of the guest; raises ProtocolError for one that must not come."""
        if message.type == "net_open":
            self._begin(message.id)
            return
        tunnel = self._open.get(message.id)
        if tunnel is None:
            raise ProtocolError(f"there is no network connection {message.id!r}")
        match message.type:
            case "net_data":
                tunnel.receive(data)
            case "net_eof":
                tunnel.end()
            case "net_ack":
                tunnel.acknowledge(message.payload.get("bytes"))
            case _:
                del self._open[message.id]
                tunnel.leave()

    def _begin(self, connection_id: str) -> None:
        if not connection_id or connection_id in self._open:
            raise ProtocolError(f"the connection id {connection_id!r} is in use or empty")
        if len(self._open) >= MAX_CONNECTIONS:
            raise ProtocolError(f"the guest has {MAX_CONNECTIONS} network connections open; there can be no more")
        tunnel = self._open[connection_id] = Tunnel(connection_id, self._sender)
        if not self._accepting or len(self._tasks) >= 2 * MAX_CONNECTIONS:
            tunnel.close()  # connections that the guest has closed may be served for a while yet
            return
        task = asyncio.create_task(self._serve(self._connect, tunnel))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connect: Connect, tunnel: Tunnel) -> None:
        try:
            await connect(tunnel)
        except OSError:  # one of the two sides hung up
            pass
        except Exception:
            logger.exception("a network connection of a guest failed")
        finally:
            tunnel.close()
