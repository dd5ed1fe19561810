"""Turns at the event loop, of which each caller has a few: one that sends very many requests waits for itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any, Final, TypeAlias

Gone: TypeAlias = Callable[[], Coroutine[Any, Any, object]]
"""Waits until the client of a request has gone."""

_EACH: Final = 4
"""How many turns a caller has."""
_SECONDS: Final = 0.025
"""How long a request keeps its turn: what takes longer waits for something, and costs the others nothing."""
_LATE: Final = 0.01
"""From how many seconds on a timer that is late shows that the loop was busy all the time."""
_MOST: Final = 1.0
"""How long a request keeps its turn in any case."""


class Turns:
    """Has the requests of a caller begin a few at a time, in their order, whatever number of them there is.

    One event loop serves all callers, and each request that has begun takes a part of it before it waits for something
    or is over. So a request has one of its caller's four turns for that time: until it is over, or has gone on for
    25 ms in which the loop was free. A large one takes all four, for up to a second: much of its work is done in
    threads, which take the interpreter from the loop. Nothing is refused, and requests that wait for something do not
    keep others of their caller from beginning.
    """

    def __init__(self, each: int = _EACH, seconds: float = _SECONDS) -> None:
        self._each = each
        self._seconds = seconds
        self._shares: dict[str, _Share] = {}

    def __len__(self) -> int:
        """How many callers have a turn now, or wait for one."""
        return len(self._shares)

    @asynccontextmanager
    async def taken(self, owner: str, *, large: bool = False, gone: Gone | None = None) -> AsyncGenerator[bool, None]:
        """Wait for a turn of *owner*, and have it in the block, or for as long as a turn lasts. Gives False, and no
        turn, where *gone* comes to an end before: those who hang up and ask again would wait for themselves, and take
        memory with each request."""
        share = self._shares.setdefault(owner, _Share(self._each))
        weight = self._each if large else 1
        try:
            if not await share.take(weight, gone):
                yield False
                return
            turn = _Turn(self, owner, share, weight, _MOST if large else self._seconds)
            try:
                yield True
            finally:
                turn.end()
        finally:
            self.drop(owner, share)

    def drop(self, owner: str, share: _Share) -> None:
        """Forget the share of a caller who has no request."""
        if share.is_unused and self._shares.get(owner) is share:
            del self._shares[owner]


class _Share:
    """The turns of one caller, and its requests that wait for one."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._free = turns
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_unused(self) -> bool:
        return self._free == self._turns and not self._waiting

    async def take(self, weight: int, gone: Gone | None) -> bool:
        """Wait until so many turns are free, and no earlier request waits; False where *gone* ends before that."""
        if not self._waiting and self._free >= weight:
            self._free -= weight
            return True
        came = asyncio.get_running_loop().create_future()
        waits: list[asyncio.Future[Any]] = [came] if gone is None else [came, asyncio.ensure_future(gone())]
        self._waiting.append((weight, came))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if came.done():  # it got them in the same moment
                self.give(weight)
            raise
        finally:
            for each in waits[1:]:
                each.cancel()
            if not came.done():
                self._waiting.remove((weight, came))
                self._next()
        return came.done()

    def give(self, weight: int) -> None:
        """Give turns back, to those that wait first."""
        self._free += weight
        self._next()

    def _next(self) -> None:
        while self._waiting and self._free >= self._waiting[0][0]:
            weight, came = self._waiting.popleft()
            self._free -= weight
            came.set_result(None)


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
            self._share.give(self._weight)
