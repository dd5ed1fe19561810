"""Who may run now, who waits, and who is turned away: one queue with a bound, and a share for each tenant."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from toolexec.errors import SandboxUnavailableError
from toolexec.remote import TenantQuota

__all__ = ["Admission", "Ticket"]

_LONGEST_PAUSE: Final = 60.0
_WEIGHT: Final = 0.2


class Ticket:
    """A place in the queue, and then one of those that run. `turn` is done when it may run."""

    __slots__ = ("_admission", "account", "turn")

    def __init__(self, admission: Admission, account: str) -> None:
        self.account = account
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._admission: Admission | None = admission

    def leave(self, seconds: float = 0.0) -> None:
        """Free the place, be it in the queue or not; *seconds* is how long the run took, if it ran. Twice is fine."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.free_place(self, seconds)


class _Tenant:
    """The runs of one tenant."""

    def __init__(self, quota: TenantQuota, now: float) -> None:
        self.quota = quota
        self.waiting: deque[Ticket] = deque()
        self.running = 0
        self._tokens = max(quota.rate, 1.0)
        self._filled = now

    def pause(self, now: float) -> float:
        """Return for how many seconds it must wait before its next run; a run that need not wait is counted."""
        rate = self.quota.rate
        if not rate:
            return 0.0
        self._tokens = min(max(rate, 1.0), self._tokens + (now - self._filled) * rate)
        self._filled = now
        if self._tokens < 1:
            return (1 - self._tokens) / rate
        self._tokens -= 1
        return 0.0

    @property
    def may_run(self) -> bool:
        return bool(self.waiting) and not 0 < self.quota.running <= self.running


class Admission:
    """Lets *max_running* run at once and *max_queued* wait. Tenants take turns, and the runs of each come in order.

    Belongs to one event loop; *clock* is that of `time.monotonic`.
    """

    def __init__(
        self,
        max_running: int,
        max_queued: int,
        quota_of: Callable[[str], TenantQuota],
        clock: Callable[[], float],
    ) -> None:
        self.max_running = max_running
        self.max_queued = max_queued
        self.running = 0
        self.queued = 0
        self.changed: Callable[[], None] | None = None
        """Called when `running` or `queued` has changed."""
        self._quota_of = quota_of
        self._clock = clock
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._usual = 1.0  # seconds of a run

    @property
    def free(self) -> int:
        """How many could run at once."""
        return max(0, self.max_running - self.running - self.queued)

    def enter(self, account: str) -> Ticket:
        """Return a place in the queue.

        Raises SandboxUnavailableError (`queue_full`, `quota_exceeded`) when there is none; its details say when to come
        again (`retry_after`, in seconds).
        """
        tenant = self._tenants.get(account)
        if tenant is None:
            tenant = self._tenants[account] = _Tenant(self._quota_of(account), self._clock())
        quota = tenant.quota
        if self.queued >= self.max_queued:
            raise _full("queue_full", f"{self.queued} runs wait here already", self._pause(self.queued))
        if quota.queued and len(tenant.waiting) >= quota.queued:
            raise _full(
                "quota_exceeded", f"{account} has {quota.queued} runs waiting already", self._pause(quota.queued)
            )
        pause = tenant.pause(self._clock())
        if pause:
            raise _full("quota_exceeded", f"{account} may begin {quota.rate:g} runs per second", pause)
        ticket = Ticket(self, account)
        tenant.waiting.append(ticket)
        self.queued += 1
        self._fill()
        return ticket

    def free_place(self, ticket: Ticket, seconds: float) -> None:
        """Take back what `enter` gave."""
        tenant = self._tenants[ticket.account]
        if ticket.turn.done() and not ticket.turn.cancelled():
            self.running -= 1
            tenant.running -= 1
            if seconds:
                self._usual += _WEIGHT * (seconds - self._usual)
        elif ticket in tenant.waiting:
            tenant.waiting.remove(ticket)
            self.queued -= 1
        self._fill()

    def _fill(self) -> None:
        """Let in as many as there is room for, the tenants in turn."""
        while self.running < self.max_running and self.queued:
            name = next((name for name, tenant in self._tenants.items() if tenant.may_run), None)
            if name is None:
                break
            tenant = self._tenants[name]
            self._tenants.move_to_end(name)
            ticket = tenant.waiting.popleft()
            self.queued -= 1
            if not ticket.turn.done():
                ticket.turn.set_result(None)
                self.running += 1
                tenant.running += 1
        if self.changed is not None:
            self.changed()

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
