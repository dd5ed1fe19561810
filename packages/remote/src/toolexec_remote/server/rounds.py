"""Rounds of the event loop, in each of which a tenant has little done: however much it sends, and over how many
connections, what the others have to do comes next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Final

_ALONE: Final = 4
"""How many messages a tenant has done in a round where there is no other tenant."""
_SECONDS: Final = 0.001
"""After how long a tenant has a turn in any case: a round that no one waits for is not counted, which would cost a pass
of the event loop for each message."""
_TURNS: Final = 16
"""Over how many of its last turns, about, it is counted how many of them a tenant has wasted."""
_FADES: Final = 1 - 1 / _TURNS
_WASTEFUL: Final = 0.25
"""From what part of them on a tenant is wasteful."""
_FORGIVEN: Final = 5.0
"""After how many seconds without a turn it does not count any more what a tenant has wasted."""
_LATELY: Final = 0.1
"""For how many seconds a tenant that had a turn is not to be disturbed by these."""
_REST: Final = 4.0
"""For how long wasteful tenants rest beside others, as a multiple of the time that the rounds with them took."""
_LEAST_REST: Final = 0.002
"""What they rest for at once, as a timer is no more exact than a millisecond."""
_MOST_REST: Final = 0.02


class _Tenant:
    """The turns of a tenant."""

    __slots__ = ("number", "round", "seen", "since", "waiting", "wasted")

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.wasted = 0.0
        """What part of its last turns was wasted."""
        self.seen = 0.0
        """When it asked for a turn."""
        self.round = -1
        """In which round it had some, since when, and how many."""
        self.since = 0.0
        self.number = 0


class Rounds:
    """Has one message of each tenant done in a round, and some where *is_shared* says that there is one tenant only.

    A round is a pass of the event loop: all else that is ready is done once in it, too. Connections of a tenant take
    turns. Nothing waits where a tenant has sent no more than that.

    A tenant is wasteful whose turns lead to nothing: what it asks for is refused, or not there, or it hangs up. Beside
    another one that is not, it has a small part of the loop, with rests between: else each step of the others would
    wait for one of its messages. A turn that begins a run leads to what becomes of that, and counts when that is over:
    else many that are begun at once would make up for those that were stopped before.

    *clock* is that of `time.monotonic`, *used* that of the processor time of this thread.
    """

    def __init__(
        self,
        is_shared: Callable[[], bool],
        clock: Callable[[], float] = monotonic,
        used: Callable[[], float] = thread_time,
    ) -> None:
        self._is_shared = is_shared
        self._clock = clock
        self._used = used
        self._tenants: dict[str, _Tenant] = {}
        self._round = 0
        self._is_due = False  # whether the next round is on its way
        self._looked = (0.0, 0.0)  # both clocks at the last one
        self._rest = 0.0  # seconds for which wasteful tenants should have rested

    async def turn(self, account: str) -> None:
        """Wait until the next message of a tenant may be done."""
        now, tenant = self._clock(), self._tenants.get(account)
        if tenant is None or self._has_left(tenant, now):
            tenant = self._tenants[account] = _Tenant()
        tenant.seen = now
        tenant.wasted *= _FADES
        if not tenant.waiting and self._takes(tenant, now):
            return
        turn = asyncio.get_running_loop().create_future()
        tenant.waiting.append(turn)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)
        await turn

    def waste(self, account: str) -> None:
        """Note that the last turn of a tenant has led to nothing."""
        tenant = self._tenants.get(account)
        if tenant is not None:
            tenant.wasted += 1 / _TURNS

    def put_off(self, account: str) -> None:
        """Count the last turn of a tenant later, by `settle`: it is not known yet whether it leads to anything."""
        tenant = self._tenants.get(account)
        if tenant is not None:
            tenant.wasted /= _FADES

    def settle(self, account: str, *, is_wasted: bool) -> None:
        """Count a turn that was put off."""
        tenant = self._tenants.get(account)
        if tenant is not None:
            tenant.wasted = tenant.wasted * _FADES + is_wasted / _TURNS

    def is_wasteful(self, account: str) -> bool:
        """Return whether the last turns of a tenant have led to little."""
        tenant = self._tenants.get(account)
        return tenant is not None and tenant.wasted >= _WASTEFUL and not self._has_left(tenant, self._clock())

    def _has_left(self, tenant: _Tenant, now: float) -> bool:
        return not tenant.waiting and now - tenant.seen > _FORGIVEN

    def _takes(self, tenant: _Tenant, now: float) -> bool:
        """Take a turn of this round, if there is one; return whether there was."""
        if tenant.round != self._round or (now - tenant.since > _SECONDS and tenant.wasted < _WASTEFUL):
            tenant.round, tenant.since, tenant.number = self._round, now, 0
        if tenant.number >= (1 if self._is_shared() else _ALONE):
            return False
        tenant.number += 1
        return True

    def _begin(self) -> None:
        """Begin the next round, with those that wait, after the rest that is due."""
        now = self._clock()
        rest = self._count_rest(now)
        if rest > _LEAST_REST and self._disturbs(now):
            asyncio.get_running_loop().call_later(rest, self._begin_rested)
        else:
            self._begin_now(now)

    def _count_rest(self, now: float) -> float:
        """Count what the loop has done since the last round; return how long a rest is due."""
        used = self._used()
        passed, worked = now - self._looked[0], used - self._looked[1]
        self._looked = now, used
        if passed > _LATELY:
            self._rest = 0.0
        else:
            self._rest = min(_MOST_REST, max(0.0, self._rest + _REST * worked - max(0.0, passed - worked)))
        return self._rest

    def _disturbs(self, now: float) -> bool:
        """Return whether those that wait are wasteful, and another one is here that is not; forget those that left."""
        for account, tenant in [*self._tenants.items()]:
            if self._has_left(tenant, now):
                del self._tenants[account]
        here = [each for each in self._tenants.values() if each.waiting or now - each.seen <= _LATELY]
        return all(each.wasted >= _WASTEFUL for each in here if each.waiting) and any(
            each.wasted < _WASTEFUL for each in here
        )

    def _begin_rested(self) -> None:
        """Begin it after a rest. What the loop has done meanwhile counts for the next one: much of it follows from the
        turns before, such as the start and the end of the runs that they were for."""
        self._count_rest(now := self._clock())
        self._begin_now(now)

    def _begin_now(self, now: float) -> None:
        self._round += 1
        self._is_due = False
        for tenant in [*self._tenants.values()]:
            waiting = tenant.waiting
            while waiting and (waiting[0].done() or self._takes(tenant, now)):  # one that is done was given up
                turn = waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
            self._is_due = self._is_due or bool(waiting)
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._begin)
