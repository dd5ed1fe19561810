"""What tenants share of a server, and how much each may take: places, connections, bytes, and turns to be read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from time import monotonic
from typing import Final

from toolexec.errors import SandboxUnavailableError
from toolexec.remote import RuntimeServerSettings
from toolexec_remote.server.rounds import Rounds

_SHARE: Final = 4
"""How much a tenant may have, as a multiple of what is free: one that is alone gets four fifths of it all, two that
want everything get four ninths each, and a ninth stays free for the next one."""
_SENDING: Final = 4
"""What part of the bytes that are held may be on their way out at once."""
_UNREAD: Final = 16
"""What part of so many bytes the results may have that a tenant has not read, before no more of its programs start."""
_MOST_ANONYMOUS: Final = 256
_LEAST_PAUSE: Final = 0.01
"""For how long at least a tenant is not read that sends too much: then some of its messages have their turns together,
where the event loop would wake up for each of them."""
_MOST_QUOTAS: Final = 1000
_FEW: Final = 256
"""How many files a process may open where nothing is known of that."""


class Pool:
    """*most* of something that tenants share. Each takes what its quota allows (*cap_of* an account, 0: any number),
    but no more than a multiple of what is free, for its weight (*weight_of*). So there is always some left for those
    who have little, and it need not be known how many will come. Where *is_shared* is false there is no other tenant.
    """

    def __init__(
        self,
        most: int,
        cap_of: Callable[[str], int] = lambda _: 0,
        weight_of: Callable[[str], float] = lambda _: 1.0,
        is_shared: Callable[[], bool] = lambda: True,
    ) -> None:
        self.most = most
        self.used = 0
        self._cap_of = cap_of
        self._weight_of = weight_of
        self._is_shared = is_shared
        self._of: Counter[str] = Counter()
        self._waiting: set[asyncio.Event] = set()

    @property
    def free(self) -> int:
        """How much has not been taken."""
        return max(0, self.most - self.used)

    def taken_by(self, account: str) -> int:
        """Return how much a tenant has."""
        return self._of[account]

    def may_take(self, account: str, number: int = 1) -> bool:
        """Return whether `take` would give so much."""
        own, free, cap = self._of[account], self.free, self._cap_of(account)
        if number > free or 0 < cap < own + number:
            return False
        return not own or not self._is_shared() or own < _SHARE * self._weight_of(account) * (free - number + 1)

    def take(self, account: str, number: int = 1) -> bool:
        """Take so much for a tenant, if it may have it; return whether it has."""
        if not self.may_take(account, number):
            return False
        self._add(account, number)
        return True

    async def wait(self, account: str, number: int) -> None:
        """Take so much as soon as it is there. A tenant that has nothing gets it at once, be it more than there is:
        else what is larger than all of it would wait forever."""
        while self._of[account] and not self.may_take(account, number):
            event = asyncio.Event()
            self._waiting.add(event)
            try:
                await event.wait()
            finally:
                self._waiting.discard(event)
        self._add(account, number)

    @asynccontextmanager
    async def taken(self, account: str, number: int) -> AsyncGenerator[None]:
        """Have so much, as `wait` gives it, in the block."""
        await self.wait(account, number)
        try:
            yield
        finally:
            self.give(account, number)

    def add(self, account: str, number: int) -> None:
        """Count what a tenant has, whether it may have it or not; `may_take` says so from then on."""
        self._add(account, number)

    def give(self, account: str, number: int = 1) -> None:
        """Give back what was taken."""
        if not number:
            return
        self._add(account, -number)
        for event in self._waiting:
            event.set()

    def _add(self, account: str, number: int) -> None:
        self.used += number
        self._of[account] += number
        if not self._of[account]:
            del self._of[account]


class Pace:
    """So many of something in a second (*rate*; 0: any number), with one second's worth at once."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = max(rate, 1.0)
        self._filled = now

    def pause(self, now: float) -> float:
        """Return for how many seconds the next one must wait; one that need not wait is counted."""
        if not self.rate:
            return 0.0
        self._tokens = min(max(self.rate, 1.0), self._tokens + (now - self._filled) * self.rate)
        self._filled = now
        if self._tokens < 1:
            return (1 - self._tokens) / self.rate
        self._tokens -= 1
        return 0.0


