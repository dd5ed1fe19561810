"""How many connections there may be, and whose: the one place that admits a connection or refuses it."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import suppress
from time import monotonic
from typing import Final, Protocol

from toolexec.model.shares import NoShareError, giving_way

logger: logging.Logger = logging.getLogger(__name__)
STATE: Final = "toolexec.seat"
"""Where the state of a request has the seat of its connection."""


class Occupant(Protocol):
    """The connection that has a seat."""

    @property
    def is_answering(self) -> bool:
        """Whether a request is under way."""
        ...

    @property
    def has_answered(self) -> bool:
        """Whether there was a request, and none is under way."""
        ...

    def give_way(self) -> None:
        """End the connection; what is under way is broken off."""
        ...


class Seat:
    """The place of one connection.

    `owner` is whose it is: empty until a request has proven that. `since` is when it came, and `used` when its last
    request did.
    """

    def __init__(self, seats: Seats, occupant: Occupant, owner: str) -> None:
        self.owner = owner
        self.occupant = occupant
        self.since: float = monotonic()
        self.used: float = self.since
        self._seats = seats

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be broken off if it ended now; see `Held`."""
        return self.occupant.has_answered

    def claim(self, owner: str) -> None:
        """Take the seat for *owner*. Raises NoShareError."""
        self._seats.claim(self, owner)

    def leave(self) -> None:
        """Give the seat back."""
        self._seats.leave(self)


class Seats:
    """At most *most* connections, of which no caller can take all.

    Whose a connection is turns out with its first request. Until then it stands at the door. A quarter of the room is
    kept for those at the door; once all is taken, newcomers wait, and those that have stood there for *patience*
    seconds without a request under way go for them. The callers share the rest as they share sessions; see
    `giving_way`.

    With *proven* false callers prove nothing: a connection belongs to its address from the start, and all seats
    are for owners.
    """

    def __init__(self, most: int, *, proven: bool, patience: float = 1.0) -> None:
        self.most = most
        self._proven = proven
        self._patience = patience
        self._for_owners = max(most - most // 4, 1) if proven else most
        self._at_door: OrderedDict[int, Seat] = OrderedDict()  # the one that came first is first
        self._taken: dict[int, Seat] = {}
        self._freed = asyncio.Event()

    def __len__(self) -> int:
        """How many connections there are."""
        return len(self._at_door) + len(self._taken)

    @property
    def has_room(self) -> bool:
        """Whether there is room for one more at the door; without a door there always is."""
        return not self._proven or len(self) < self.most

    async def room(self) -> None:
        """Wait until there is room for one more, who waits."""
        while not self.has_room:
            waiting = next((seat for seat in self._at_door.values() if not seat.occupant.is_answering), None)
            left = self._patience if waiting is None else waiting.since + self._patience - monotonic()
            if waiting is not None and left <= 0:
                self._end(waiting)
                return
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._freed.wait()

    def enter(self, occupant: Occupant, address: str) -> Seat:
        """Return the seat of a new connection from *address*, where there is `room`. Raises NoShareError."""
        seat = Seat(self, occupant, "" if self._proven else address)
        if not self._proven:
            self._take(seat)
        elif len(self) >= self.most:
            raise NoShareError
        else:
            self._at_door[id(seat)] = seat
        return seat

    def claim(self, seat: Seat, owner: str) -> None:
        """Have *seat* be of *owner*. Raises NoShareError where the owner has its share of connections, all in use.

        The connection of a proxy carries the requests of many callers: it is of the one that it served last.
        """
        if id(seat) in self._taken:
            seat.owner = owner
        elif id(seat) in self._at_door:  # else it has given way, and its client is gone
            seat.owner = owner
            try:
                self._take(seat)
            except NoShareError:
                seat.owner = ""
                raise
            del self._at_door[id(seat)]

    def leave(self, seat: Seat) -> None:
        """Free the seat, if it is not free already."""
        self._at_door.pop(id(seat), None)
        self._taken.pop(id(seat), None)
        self._freed.set()

    def _take(self, seat: Seat) -> None:
        if len(self._taken) >= self._for_owners:
            oldest_first = sorted(self._taken.items(), key=lambda each: each[1].used)
            key = giving_way(dict(oldest_first), seat.owner)
            if key is not None:
                self._end(self._taken[key])
        self._taken[id(seat)] = seat

    def _end(self, seat: Seat) -> None:
        logger.info(
            "there are %d connections; the oldest of %s gives way", len(self), seat.owner or "those at the door"
        )
        self.leave(seat)
        seat.occupant.give_way()
