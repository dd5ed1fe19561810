"""Turns at the event loop: a caller that sends very many requests waits for itself, and others come first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from time import monotonic
from typing import Any, Final, TypeAlias

Gone: TypeAlias = Callable[[], Coroutine[Any, Any, object]]
"""Waits until the client of a request has gone."""

_ALONE: Final = 4
"""How many turns a caller has where there is no other one."""
_SECONDS: Final = 0.005
"""How long a request keeps its turn: what takes longer waits for something, and costs the others nothing."""
_LATE: Final = 0.01
"""From how many seconds on a timer that is late shows that the loop was busy all the time."""
_MOST: Final = 1.0
"""How long a request keeps its turn in any case."""
_PATIENCE: Final = 0.02
"""How long a caller that has many requests waits for the others before it has its next turn all the same."""
_HERE: Final = 5.0
"""For how many seconds after its last request a caller is here."""
_MANY: Final = 1000


class Turns:
    """Has the requests of a caller begin one at a time, in their order, and in gaps that the others leave.

    One event loop serves all callers, and each request that has begun takes a part of it before it waits for something
    or is over. So a request has a turn for that time: until it is over, or has gone on for 5 ms in which the loop was
    free. The first request of a caller begins at once. Those behind it wait until it gives its turn back, and until no
    other caller has one, though no longer than 20 ms: so who calls now and then meets one request of each of those who
    call without end. A caller that is alone here has four turns. A large request takes all of them, for up to a second:
    much of its work is done in threads, which take the interpreter from the loop. Nothing is refused, and requests that
    wait for something do not keep others of their caller from beginning.
    """

    def __init__(self, alone: int = _ALONE, seconds: float = _SECONDS, patience: float = _PATIENCE) -> None:
        self._alone = alone
        self._seconds = seconds
        self._patience = patience
        self._shares: dict[str, _Share] = {}
        self._behind: dict[_Share, None] = {}  # those with requests that wait; whose turn comes next is first
        self._holding = 0  # how many callers have turns
        self._later: asyncio.TimerHandle | None = None
        self._seen: dict[str, float] = {}  # when each caller had its last request, the earliest first

    def __len__(self) -> int:
        """How many callers have a turn now, or wait for one."""
        return len(self._shares)

    def here(self) -> int:
        """Count the callers that had a request within the last seconds."""
        earliest = monotonic() - _HERE
        while self._seen and self._seen[first := next(iter(self._seen))] < earliest:
            del self._seen[first]
        return len(self._seen)

    @asynccontextmanager
    async def taken(self, owner: str, *, large: bool = False, gone: Gone | None = None) -> AsyncGenerator[bool, None]:
        """Wait for a turn of *owner*, and have it in the block, or for as long as a turn lasts. Gives False, and no
        turn, where *gone* comes to an end before: those who hang up and ask again would wait for themselves, and take
        memory with each request."""
        self._see(owner)
        share = self._shares.setdefault(owner, _Share())
        weight = self._alone if large else 1
        try:
            if not await self._take(share, weight, gone):
                yield False
                return
            turn = _Turn(self, owner, share, weight, _MOST if large else self._seconds)
            try:
                yield True
            finally:
                turn.end()
        finally:
            self.drop(owner, share)

    def _see(self, owner: str) -> None:
        self._seen.pop(owner, None)
        self._seen[owner] = monotonic()
        if not len(self._seen) % _MANY:
            self.here()

    async def _take(self, share: _Share, weight: int, gone: Gone | None) -> bool:
        if not share.waiting and self._may_begin(share, weight):
            self._begin(share, weight)
            return True
        came = asyncio.get_running_loop().create_future()
        waits: list[asyncio.Future[Any]] = [came] if gone is None else [came, asyncio.ensure_future(gone())]
        share.waiting.append((weight, came))
        self._behind.setdefault(share)
        self._go_on()
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if came.done():  # it got them in the same moment
                self.give(share, weight)
            raise
        finally:
            for each in waits[1:]:
                each.cancel()
            if not came.done():
                share.waiting.remove((weight, came))
                self._go_on()
        return came.done()

    def _may_begin(self, share: _Share, weight: int) -> bool:
        """Return whether the first of a caller's requests that wait may begin."""
        if not share.taken:
            return not self._holding or not share.waiting or monotonic() - share.began >= self._patience
        return share.taken + weight <= self._alone and self.here() < 2

    def _begin(self, share: _Share, weight: int) -> None:
        self._holding += not share.taken
        share.taken += weight
        share.began = monotonic()

    def give(self, share: _Share, weight: int) -> None:
        """Give turns back, and have those that wait for that begin."""
        share.taken -= weight
        self._holding -= not share.taken
        self._go_on()

    def _go_on(self) -> None:
        """Begin what may begin now, each caller in turn; what waits for others is looked at again a little later."""
        for share in [*self._behind]:
            while share.waiting and self._may_begin(share, share.waiting[0][0]):
                weight, came = share.waiting.popleft()
                self._begin(share, weight)
                came.set_result(None)
                self._behind[share] = self._behind.pop(share)
            if not share.waiting:
                self._behind.pop(share, None)
        if self._behind and self._later is None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(self._patience, self._look_again, context=Context())

    def _look_again(self) -> None:
        self._later = None
        self._go_on()

    def drop(self, owner: str, share: _Share) -> None:
        """Forget the share of a caller who has no request."""
        if not share.taken and not share.waiting and self._shares.get(owner) is share:
            del self._shares[owner]


class _Share:
    """The turns of one caller, and its requests that wait for one."""

    __slots__ = ("began", "taken", "waiting")

    def __init__(self) -> None:
        self.taken = 0
        self.began = 0.0
        """When its last request began."""
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()


class _Turn:
    """The turns of one request, which it gives back at its end, or before where it only waits."""

    def __init__(self, turns: Turns, owner: str, share: _Share, weight: int, seconds: float) -> None:
        self._turns = turns
        self._owner = owner
        self._share = share
        self._weight = weight
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._start()

    def _start(self) -> asyncio.TimerHandle:
        due = self._loop.time() + self._seconds
        return self._loop.call_at(due, self._look, due, context=Context())  # not that of the request, until then

    def _look(self, due: float) -> None:
        now = self._loop.time()
        if now - due > _LATE and now - self._began < _MOST:
            self._timer = self._start()
        else:
            self.end()
            self._turns.drop(self._owner, self._share)

    def end(self) -> None:
        """Give the turns back, if that was not done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._turns.give(self._share, self._weight)
