"""Who may run now, who waits, and who is turned away: one queue with a bound, and a share for each tenant."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from toolexec.errors import SandboxUnavailableError
from toolexec.remote import TenantQuota, part_of_cores
from toolexec_remote.server.shares import Pace, Pool

_LONGEST_PAUSE: Final = 60.0
_LATELY: Final = 5.0
_WEIGHT: Final = 0.2


class Ticket:
    """A place in the queue, and then one of those that run. `turn` is done when it may run."""

    __slots__ = ("_admission", "account", "is_paused", "turn")

    def __init__(self, admission: Admission, account: str) -> None:
        self.account = account
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_paused: bool = False
        """Whether its turn goes to others, as its caller is away."""
        self._admission: Admission | None = admission

    def pause(self) -> None:
        """Leave its turn to those behind it, if it has not come."""
        if self._admission is not None and not self.is_paused and not self.turn.done():
            self.is_paused = True
            self._admission.note_paused(self, 1)

    def resume(self) -> None:
        """Take its turn again, at its old place."""
        if self._admission is not None and self.is_paused:
            self.is_paused = False
            self._admission.note_paused(self, -1)

    def leave(self, seconds: float = 0.0) -> None:
        """Free the place, be it in the queue or not; *seconds* is how long the run took, if it ran. Twice is fine."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.free_place(self, seconds)


class _Tenant:
    """The runs of one tenant, and the time that its places took."""

    def __init__(self, quota: TenantQuota, now: float) -> None:
        self.quota = quota
        self.waiting: deque[Ticket] = deque()
        self.paused = 0  # of these
        self.used = 0.0  # seconds of places, for its weight
        self.left = -_LATELY  # when its last run has ended
        self._pace = Pace(quota.rate, now)
        self._counted = now

    @property
    def is_next(self) -> bool:
        """Whether one of those that wait is not paused."""
        return len(self.waiting) > self.paused

    def take(self) -> Ticket:
        """Return the first of these, which waits no more."""
        ticket = self.waiting[0]
        if ticket.is_paused:
            ticket = next(each for each in self.waiting if not each.is_paused)
        self.waiting.remove(ticket)
        return ticket

    def pause(self, now: float) -> float:
        """Return for how many seconds it must wait before its next run; a run that need not wait is counted."""
        return self._pace.pause(now)

    def count(self, running: int, now: float) -> None:
        """Count the time of its places, which are *running*, up to now, whatever is done in them."""
        self.used += (now - self._counted) * running / self.quota.weight
        self._counted = now


