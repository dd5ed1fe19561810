"""The connections of a server, from the first byte on: how many there are, whose they are, and how much of a message
has arrived on each that is not complete."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, Protocol

from toolexec.errors import SandboxUnavailableError
from toolexec_remote.server.handing import HandedOver
from toolexec_remote.server.member import HERE_NUMBER, Member
from toolexec_remote.server.metrics import RemoteMetrics
from toolexec_remote.server.shares import Shares

logger: logging.Logger = logging.getLogger(__name__)
_FREE: Final = 64 << 10
"""How many bytes of a message that is not complete each connection may have beside its tenant's share."""
_FRAME_HEAD: Final = 14
_REST: Final = 1 << 10
_CONTROL: Final = 131
_MESSAGE_SECONDS: Final = 60.0
"""How long a message, or a body, may take to arrive."""


class Spoken(Protocol):
    """The protocol behind a door, which speaks HTTP."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Do as `asyncio.Protocol` says."""
        ...

    def connection_lost(self, exc: BaseException | None) -> None:
        """Do as `asyncio.Protocol` says."""
        ...

    def data_received(self, data: bytes) -> None:
        """Do as `asyncio.Protocol` says."""
        ...

    def eof_received(self) -> bool | None:
        """Do as `asyncio.Protocol` says."""
        ...

    def pause_writing(self) -> None:
        """Do as `asyncio.Protocol` says."""
        ...

    def resume_writing(self) -> None:
        """Do as `asyncio.Protocol` says."""
        ...


