"""Connections are taken as long as there is room, and none is left open by a server that closes."""

from __future__ import annotations

import asyncio
import gc
import select
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any, ClassVar, Final

import pytest
from tests.waiting import until

from toolexec.server.http import accepting as accepting_module
from toolexec.server.http.accepting import Accepting
from toolexec.server.http.seats import Occupant, Seat, Seats

FOREVER: Final = 3600.0


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_comes_at_the_end_is_closed(turns: int) -> None:
    """Whichever turn of the loop the server closes in, no socket is lost."""
    seats = Seats(4, proven=True)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = bound.getsockname()
        accepting = Accepting((bound,), seats, lambda _: asyncio.Protocol(), tls=None, handshake_timeout=5)
    with socket.create_connection(address):
        for _ in range(turns):
            await asyncio.sleep(0)
        accepting.close()
        await accepting.wait_closed()
    gc.collect()  # an open socket is a warning then, and warnings are errors


@pytest.mark.parametrize("most", [1, 3, 20])
async def test_a_connection_gives_way_to_another_only(most: int) -> None:
    """Connections at the door stay where all places are taken, until another one comes."""
    seats = Seats(most, proven=True, patience=0.0)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = bound.getsockname()
        accepting = Accepting((bound,), seats, Doorstep, tls=None, handshake_timeout=5)
    with ExitStack() as stack:
        for _ in range(most):
            stack.enter_context(socket.create_connection(address))
        await until(lambda: len(Doorstep.there) == most)
        await settled()
        assert len(Doorstep.there) == most
        first = min(Doorstep.there, key=lambda each: each.since)
        stack.enter_context(socket.create_connection(address))
        await until(lambda: first not in Doorstep.there and len(Doorstep.there) == most)
    await until(lambda: not Doorstep.there)
    accepting.close()
    await accepting.wait_closed()


@pytest.mark.parametrize(("before", "taken"), [(1, 3), (20, 0)])
async def test_beside_others_newcomers_wait(monkeypatch: pytest.MonkeyPatch, before: int, taken: int) -> None:
    """After those before them they leave the loop to the others for a while; a few others are not in their way."""
    monkeypatch.setattr(accepting_module, "_EACH", FOREVER)
    monkeypatch.setattr(accepting_module, "monotonic", lambda: 0.0)
    seats = Seats(100, proven=True)
    for _ in range(before):
        seats.enter(Silent(), "")
    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = bound.getsockname()
        accepting = Accepting((bound,), seats, Doorstep, tls=None, handshake_timeout=5)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(address))
        await until(lambda: len(seats) == before + 3)
        await until(lambda: len(Doorstep.there) >= taken)
        await settled()
        assert len(Doorstep.there) == taken
    await until(lambda: not Doorstep.there)
    accepting.close()
    await accepting.wait_closed()


async def test_the_newest_and_the_oldest_are_served_in_turn() -> None:
    """A client that comes behind many waits for one of them, and the first of the many for one that came later."""
    seats = Seats(100, proven=True)
    with socket.create_server(("127.0.0.1", 0)) as bound, ExitStack() as stack:
        address = bound.getsockname()
        ports = [stack.enter_context(socket.create_connection(address)).getsockname()[1] for _ in range(6)]
        accepting = Accepting((bound,), seats, Doorstep, tls=None, handshake_timeout=5)
        await until(lambda: len(Doorstep.there) == 6)
        assert [ports.index(each.port) for each in Doorstep.there] == [5, 0, 4, 1, 3, 2]
    await until(lambda: not Doorstep.there)
    accepting.close()
    await accepting.wait_closed()