class Admission:
    """Lets *max_running* run at once and *max_queued* wait. The runs of a tenant come in order, and each place goes to
    the tenant whose places took the least time for its weight.

    Belongs to one event loop; *clock* is that of `time.monotonic`. Where *is_shared* is false there is one tenant only.
    A tenant gets no place while *reads* says that it does not read its results; `fill` is to be called when it does.
    *wastes* says of one whether its runs are stopped again and again: beside others it has no more places than its part
    of the *cores*, as what runs in them is likely to compute for nothing.
    """

    def __init__(
        self,
        max_running: int,
        max_queued: int,
        quota_of: Callable[[str], TenantQuota],
        clock: Callable[[], float],
        is_shared: Callable[[], bool] = lambda: True,
        reads: Callable[[str], bool] = lambda _: True,
        wastes: Callable[[str], bool] = lambda _: False,
        cores: int = 1,
    ) -> None:
        self.max_running = max_running
        self.max_queued = max_queued
        self.changed: Callable[[], None] | None = None
        """Called when `running` or `queued` has changed."""
        self.cores = cores
        self._quota_of = quota_of
        self._clock = clock
        self._reads = reads
        self._wastes = wastes
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._usual = 1.0  # seconds of a run
        self._virtual = 0.0  # the `used` of the tenant that got the last place
        self._running = Pool(max_running, self._most_running, lambda each: quota_of(each).weight, is_shared)
        self._queued = Pool(
            max_queued, lambda each: quota_of(each).queued, lambda each: quota_of(each).weight, is_shared
        )

    @property
    def running(self) -> int:
        """How many run."""
        return self._running.used

    @property
    def queued(self) -> int:
        """How many wait."""
        return self._queued.used

    @property
    def free(self) -> int:
        """How many could run at once."""
        return max(0, self.max_running - self.running - self.queued)

    def free_for(self, account: str) -> int:
        """Return how many of a tenant could run at once; 0 where it has its share of the places."""
        return self.free if self._running.may_take(account) and self._reads(account) else 0

    def enter(self, account: str) -> Ticket:
        """Return a place in the queue.

        Raises SandboxUnavailableError (`queue_full`, `quota_exceeded`) when there is none; its details say when to come
        again (`retry_after`, in seconds).
        """
        tenant = self._tenant(account)
        if self.queued >= self.max_queued:
            raise _full("queue_full", f"{self.queued} runs wait here already", self._pause(self.queued))
        if not self._queued.may_take(account):
            waiting = len(tenant.waiting)
            raise _full("quota_exceeded", f"{account} has {waiting} runs waiting already", self._pause(waiting))
        self.pace(account)
        if not self._is_here(account, tenant):  # what it has not used meanwhile is not saved
            tenant.used = max(tenant.used, self._virtual)
        ticket = Ticket(self, account)
        self._queued.take(account)
        tenant.waiting.append(ticket)
        self.fill()
        return ticket

    def pace(self, account: str) -> None:
        """Count a run that begins; raises SandboxUnavailableError (`quota_exceeded`) when it is too early for it."""
        tenant = self._tenant(account)
        pause = tenant.pause(self._clock())
        if pause:
            raise _full("quota_exceeded", f"{account} may begin {tenant.quota.rate:g} runs per second", pause)

    def gives_way(self, account: str) -> bool:
        """Return whether a run that begins now leaves the cores to those of others: its tenant has its part of them
        already, by its weight, or wastes them, and another one has runs here, or had some within a few seconds."""
        most = self._part_of_cores(account)
        return bool(most) and (self._running.taken_by(account) > most or self._wastes(account))

    def _part_of_cores(self, account: str) -> float:
        """Return how many cores are for a tenant, by its weight, and at least one; 0 where there is no other one."""
        now = self._clock()
        others = sum(
            tenant.quota.weight
            for name, tenant in self._tenants.items()
            if name != account and (self._is_here(name, tenant) or now - tenant.left < _LATELY)
        )
        return part_of_cores(self._tenant(account).quota.weight, others, self.cores) if others else 0.0

    def _most_running(self, account: str) -> int:
        """Return how many places a tenant may have, whatever is free; 0 for any number."""
        quota = self._quota_of(account).running
        part = int(self._part_of_cores(account)) if self._wastes(account) else 0
        return min(part, quota) if part and quota else part or quota

    def holds_too_much(self) -> list[str]:
        """Return the tenants that have more places than their part of them, most first, where one that has less waits
        for a place: what they do not use of these should be taken back."""
        active = {name: tenant for name, tenant in self._tenants.items() if self._is_here(name, tenant)}
        weights = sum(tenant.quota.weight for tenant in active.values())
        over = {
            name: self._running.taken_by(name) / tenant.quota.weight - self.max_running / weights
            for name, tenant in active.items()
        }
        if not any(over[name] < 0 and self._may_run_but_for_room(name, tenant) for name, tenant in active.items()):
            return []
        return sorted((name for name, more in over.items() if more > 0), key=lambda name: -over[name])

    def _may_run_but_for_room(self, name: str, tenant: _Tenant) -> bool:
        cap = self._most_running(name)
        is_able = tenant.is_next and not 0 < cap <= self._running.taken_by(name) and self._reads(name)
        return is_able and not self._running.may_take(name)

    def _is_here(self, name: str, tenant: _Tenant) -> bool:
        return bool(tenant.waiting or self._running.taken_by(name))

    def _tenant(self, account: str) -> _Tenant:
        tenant = self._tenants.get(account)
        if tenant is None:
            tenant = self._tenants[account] = _Tenant(self._quota_of(account), self._clock())
        return tenant

    def free_place(self, ticket: Ticket, seconds: float) -> None:
        """Take back what `enter` gave."""
        tenant = self._tenants[ticket.account]
        if ticket.turn.done() and not ticket.turn.cancelled():
            tenant.count(self._running.taken_by(ticket.account), self._clock())
            self._running.give(ticket.account)
            tenant.left = self._clock()
            if seconds:
                self._usual += _WEIGHT * (seconds - self._usual)
        elif ticket in tenant.waiting:
            tenant.waiting.remove(ticket)
            tenant.paused -= ticket.is_paused
            self._queued.give(ticket.account)
        self.fill()

    def note_paused(self, ticket: Ticket, more: int) -> None:
        """Count so many more tickets of a tenant as paused."""
        self._tenants[ticket.account].paused += more
        self.fill()

    def fill(self) -> None:
        """Let in as many as there is room for."""
        while self.queued and (name := self._next()):
            tenant = self._tenants[name]
            self._tenants.move_to_end(name)
            ticket = tenant.take()
            self._queued.give(name)
            if not ticket.turn.done():
                self._running.take(name)
                self._virtual = max(self._virtual, tenant.used)
                ticket.turn.set_result(None)
        if self.changed is not None:
            self.changed()

    def fill_later(self) -> None:
        """Let in those that may come in by now, as others have left; to be called again and again."""
        if self._next():
            self.fill()

    def _next(self) -> str:
        """Return the tenant that gets the next place; "" when none of those that wait may have one."""
        now = self._clock()
        found, least = "", math.inf
        for name, tenant in self._tenants.items():  # who got none for the longest time comes first
            running = self._running.taken_by(name)
            tenant.count(running, now)
            used = tenant.used + self._usual * running / tenant.quota.weight
            if tenant.is_next and used < least and self._running.may_take(name) and self._reads(name):
                found, least = name, used
        return found

    def _pause(self, waiting: int) -> float:
        return min(_LONGEST_PAUSE, max(1.0, self._usual * waiting / self.max_running))


def _full(code: str, what: str, pause: float) -> SandboxUnavailableError:
    pause = math.ceil(pause * 1000) / 1000
    return SandboxUnavailableError(
        f"{what}; try again in {pause:g} s, or elsewhere",
        code=code,
        retryable=True,
        details={"retry_after": pause},
    )