class Shares:
    """The connections, the bytes and the messages of all tenants of a server; their places are with `Admission`, which
    asks the same pools. *tenants* says how many there are, and may be replaced when keys change."""

    def __init__(self, settings: RuntimeServerSettings) -> None:
        self.tenants: Callable[[], int] = lambda: len({key.account for key in settings.keys})
        self.quota_of = lru_cache(_MOST_QUOTAS)(settings.quota_of)
        """Returns what holds for one tenant; asked several times for each message."""
        self.max_connections = _connection_limit(settings.max_connections)
        self.max_anonymous = min(_anonymous_limit(settings.max_anonymous), self.max_connections)
        self.connections = self._pool(max(1, self.max_connections - self.max_anonymous), "connections")
        """Those that have shown a key."""
        self.held = self._pool(settings.max_held, "held")
        """Bytes of requests that arrive, or are not over, and of what was not acknowledged."""
        self.sending = self._pool(max(1, settings.max_held // _SENDING), "held")
        """Bytes that are on their way out: copies of those above."""
        self.unread = self._pool(max(1, settings.max_held // _UNREAD), "held")
        """Bytes of results that were not acknowledged, be they in memory or on disk."""
        self.reading = Rounds(lambda: self.is_shared)
        """Messages, and requests by POST, that have arrived."""
        self.writing = Rounds(lambda: self.is_shared)
        """Messages on their way out."""
        self._paces: dict[str, Pace] = {}

    @property
    def is_shared(self) -> bool:
        """Whether there is more than one tenant."""
        return self.tenants() > 1

    def _pool(self, most: int, name: str) -> Pool:
        """Return *most* of what the quotas call *name*."""
        quota_of = self.quota_of
        return Pool(
            most,
            lambda account: getattr(quota_of(account), name),
            lambda account: quota_of(account).weight,
            lambda: self.is_shared,
        )

    def reads(self, account: str) -> bool:
        """Return whether a tenant reads its results: while too many of them are on their way, none is made for it."""
        return self.unread.may_take(account, 0)

    def hold(self, account: str, number: int, what: str) -> None:
        """Take bytes for a tenant; raises SandboxUnavailableError (`quota_exceeded`) where it has too many."""
        if not self.held.take(account, number):
            raise SandboxUnavailableError(
                f"{account} has {self.held.taken_by(account)} bytes here, and there is no room for {number} more of "
                f"{what}; try again when some of its runs are over and their results are read",
                code="quota_exceeded",
                retryable=True,
                details={"retry_after": 1.0},
            )

    async def turn(self, account: str) -> None:
        """Wait until the next message of a tenant may be done."""
        if pause := self.pause(account):
            await asyncio.sleep(pause)
        await self.reading.turn(account)

    def pause(self, account: str) -> float:
        """Return for how long the next message of a tenant must wait for its pace."""
        now = monotonic()
        pace = self._paces.get(account)
        if pace is None:
            pace = self._paces[account] = Pace(self.quota_of(account).messages, now)
        pause = pace.pause(now)
        return max(pause, _LEAST_PAUSE) if pause else 0.0


def _connection_limit(wanted: int) -> int:
    """Return how many connections may be open at once: *wanted*, or for 0 what leaves files for the sandboxes."""
    return wanted or max(4, _files() * 3 // 4)


def _anonymous_limit(wanted: int) -> int:
    """Return how many of them may have shown no key: *wanted*, or for 0 few enough to leave most to the others."""
    return wanted or max(2, min(_MOST_ANONYMOUS, _files() // 4))


def _files() -> int:
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return _FEW
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft > 0 else 1 << 20
