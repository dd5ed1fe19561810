"""A connection that brings much, or has much to send, and the others of its server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import WSMessage, WSMsgType
from packages.remote.tests.servers import KEY, OTHER
from tests.loop_clock import loop_clock
from tests.waiting import PATIENCE, until

from toolexec.remote import RuntimeServerSettings, SigningKey, TenantQuota
from toolexec_remote.messages import RemoteMessage, encode_remote
from toolexec_remote.server.duplex_connection import DuplexConnection
from toolexec_remote.server.duplex_run import DuplexRun, DuplexRuns
from toolexec_remote.server.rounds import Rounds
from toolexec_remote.server.shares import Shares


class Roomy:
    """A socket whose other side reads and writes faster than anything here."""

    def __init__(self, kind: WSMsgType = WSMsgType.BINARY, arrived: int = 0) -> None:
        """Have *arrived* messages of one kind to be read already."""
        self.sent = self.ponged = self.read = 0
        self.closed = False
        self.is_read = asyncio.Event()
        """Whether the other side reads what it is sent."""
        self.is_read.set()
        self._kind = kind
        self._left = arrived

    async def send_bytes(self, data: bytes) -> None:
        """Send without a pause, where it is read."""
        await self.is_read.wait()
        self.sent += 1

    async def pong(self, data: bytes) -> None:
        """Answer a ping without a pause."""
        self.ponged += 1

    async def close(self, *, code: int) -> None:
        """Close it."""
        self.closed = True

    def __aiter__(self) -> Roomy:
        return self

    async def __anext__(self) -> WSMessage:
        """Return what has arrived, without a pause."""
        if self.read == self._left:
            raise StopAsyncIteration
        self.read += 1
        resume = RemoteMessage("resume", f"run-{self.read}", {"incarnation": "x"})
        return WSMessage(self._kind, encode_remote(resume), None)


def shared() -> Shares:
    """Return what two tenants share, who may send as fast as they can, on a machine that is as fast."""
    shares = Shares(RuntimeServerSettings(keys=[KEY, OTHER], quota=TenantQuota(messages=0)))
    shares.reading, shares.writing = (Rounds(lambda: True, lambda: 0.0) for _ in range(2))
    return shares


def connected(socket: Any, shares: Shares | None = None, key: SigningKey = KEY) -> DuplexConnection:
    """Return a connection of a server that knows no runs, over this socket."""
    service: Any = SimpleNamespace(
        shares=shares or shared(),
        metrics=SimpleNamespace(resumed=lambda: None),
        incarnation=SimpleNamespace(id="here"),
        recall=lambda *_: None,
    )
    common: Any = SimpleNamespace(service=service, runs=SimpleNamespace(find=lambda *_: None))
    connection = DuplexConnection(common, socket, key, "/v1/execute/connect")
    connection._is_greeted = True
    return connection


async def most_between_turns(work: Any, done: Callable[[], int], total: int) -> int:
    """Do *work* until *total* is *done*; return the most that was done before everything else had its turn."""
    task = asyncio.ensure_future(work)
    most, before = 0, 0
    while done() < total and not task.done():
        await asyncio.sleep(0)
        most, before = max(most, done() - before), done()
    task.cancel()
    await asyncio.wait([task])
    assert done() == total
    return most


async def test_it_sends_little_at_a_time() -> None:
    """Everything else has its turn after a message, however much its socket takes."""
    socket = Roomy()
    connection = connected(socket)
    for number in range(100):
        connection.put(RemoteMessage("gone", f"run-{number}"))
    assert await most_between_turns(connection._send(), lambda: socket.sent, 100) == 1


@pytest.mark.parametrize("kind", [WSMsgType.BINARY, WSMsgType.PING, WSMsgType.PONG])
async def test_it_reads_little_at_a_time(kind: WSMsgType) -> None:
    """Everything else has its turn after a message, however many have arrived, and of whatever kind."""
    socket = Roomy(kind, 100)

    def done() -> int:
        return socket.ponged if kind is WSMsgType.PING else socket.read

    assert await most_between_turns(connected(socket)._read(), done, 100) <= 2  # one more waits for its turn


async def test_many_connections_of_a_tenant_are_read_as_one() -> None:
    """A tenant has one message read where another one has one, over whatever number of connections it sends them."""
    shares, few, many = shared(), Roomy(arrived=20), [Roomy(arrived=100) for _ in range(30)]
    reading = [
        asyncio.create_task(connected(socket, shares, key)._read())
        for socket, key in [*((socket, OTHER) for socket in many), (few, KEY)]
    ]
    await reading[-1]
    read = [socket.read for socket in many]
    assert sum(read) - 30 <= few.read + 2  # each has taken one more from its socket, which waits
    assert max(read) - min(read) <= 2
    for task in reading:
        task.cancel()
    await asyncio.wait(reading)


async def test_a_tenant_that_is_alone_has_some_messages_done_at_once() -> None:
    """Where there is no other tenant a round is shorter than the messages that have arrived, and not one of each."""
    rounds, done = Rounds(lambda: False, lambda: 0.0), list[int]()

    async def take() -> None:
        for number in range(100):
            await rounds.turn("ann")
            done.append(number)

    assert await most_between_turns(take(), lambda: len(done), 100) == 4


async def test_a_message_that_comes_later_waits_for_nothing() -> None:
    """A round of which nothing is left is over after a millisecond, as no pass of the event loop is counted then."""
    now = [0.0]
    rounds = Rounds(lambda: True, lambda: now[0])
    for _ in range(5):
        turn = rounds.turn("ann")
        with pytest.raises(StopIteration):
            turn.send(None)
        now[0] += 0.002


async def test_who_gives_up_its_turn_keeps_no_one_waiting() -> None:
    """A connection that is lost while it waits for its turn leaves it to the next one."""
    rounds = Rounds(lambda: True, lambda: 0.0)
    await rounds.turn("ann")
    waiting = [asyncio.create_task(rounds.turn("ann")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.wait_for(waiting[2], PATIENCE)
    await asyncio.wait_for(rounds.turn("ann"), PATIENCE)


@pytest.mark.parametrize("is_wasteful", [True, False])
async def test_who_wastes_its_turns_rests_beside_others(is_wasteful: bool) -> None:
    """Messages that lead to nothing have a small part of the loop where another tenant is served, and others all that
    is left."""
    with loop_clock() as clock:
        used, done = [0.0], list[int]()
        rounds = Rounds(lambda: True, clock, lambda: used[0])

        async def work() -> None:
            for number in range(60):
                await rounds.turn("bob")
                if is_wasteful:
                    rounds.waste("bob")
                clock.advance(0.001)
                used[0] += 0.001
                done.append(number)

        task, began, last = asyncio.create_task(work()), clock(), clock()
        while not task.done():
            before = len(done)
            await asyncio.sleep(0)
            if len(done) == before:  # the loop has nothing to do
                clock.advance(0.0001)
            if clock() - last > 0.01:
                last = clock()
                await rounds.turn("ann")
        took = clock() - began
    assert took > 0.18 if is_wasteful else took < 0.09


async def wasted_turns_take(*, at_once: bool) -> float:
    """Return how long a tenant has for its work in wasted turns beside another one: done in them, or two passes of the
    loop later, as what a task does that is begun, and begins another one."""
    with loop_clock() as clock:
        loop, used = asyncio.get_running_loop(), [0.0]
        rounds = Rounds(lambda: True, clock, lambda: used[0])

        def cost() -> None:
            clock.advance(0.001)
            used[0] += 0.001

        async def work() -> None:
            for _ in range(60):
                await rounds.turn("bob")
                rounds.waste("bob")
                if at_once:
                    cost()
                else:
                    loop.call_soon(loop.call_soon, cost)

        task, began, last = asyncio.create_task(work()), clock(), clock()
        while not task.done():
            before = used[0]
            await asyncio.sleep(0)
            if used[0] == before:  # the loop has nothing to do
                clock.advance(0.0001)
            if clock() - last > 0.01:
                last = clock()
                await rounds.turn("ann")
        return clock() - began


async def test_what_follows_from_wasted_turns_counts_like_them() -> None:
    """A tenant that has the loop do something after a turn has no more of it than one that does all in the turn."""
    assert await wasted_turns_take(at_once=False) > 0.8 * await wasted_turns_take(at_once=True)


async def test_what_was_wasted_is_forgiven_after_some_seconds() -> None:
    """A tenant that comes back later is like any other one."""
    now = [0.0]
    rounds = Rounds(lambda: True, lambda: now[0])
    for _ in range(20):
        await rounds.turn("bob")
        rounds.waste("bob")
        now[0] += 0.5
    assert rounds.is_wasteful("bob")
    now[0] += 6.0
    assert not rounds.is_wasteful("bob")
    await rounds.turn("bob")
    assert not rounds.is_wasteful("bob")


async def test_a_client_that_leaves_many_runs_behind_holds_up_no_one() -> None:
    """Runs are given up one after the other, and everything else has its turn between."""
    service: Any = SimpleNamespace(shares=shared(), settings=SimpleNamespace(reconnect=0.0), note_read=lambda *_: None)
    runs, connection = DuplexRuns(service), connected(Roomy())
    for number in range(100):
        runs.add(DuplexRun(runs, KEY.account, f"run-{number}", connection))
    runs.leave(connection)
    [waiting] = runs._waiting
    assert await most_between_turns(waiting, lambda: 100 - len([*runs]), 100) == 1


async def test_what_a_connection_has_brought_ends_with_it() -> None:
    """A message that has not been begun when its connection is over is dropped."""
    shares, socket = shared(), Roomy(arrived=10)
    connection, begun = connected(socket, shares), list[str]()
    connection._shared.service.metrics.resumed = lambda: begun.append("")
    await shares.reading.turn(KEY.account)
    reading = asyncio.create_task(connection._read())
    await asyncio.sleep(0)
    connection._end()
    await reading
    assert (socket.read, begun) == (1, [])


async def test_it_is_read_as_its_answers_are() -> None:
    """A client that does not read what is answered is not read either, until it does."""
    socket = Roomy(arrived=5000)
    socket.is_read.clear()
    connection = connected(socket)
    work = [asyncio.create_task(connection._send()), asyncio.create_task(connection._read())]
    for _ in range(5000):
        await asyncio.sleep(0)
    assert socket.read < 1100
    socket.is_read.set()
    await work[1]
    await until(lambda: socket.sent == 5000)
    work[0].cancel()
    await asyncio.wait(work)


async def test_one_that_is_closed_waits_for_no_room() -> None:
    """Reading ends, though nothing that was answered is read."""
    socket = Roomy(arrived=5000)
    connection = connected(socket)
    reading = asyncio.create_task(connection._read())
    for _ in range(5000):
        await asyncio.sleep(0)
    assert not reading.done()
    connection._end()
    await reading


async def test_one_that_cannot_send_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong with a message: its client comes back, where it would wait for the next one for ever."""
    socket = Roomy()
    connection = connected(socket)
    connection.put(RemoteMessage("gone", "run-1", {"state": float("nan")}))
    await asyncio.wait_for(connection._send(), PATIENCE)
    await until(lambda: socket.closed)
    assert "run-1" in caplog.text