async def test_who_waits_for_its_turn_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that gives way is disconnected at once, its seat is free, and nothing is begun for it; nor for those that wait at the end."""
    monkeypatch.setattr(accepting_module, "_EACH", FOREVER)
    monkeypatch.setattr(accepting_module, "monotonic", lambda: 0.0)
    seats = Seats(30, proven=True, patience=0.0)
    for _ in range(20):
        seats.enter(Silent(), "").claim("ann")
    with socket.create_server(("127.0.0.1", 0)) as bound, ExitStack() as stack:
        address = bound.getsockname()
        accepting = Accepting((bound,), seats, Doorstep, tls=None, handshake_timeout=5)
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(11)]
        for client in clients:
            client.settimeout(30)
        await until(lambda: len(seats) == 30)
        assert await asyncio.to_thread(clients[0].recv, 1) == b""
        assert Doorstep.there == []
        accepting.close()
        await accepting.wait_closed()
        assert await asyncio.to_thread(clients[-1].recv, 1) == b""
        assert len(seats) == 20


async def test_newcomers_without_room_wait_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for whom there is no room wait as the others do, however many there are: the loop is for those who have
    connections."""
    monkeypatch.setattr(accepting_module, "_EACH", FOREVER)
    monkeypatch.setattr(accepting_module, "_AT_ONCE", 15)
    monkeypatch.setattr(accepting_module, "monotonic", lambda: 0.0)
    begun: list[Seat | None] = []

    def begin(seat: Seat | None) -> asyncio.Protocol:
        begun.append(seat)
        return asyncio.Protocol()

    async with full_house(20, 15, begin):
        await settled()
        assert begun == []


async def test_few_are_refused_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """More newcomers without room than are refused at a time are closed at once: each would hold a file."""
    monkeypatch.setattr(accepting_module, "_EACH", FOREVER)
    monkeypatch.setattr(accepting_module, "_REFUSED", 3)
    monkeypatch.setattr(accepting_module, "monotonic", lambda: 0.0)
    async with full_house(20, 10, lambda _: asyncio.Protocol()) as clients:
        for client in clients[3:]:
            client.settimeout(5)
            assert await asyncio.to_thread(client.recv, 1) == b""
        for client in clients[:3]:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)


@asynccontextmanager
async def full_house(
    most: int, more: int, make: Callable[[Seat | None], asyncio.Protocol]
) -> AsyncGenerator[list[socket.socket]]:
    """Take the connections of *more* clients of an address that has all of *most* already; gives the clients."""
    seats = Seats(most, proven=False)
    for _ in range(most):
        seats.enter(Silent(), "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0), backlog=more) as bound, ExitStack() as stack:
        address = bound.getsockname()
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(more)]
        accepting = Accepting((bound,), seats, make, tls=None, handshake_timeout=5)
        yield clients
        accepting.close()
        await accepting.wait_closed()


@pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="the system does not say who has hung up")
async def test_who_has_hung_up_is_not_served() -> None:
    """Give no seat to a connection whose client has left before it was taken."""
    seats = Counted(100, proven=True)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = bound.getsockname()
        for _ in range(5):
            socket.create_connection(address).close()
        accepting = Accepting((bound,), seats, Doorstep, tls=None, handshake_timeout=5)
    with socket.create_connection(address):
        await until(lambda: len(Doorstep.there) == 1)
        assert seats.entered == 1
    await until(lambda: not Doorstep.there)
    accepting.close()
    await accepting.wait_closed()


class Doorstep(asyncio.Protocol):
    """A connection that has sent nothing yet; the class has those that are there, in their order."""

    there: ClassVar[list[Doorstep]] = []
    is_answering = has_answered = False

    def __init__(self, seat: Seat | None) -> None:
        assert seat is not None
        self._seat = seat
        self.since = seat.since
        seat.occupant = self

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.port = transport.get_extra_info("peername")[1]
        self.there.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.there.remove(self)
        self._seat.leave()

    def give_way(self) -> None:
        self._transport.close()


class Counted(Seats):
    """Counts who came in."""

    entered = 0

    def enter(self, occupant: Occupant, address: str) -> Seat:
        self.entered += 1
        return super().enter(occupant, address)


class Silent:
    """Has a connection, and does nothing with it."""

    is_answering = has_answered = False

    def give_way(self) -> None:
        """Stay."""


async def settled() -> None:
    """Let the loop do all that it can do now."""
    for _ in range(50):
        await asyncio.sleep(0)
