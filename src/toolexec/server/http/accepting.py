"""Taking connections: each has its seat before anything else, those that are still in their TLS handshake, too."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import ssl
from collections import deque
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
"""How many are taken, and served, in a turn of the loop, where it has not come round for as long. All would keep the
others waiting, and after one each, newcomers wait for a second where turns are long."""
_REFUSED: Final = 64
"""How many newcomers for whom there is no room are refused at a time. Each holds a file until then, so the connections
of more of them are closed without a word."""
_PAUSE: Final = 1.0
"""Seconds until the next attempt where the system has no room for a connection, such as no file descriptor."""


class Accepting:
    """Takes the connections of *sockets*, which are bound, a few in a turn of the loop, as soon as *seats* has room.

    Beside others, newcomers have a part of the loop. Clients that hang up and come again would have all of it, as it is
    not known whose a connection is before it was served; those that have hung up already are not served at all. Of
    those that have a seat and wait for their turn, the newest and the oldest are served in turn: who comes behind a
    caller that opened hundreds at once does not wait for all of these, and none of them waits for ever. Those that wait
    for room wait in the system's queue: a caller that opens many is not faster than the others. *make* makes the
    protocol of a connection; without a seat it is one that is refused. *tls* and *handshake_timeout*, in seconds,
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
        self.sockets: list[socket.socket] = [each.dup() for each in sockets]
        self._beginning: dict[asyncio.Task[None], _Arrival] = {}
        self._arrivals: deque[_Arrival] = deque()
        self._arrived = asyncio.Event()
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
        self._accepting.append(asyncio.create_task(self._serve(), name="toolexec-newcomers"))

    def close(self) -> None:
        """Take no more connections; those whose handshake is not over are dropped."""
        for task in (*self._accepting, *self._beginning):
            task.cancel()
        while self._arrivals:
            self._arrivals.pop().leave()

    async def wait_closed(self) -> None:
        """Wait until nothing listens any more."""
        await asyncio.wait([*self._accepting, *self._beginning])

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            await _something_waits(listening)
            await self._seats.room()
            # Nothing is awaited from here on: a connection that is taken would be lost with this task.
            try:
                for _ in range(_AT_ONCE):
                    if not self._seats.has_room or not self._take(*listening.accept()):
                        break
            except (BlockingIOError, InterruptedError, ConnectionError):  # there is none any more
                continue
            except OSError as error:
                logger.error("connections cannot be taken: %s", error)
                await asyncio.sleep(_PAUSE)

    def _take(self, taken: socket.socket, address: Any) -> bool:
        """Have a connection wait for its turn; return False where too many are to be refused before it."""
        taken.setblocking(False)
        arrival = _Arrival(taken)
        if arrival.has_left():
            arrival.leave()
            return True
        try:
            arrival.seat = self._seats.enter(arrival, str(address[0]))
        except NoShareError:
            if sum(each.seat is None for each in (*self._arrivals, *self._beginning.values())) >= _REFUSED:
                arrival.leave()
                return False
        self._arrivals.append(arrival)
        self._arrived.set()
        return True

    async def _serve(self) -> None:
        """Begin the connections of those that have arrived."""
        served, is_newest = 0.0, False
        while True:
            self._arrived.clear()
            if not self._arrivals:
                await self._arrived.wait()
            number = _AT_ONCE
            if len(self._seats) > _FEW:
                await asyncio.sleep(served + _EACH - monotonic())
                number = min(max(1, int((monotonic() - served) / _EACH)), _AT_ONCE)
            served = monotonic()
            while number > 0 and self._arrivals:
                is_newest = not is_newest
                arrival = self._arrivals.pop() if is_newest else self._arrivals.popleft()
                if arrival.has_left():
                    arrival.leave()
                    continue
                self._begin(arrival)
                number -= 1
            await asyncio.sleep(0)

    def _begin(self, arrival: _Arrival) -> None:
        task = arrival.task = asyncio.create_task(self._connect(arrival.taken, arrival.seat))
        self._beginning[task] = arrival
        task.add_done_callback(partial(self._begun, arrival))

    async def _connect(self, taken: socket.socket, seat: Seat | None) -> None:
        """Give the connection to its protocol, which has the seat from then on."""
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self._make(seat), taken, **self._tls)

    def _begun(self, arrival: _Arrival, task: asyncio.Task[None]) -> None:
        """Close what did not become a connection, also where its task was cancelled before it ran."""
        del self._beginning[task]
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        arrival.leave()
        if error is not None and not isinstance(error, OSError):  # TLS that fails is one, too
            logger.error("a connection cannot be begun", exc_info=error)


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
    """A connection that is not made yet: it waits for its turn, or its `task` makes it."""

    is_answering = False
    has_answered = False

    def __init__(self, taken: socket.socket) -> None:
        self.taken = taken
        self.seat: Seat | None = None
        self.task: asyncio.Task[None] | None = None

    def has_left(self) -> bool:
        """Return whether it has given way, or its client has hung up, where the system says so."""
        if self.taken.fileno() < 0:
            return True
        if not hasattr(select, "POLLRDHUP"):
            return False
        look = select.poll()
        look.register(self.taken, select.POLLRDHUP)
        return bool(look.poll(0))

    def leave(self) -> None:
        """Close it, and free its seat."""
        self.taken.close()
        if self.seat is not None:
            self.seat.leave()

    def give_way(self) -> None:
        """End the attempt; see `Occupant`."""
        self.taken.close()
        if self.task is not None:
            self.task.cancel()
