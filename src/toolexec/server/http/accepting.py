"""Taking connections: each has its seat before anything else, those that are still in their TLS handshake, too."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import ssl
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Final

from toolexec.model.shares import NoShareError
from toolexec.server.http.seats import Seat, Seats

logger: logging.Logger = logging.getLogger(__name__)
_BACKLOG: Final = 512
_LOOK: Final = 0.02
"""Seconds between two looks where the loop cannot wait for a socket."""
_FEW: Final = 8
"""How many connections take no notice of newcomers: with that many the loop is free most of the time."""
_EACH: Final = 0.0015
"""How many seconds there are for each newcomer beside more of them; to serve one takes about a millisecond."""
_AT_ONCE: Final = 8
"""How many are taken in a turn of the loop, where it has not come round for as long. All would keep the others waiting,
and after one each, newcomers wait for a second where turns are long."""
_PAUSE: Final = 1.0
"""Seconds until the next attempt where the system has no room for a connection, such as no file descriptor."""


class Accepting:
    """Takes the connections of *sockets*, which are bound, a few in a turn of the loop, as soon as *seats* has room.

    Beside others, newcomers have a part of the loop. Clients that hang up and come again would have all of it, as it is
    not known whose a connection is before it was served; those that have hung up already are not served at all. Those
    that wait for room wait in the system's queue: a caller that opens many is not faster than the others. *make* makes
    the protocol of a connection; without a seat it is one that is refused. *tls* and *handshake_timeout*, in seconds,
    are for HTTPS. Has what uvicorn wants of a server of asyncio. Raises OSError where they cannot listen.
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
        for task, each in zip(self._accepting, self.sockets, strict=True):
            task.add_done_callback(lambda _, each=each: each.close())  # also where it was cancelled before it ran

    def close(self) -> None:
        """Take no more connections; those whose handshake is not over are dropped."""
        for task in (*self._accepting, *self._beginning):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing listens any more."""
        await asyncio.wait([*self._accepting, *self._beginning])

    async def _accept(self, listening: socket.socket) -> None:
        looked = 0.0
        while True:
            await _something_waits(listening)
            number = _AT_ONCE
            if len(self._seats) > _FEW:
                await asyncio.sleep(looked + _EACH - monotonic())
                number = min(max(1, int((monotonic() - looked) / _EACH)), _AT_ONCE)
            looked = monotonic()
            await self._seats.room()
            # Nothing is awaited from here on: a connection that is taken would be lost with this task.
            try:
                while number > 0 and self._seats.has_room:
                    taken, address = listening.accept()
                    if _has_left(taken):
                        taken.close()
                        continue
                    taken.setblocking(False)
                    self._begin(taken, str(address[0]))
                    number -= 1
            except (BlockingIOError, InterruptedError, ConnectionError):  # there is none any more
                continue
            except OSError as error:
                logger.error("connections cannot be taken: %s", error)
                await asyncio.sleep(_PAUSE)

    def _begin(self, taken: socket.socket, address: str) -> None:
        arrival = _Arrival(taken)
        try:
            seat = self._seats.enter(arrival, address)
        except NoShareError:
            seat = None
        task = arrival.task = asyncio.create_task(self._connect(taken, seat))
        self._beginning.add(task)
        task.add_done_callback(partial(self._begun, taken, seat))

    async def _connect(self, taken: socket.socket, seat: Seat | None) -> None:
        """Give the connection to its protocol, which has the seat from then on."""
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self._make(seat), taken, **self._tls)

    def _begun(self, taken: socket.socket, seat: Seat | None, task: asyncio.Task[None]) -> None:
        """Close what did not become a connection, also where its task was cancelled before it ran."""
        self._beginning.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        taken.close()
        if seat is not None:
            seat.leave()
        if error is not None and not isinstance(error, OSError):  # TLS that fails is one, too
            logger.error("a connection cannot be begun", exc_info=error)


def _has_left(taken: socket.socket) -> bool:
    """Return whether the client of a connection has hung up, where the system says so."""
    if not hasattr(select, "POLLRDHUP"):
        return False
    look = select.poll()
    look.register(taken, select.POLLRDHUP)
    return bool(look.poll(0))


async def _something_waits(listening: socket.socket) -> None:
    """Wait until a connection is there to be taken, which `sock_accept` would lose when it is cancelled."""
    loop = asyncio.get_running_loop()
    there = loop.create_future()
    try:
        loop.add_reader(listening, lambda: there.done() or there.set_result(None))
    except NotImplementedError:  # Windows
        await asyncio.sleep(_LOOK)
        return
    try:
        await there
    finally:
        loop.remove_reader(listening)


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
