"""A tenant whose runs are begun and cut off, over and over, and the others of its server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMessage, WSMsgType
from packages.remote.tests.servers import KEY, OTHER
from tests.loop_clock import LoopClock, loop_clock
from tests.waiting import until

from toolexec.errors import SandboxFailedError, ToolExecError
from toolexec.remote import GIVES_WAY, RuntimeServerSettings, TenantQuota
from toolexec.runtime import Runtime
from toolexec.sandbox import ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.messages import Link, encode_remote
from toolexec_remote.server.duplex_connection import DuplexConnection, DuplexShared
from toolexec_remote.server.duplex_run import DuplexRun, DuplexRuns
from toolexec_remote.server.metrics import RemoteMetrics
from toolexec_remote.server.rounds import Rounds
from toolexec_remote.server.runs import RunService
from toolexec_remote.signature import KeyRing, ReplayCache, Target, sign, timestamp
from toolexec_remote.wire import encode_error, encode_request

SECOND = 1.0
COST = 0.001
"""Seconds that the event loop has to do with each message, as the clocks of the tests say."""


class Bringing:
    """A socket that brings requests to run programs, *number* of them, each of which costs the loop some time."""

    def __init__(self, clock: LoopClock, used: list[float], incarnation: str, name: str, number: int) -> None:
        self.read = 0
        self._clock = clock
        self._used = used
        self._incarnation = incarnation
        self._name = name
        self._number = number

    def __aiter__(self) -> Bringing:
        return self

    async def __anext__(self) -> WSMessage:
        """Return the next one, without a pause."""
        if self.read == self._number:
            raise StopAsyncIteration
        self.read += 1
        self._clock.advance(COST)
        self._used[0] += COST
        run = f"{self._name}-{self.read}"
        body, stamp = encode_request(ExecuteRequest(code="wait"), run=run), timestamp()
        target = Target(self._incarnation, "execute", "", run)
        fields = {"timestamp": stamp, "signature": sign(OTHER.signing_secret, stamp, target, body), "go": True}
        return WSMessage(WSMsgType.BINARY, encode_remote(Link(run).send("execute", fields, body)), None)

    async def send_bytes(self, data: bytes) -> None:
        """Send it."""

    async def close(self, *, code: int) -> None:
        """Close it."""


class Server:
    """What a server has for two tenants, whose clocks a test sets. Its programs wait until they are stopped."""

    def __init__(self, service: RunService) -> None:
        self.service = service
        self.gave_way: list[bool] = []
        """Of each program that has begun, whether it leaves the cores to others."""
        self.runs = DuplexRuns(service)
        ring: Any = KeyRing([KEY, OTHER])
        nothing: Any = None
        self._shared = DuplexShared(
            service=service, ring=ring, replays=ReplayCache(), capacity=nothing, which={}, runs=self.runs
        )

    async def begin_and_cut(self, socket: Any, is_far: Callable[[], object] = lambda: True) -> None:
        """Have a connection of one tenant bring what it does, and lose it once that *is_far* enough."""
        connection = DuplexConnection(self._shared, socket, OTHER, "/v1/execute/connect")
        connection._is_greeted = True
        try:
            await connection._read()
            await until(is_far, 0)
        finally:
            connection._end()
            self.runs.leave(connection)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async def wait(_: ExecuteRequest) -> None:
        made.gave_way.append(GIVES_WAY.get())
        await asyncio.Event().wait()

    settings = RuntimeServerSettings(
        keys=[KEY, OTHER],
        quota=TenantQuota(messages=0),
        max_running=2,
        max_queued=500,
        reconnect=0.001,
        drain_grace=0.0,
    )
    async with Runtime([ScriptedSandbox(default=wait)]) as runtime:
        made = Server(RunService(runtime, settings, RemoteMetrics(), tmp_path / "state"))
        yield made
        await made.runs.aclose()
        await made.service.drain()
        made.service.close()


async def test_runs_that_are_begun_and_cut_leave_the_loop_to_others(server: Server) -> None:
    """A tenant that hangs up on its runs over and over has a fifth of the loop beside another one, though each run is
    accepted: that many begin at once makes up for nothing."""
    with loop_clock() as clock:
        used = [0.0]
        service = server.service
        service.shares.reading = Rounds(lambda: True, clock, lambda: used[0])
        sockets = [Bringing(clock, used, service.incarnation.id, f"r{number}", 100) for number in range(20)]

        async def hang_up() -> None:
            for socket in sockets:
                await server.begin_and_cut(socket)
                await until(lambda: not [*server.runs], 0)

        task, began, last = asyncio.create_task(hang_up()), clock(), clock()
        while clock() - began < SECOND and not task.done():
            before = used[0]
            await asyncio.sleep(0)
            if used[0] == before:  # the loop has nothing to do
                clock.advance(0.0001)
            if clock() - last > 0.01:
                last = clock()
                await service.shares.reading.turn(KEY.account)
        task.cancel()
        await asyncio.wait([task])
    begun = sum(socket.read for socket in sockets[1:])  # of the first ones nothing is known before they are cut
    assert 100 < begun < 200


async def test_no_run_gets_a_place_only_to_be_given_up(server: Server) -> None:
    """Those of a lost client that wait are given up before those that run, whose places they would have next."""
    service = server.service
    socket = Bringing(LoopClock(0.0), [0.0], service.incarnation.id, "r", 50)
    await server.begin_and_cut(socket)
    await until(lambda: not [*server.runs])
    placed = service.metrics.registry.get_sample_value("toolexec_remote_queue_seconds_count")
    assert (socket.read, placed) == (50, service.settings.max_running)


async def test_the_first_to_be_given_up_are_those_that_run(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for the places that these have, and they compute; those behind them in the queue have nothing."""
    given_up: list[str] = []
    drop = server.runs.drop

    def note(run: DuplexRun) -> None:
        given_up.append(run.link.run)
        drop(run)

    monkeypatch.setattr(server.runs, "drop", note)
    socket = Bringing(LoopClock(0.0), [0.0], server.service.incarnation.id, "r", 50)
    await server.begin_and_cut(socket, lambda: len(server.gave_way) == server.service.settings.max_running)
    await until(lambda: not [*server.runs])
    assert (given_up[:2], len(given_up)) == (["r-1", "r-2"], 50)


