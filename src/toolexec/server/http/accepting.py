"""Taking connections: each has its seat before anything else, those that are still in their TLS handshake, too."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from toolexec.server.http.seats import Seat, Seats
from toolexec.server.http.shares import NoShareError

__all__ = ["Accepting"]

logger: logging.Logger = logging.getLogger(__name__)
_BACKLOG: Final = 512
_PAUSE: Final = 1.0
"""Seconds until the next attempt where the system has no room for a connection, such as no file descriptor."""


class Accepting:
    """Takes the connections of *sockets*, which are bound, one in a turn of the loop, as soon as *seats* has room.

    Those that wait for room wait in the system's queue: a caller that opens many is not faster than the others. *make*
    makes the protocol of a connection; without a seat it is one that is refused. *tls* and *handshake_timeout*, in
    seconds, are for HTTPS. Has what uvicorn wants of a server of asyncio. Raises OSError where
    they cannot listen.
    """

    def __init__(
        self,
        sockets: tuple[Any, ...],
        seats: Seats,
        make: Callable[[Seat | None], asyncio.Protocol],
        *,
        tls: ssl.SSLContext | None,
        handshake_timeout: float,
    ) -> None:
        self._seats = seats
        self._make = make
        self._tls: dict[str, Any] = {"ssl": tls, "ssl_handshake_timeout": handshake_timeout} if tls else {}
        self.sockets: list[socket.socket] = [socket.socket(fileno=os.dup(each.fileno())) for each in sockets]
        self._beginning: set[asyncio.Task[None]] = set()
        try:
            for each in self.sockets:
                each.setblocking(False)
                each.listen(_BACKLOG)
        except OSError:
            for each in self.sockets:
                each.close()
            raise
        self._accepting = [asyncio.create_task(self._accept(each), name="toolexec-accept") for each in self.sockets]

    def close(self) -> None:
        """Take no more connections; those whose handshake is not over are dropped."""
        for task in (*self._accepting, *self._beginning):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing listens any more."""
        await asyncio.wait([*self._accepting, *self._beginning])

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    taken, address = await loop.sock_accept(listening)
                except ConnectionError:  # it has gone again
                    continue
                except OSError as error:
                    logger.error("connections cannot be taken: %s", error)
                    await asyncio.sleep(_PAUSE)
                    continue
                try:
                    await self._seats.room()
                except BaseException:
                    taken.close()
                    raise
                self._begin(taken, str(address[0]))
                await asyncio.sleep(0)  # else those that wait would all be taken in one turn

    def _begin(self, taken: socket.socket, address: str) -> None:
        arrival = _Arrival(taken)
        try:
            seat = self._seats.enter(arrival, address)
        except NoShareError:
            seat = None
        task = arrival.task = asyncio.create_task(self._connect(taken, seat))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _connect(self, taken: socket.socket, seat: Seat | None) -> None:
        """Give the connection to its protocol, which has the seat from then on."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self._make(seat), taken, **self._tls)
        except BaseException as error:
            taken.close()
            if seat is not None:
                seat.leave()
            if not isinstance(error, OSError | ssl.SSLError | asyncio.CancelledError):
                logger.exception("a connection cannot be begun")


class _Arrival:
    """A connection that is not made yet. It is closed with its task, or before that has begun."""

    is_answering = False
    has_answered = False

    def __init__(self, taken: socket.socket) -> None:
        self._taken = taken
        self.task: asyncio.Task[None] | None = None

    def give_way(self) -> None:
        """End the attempt; see `Occupant`."""
        self._taken.close()
        if self.task is not None:
            self.task.cancel()