class Door(asyncio.Protocol):
    """One connection. It has no `account` until it has shown a key. One that *is_inner* comes from another process
    behind the same port, which has undone its TLS."""

    def __init__(self, doors: Doors, spoken: Spoken, *, is_inner: bool = False) -> None:
        self.account = ""
        self.opened = monotonic()
        self.asks = 0
        """How many requests are being answered."""
        self.spoken = spoken
        self._doors = doors
        self._transport: asyncio.Transport | None = None
        self._tls = None if is_inner else doors.tls
        self._member = None if is_inner else doors.member
        self._early: list[bytes] | None = []  # what comes before it is known who serves it
        self._is_greeted = False
        self._handed: HandedOver | None = None
        self._greeting: asyncio.Task[None] | None = None
        self._arrived = 0  # bytes of a message that is not complete
        self._since = 0.0
        self._charged = 0

    # -- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Do as `asyncio.Protocol` says."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._doors.enter(self):
            transport.abort()
        elif self._tls is None:
            self._begin(transport)
        else:
            transport.pause_reading()
            self._greeting = asyncio.get_running_loop().create_task(self._greet(transport, self._tls))

    async def _greet(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Do the TLS handshake; what is not one is an anonymous connection that was malformed."""
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=self._doors.patience
            )
        except (OSError, ssl.SSLError, TimeoutError):
            self._doors.metrics.cut("malformed")
            self._doors.leave(self)
            transport.abort()
            return
        if secured is None or self not in self._doors:
            self._doors.leave(self)
            return
        self._begin(secured)

    def _begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_greeted = True
        self._see_for_whom(transport)

    def _see_for_whom(self, transport: asyncio.Transport) -> None:
        """Serve it here, or hand it to the process that it is for, once that is known."""
        arrived = b"".join(self._early or ())
        number = HERE_NUMBER if self._member is None else self._member.number_for(arrived)
        if number is None:
            self._early = [arrived]
            return
        if self._member is not None and number != HERE_NUMBER:
            self._early = []
            self._doors.hand_over(self)
            self._handed = HandedOver(transport, self._member.path_of(number), arrived)
            return
        self._early = None
        self.spoken.connection_made(transport)
        if arrived:
            self.data_received(arrived)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Do as `asyncio.Protocol` says."""
        self._doors.leave(self)
        self._settle(0)
        if self._handed is not None:
            self._handed.close()
        if self._early is None:
            self._early = []
            self.spoken.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Do as `asyncio.Protocol` says."""
        if self._handed is not None:
            self._handed.pass_on(data)
        elif self._early is not None:
            self._early.append(data)
            if self._is_greeted and self._transport is not None:
                self._see_for_whom(self._transport)
        elif self._count(data):
            self.spoken.data_received(data)

    def eof_received(self) -> bool | None:
        """Do as `asyncio.Protocol` says."""
        return self.spoken.eof_received() if self._early is None else None

    def pause_writing(self) -> None:
        """Do as `asyncio.Protocol` says."""
        if self._handed is not None:
            self._handed.pause_far()
        elif self._early is None:
            self.spoken.pause_writing()

    def resume_writing(self) -> None:
        """Do as `asyncio.Protocol` says."""
        if self._handed is not None:
            self._handed.resume_far()
        elif self._early is None:
            self.spoken.resume_writing()

    @contextmanager
    def idle(self) -> Generator[None]:
        """Count the request that is being answered as none in the block: the connection may be cut for others."""
        self.asks -= 1
        try:
            yield
        finally:
            self.asks += 1

    def cut(self, why: str) -> None:
        """End it at once."""
        self._doors.metrics.cut(why)
        self._doors.leave(self)
        self._settle(0)
        if self._greeting is not None:
            self._greeting.cancel()
        if self._transport is not None:
            self._transport.abort()

    # -- what has arrived ---------------------------------------------------------------------------------------------

    def _count(self, data: bytes) -> bool:
        """Count what has arrived; return whether there is room for it. If not, the connection is cut: what it carried
        is sent again over the next one, and the first messages of a tenant are the first to be complete."""
        if not self.account:
            return True  # the parser of HTTP bounds what it reads before a key was shown
        if not self._arrived and len(data) <= _CONTROL and data[0] & 0x08:
            return True  # a pong, or another control frame between messages
        if not self._arrived:
            self._since = monotonic()
        self._arrived += len(data)
        if self._arrived <= _FREE + self._charged:
            return True
        if self._doors.shares.held.take(self.account, more := self._arrived - _FREE - self._charged):
            self._charged += more
            return True
        logger.warning("a connection of %s is cut: too much of its messages is half read", self.account)
        self.cut("held")
        return False

    def consumed(self, size: int | None = None) -> None:
        """Note that a message of so many bytes was complete, or all that has arrived."""
        rest = 0 if size is None else self._arrived - size - _FRAME_HEAD
        self._settle(rest if rest > _REST else 0)

    def _settle(self, arrived: int) -> None:
        self._arrived, self._since = arrived, monotonic()
        charged = max(0, min(self._charged, arrived - _FREE))
        self._doors.shares.held.give(self.account, self._charged - charged)
        self._charged = charged

    def is_late(self, now: float) -> bool:
        """Return whether it takes too long to show a key, or to bring the rest of a message."""
        if self._handed is not None:
            return False  # the other process sees to that
        if not self.account:
            return not self.asks and now - self.opened > self._doors.patience
        return self._arrived > _REST and now - self._since > _MESSAGE_SECONDS


class Doors:
    """All connections. *tls* is what they speak, *patience* how many seconds they may take to show a key; *serve* makes
    the protocol of each. Where there are several processes behind the port, this one is *member* of them."""

    def __init__(
        self,
        serve: Callable[[], Any],
        shares: Shares,
        metrics: RemoteMetrics,
        *,
        tls: ssl.SSLContext | None,
        patience: float,
        member: Member | None = None,
    ) -> None:
        self.member = member
        self.shares = shares
        self.metrics = metrics
        self.tls = tls
        self.patience = patience
        self._serve = serve
        self._anonymous: dict[Door, None] = {}  # the oldest one first
        self._known: set[Door] = set()
        self._handed: set[Door] = set()
        self._by_protocol: dict[object, Door] = {}

    def __contains__(self, door: Door) -> bool:
        return door in self._known or door in self._anonymous or door in self._handed

    def __call__(self) -> Door:
        """Return the protocol of a new connection."""
        return Door(self, self._serve())

    def inner(self) -> Door:
        """Return the protocol of a connection that another process behind the port has handed over."""
        return Door(self, self._serve(), is_inner=True)

    def of(self, protocol: object) -> Door | None:
        """Return the door in front of a protocol."""
        return self._by_protocol.get(protocol)

    def enter(self, door: Door) -> bool:
        """Take a connection; return whether there is room. The oldest one that has shown no key makes room for it: who
        has one shows it at once."""
        crowd = len(self._anonymous)
        files = crowd + len(self._known) + 2 * len(self._handed)
        if crowd >= self.shares.max_anonymous or files >= self.shares.max_connections:
            oldest = next((each for each in self._anonymous if not each.asks), None)
            if oldest is None:
                self.metrics.cut("anonymous")
                return False
            oldest.cut("anonymous")
        self._anonymous[door] = None
        self._by_protocol[door.spoken] = door
        return True

    def admit(self, protocol: object, account: str) -> Door | None:
        """Note whose connection this is, as it has shown a key; raises SandboxUnavailableError (`quota_exceeded`) when
        its tenant has too many of them."""
        door = self._by_protocol.get(protocol)
        if door is None or door.account == account:
            return door
        if not self.shares.connections.take(account):
            raise SandboxUnavailableError(
                f"{account} has {self.shares.connections.taken_by(account)} connections to this server already",
                code="quota_exceeded",
                retryable=True,
                details={"retry_after": 1.0},
            )
        if door.account:  # a proxy that carries the requests of several tenants
            door.consumed()
            self.shares.connections.give(door.account)
        self._anonymous.pop(door, None)
        self._known.add(door)
        door.account = account
        return door

    def hand_over(self, door: Door) -> None:
        """Note that another process serves a connection, and admits it or not."""
        self._anonymous.pop(door, None)
        self._by_protocol.pop(door.spoken, None)
        self._handed.add(door)

    def leave(self, door: Door) -> None:
        """Forget a connection; twice is fine."""
        self._anonymous.pop(door, None)
        self._handed.discard(door)
        self._by_protocol.pop(door.spoken, None)
        if door in self._known:
            self._known.discard(door)
            self.shares.connections.give(door.account)

    def sweep(self, now: float) -> None:
        """Cut what takes too long; *now* is that of `time.monotonic`. To be called again and again."""
        for door in [*self._anonymous, *self._known]:
            if door.is_late(now):
                door.cut("slow")