async def test_nothing_is_encoded_for_who_has_hung_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a run was refused is said to those who are there: for others it would be a third of what its end costs."""
    said: list[ToolExecError] = []

    def encoded(error: ToolExecError) -> bytes:
        said.append(error)
        return encode_error(error)

    monkeypatch.setattr("toolexec_remote.server.remote_run.encode_error", encoded)
    socket = Bringing(LoopClock(0.0), [0.0], server.service.incarnation.id, "r", 50)
    await server.begin_and_cut(socket)
    await until(lambda: not server.service.active())
    assert said == []


async def test_runs_of_who_is_away_take_no_place_from_those_who_are_there(server: Server) -> None:
    """A place that is free goes to the next one whose client is there; those that wait have theirs when it is back."""
    service = server.service
    away = Bringing(LoopClock(0.0), [0.0], service.incarnation.id, "away", 20)
    service.settings = replace(service.settings, reconnect=3600.0)
    await server.begin_and_cut(away, lambda: len(server.gave_way) == 2)
    for run in server.service.active()[:2]:
        run.stop(SandboxFailedError("it is over"))
    await until(lambda: len(service.active()) == 18)
    assert (service.admission.running, service.admission.queued) == (0, 18)
    here = Bringing(LoopClock(0.0), [0.0], service.incarnation.id, "here", 1)
    await server.begin_and_cut(here, lambda: len(server.gave_way) == 3)
    assert service.admission.running == 1


async def test_programs_of_who_hangs_up_leave_the_cores_to_others(server: Server) -> None:
    """From the first one on, once others were cut off: as each computes for some time before it is slow, new ones over
    and over would compute like those of others."""
    service = server.service
    service.admission.enter(KEY.account).leave()
    found: list[bool] = []
    for name, number in (("a", 1), ("b", 50), ("c", 1)):
        server.gave_way.clear()
        socket = Bringing(LoopClock(0.0), [0.0], service.incarnation.id, name, number)
        await server.begin_and_cut(socket, lambda: server.gave_way)
        found.append(server.gave_way[0])
        await until(lambda: not service.active())
    assert (found[0], found[-1]) == (False, True)
