"""Endpoints that join, leave and drain while programs run: who gets the next one, and what becomes of the others."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packages.remote.tests.here import remote_to, serving, use_names
from packages.remote.tests.servers import KEY
from packages.remote.tests.simulated import ADDRESSES, NAME, Disk, Fleet, Gateway, Server, World, at, simulated_time
from packages.remote.tests.tools import Workshop
from tests.tiers import missing
from tests.waiting import PATIENCE, until

from toolexec.remote import RemoteSettings
from toolexec.sandbox import CodeResult, ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.backend import RemoteBackend
from toolexec_remote.choice import less_busy


class Steady(Server):
    """A server without trouble: each program takes as many seconds as its code says, and gives the endpoint."""

    endpoint = ""

    async def _program(self, request: ExecuteRequest) -> Any:
        self._world.begun[self.endpoint] += 1
        await asyncio.sleep(float(request.code))
        return self.endpoint


class Steadies(World):
    """A network that loses nothing, and a caller that looks the servers up by their name."""

    def __init__(self) -> None:
        super().__init__(1)
        self.faults.lost = self.faults.doubled = self.faults.reordered = self.faults.delay = 0.0
        settings = RemoteSettings(
            endpoints=(NAME,), key_id=KEY.id, token=KEY.token, signing_key=KEY.secret, plain_http=True, reconnect=2.5
        )
        self.backend = RemoteBackend(settings)
        self.backend._endpoints = Fleet(self, settings)

    async def look_up(self, _: str, __: int) -> list[str]:
        return sorted(self.listed)

    def start(self, address: str) -> Steady:
        """Start a server at an address, which is listed from now on."""
        server = Steady(self, Disk(), max_running=8)
        server.endpoint = at(address)
        self.servers[at(address)] = server
        self._all.append(server)
        self.listed.add(address)
        return server

    def run_one(self, seconds: float) -> asyncio.Task[CodeResult]:
        """Run a program that takes so many seconds."""
        gateway: Any = Gateway(self)
        request = ExecuteRequest(
            code=str(seconds), gateway=gateway, language="python", profile="standard", timeout=120.0
        )
        return asyncio.create_task(self.backend.execute(request))

    async def places(self, count: int) -> Counter[str]:
        """Run so many programs at once; return where they ran."""
        results = await asyncio.gather(*(self.run_one(0.5) for _ in range(count)))
        return Counter(str(result.raise_for_error().value) for result in results)

    async def end(self) -> None:
        await self.backend.aclose()
        for server in self._all:
            await server.kill()


def happen(story: Coroutine[Any, Any, None]) -> None:
    with simulated_time() as loop:
        loop.run_until_complete(story)


def test_who_joins_gets_work_and_who_leaves_gets_none() -> None:
    """Both within two seconds; a program that runs on one that leaves ends there, and then its connection is closed."""

    async def story() -> None:
        world = Steadies()
        first, second, third = ADDRESSES
        world.start(first)
        world.start(second)
        assert (await world.places(10)).keys() == {at(first), at(second)}
        held = [world.run_one(30.0) for _ in range(4)]
        await asyncio.sleep(0.5)
        world.listed.discard(first)
        world.start(third)
        await asyncio.sleep(1.5)
        shares = await world.places(10)
        assert shares.keys() == {at(second), at(third)}
        assert min(shares.values()) >= 3
        assert {str((await each).raise_for_error().value) for each in held} == {at(first), at(second)}
        assert len(world.backend.connections) == 3
        await asyncio.sleep(12)
        assert [each.endpoint for each in world.backend.connections] == [at(second), at(third)]
        await world.end()

    happen(story())


def test_answers_that_come_and_go_cut_nothing() -> None:
    """A connection outlives a place that was lost for seconds, and is the same one afterwards."""

    async def story() -> None:
        world = Steadies()
        first, second, _ = ADDRESSES
        world.start(first)
        world.start(second)
        await world.places(4)
        before, lines = {*world.backend.connections}, len(world.lines)
        held = [world.run_one(20.0) for _ in range(4)]
        for _ in range(10):
            await asyncio.sleep(1.5)
            world.listed.symmetric_difference_update({first})
            world.listed.add(second)
        assert all([(await each).ok for each in held])
        assert {*world.backend.connections} == before
        assert len(world.lines) == lines
        await world.end()

    happen(story())


def test_who_drains_gets_nothing_new() -> None:
    """Though it is still listed; what runs there ends."""

    async def story() -> None:
        world = Steadies()
        first, second, _ = ADDRESSES
        going = world.start(first)
        world.start(second)
        await world.places(4)
        held = [world.run_one(0.9) for _ in range(4)]
        await asyncio.sleep(0.3)
        draining = asyncio.create_task(going.drain())
        await asyncio.sleep(0.2)
        assert (await world.places(8)).keys() == {at(second)}
        assert all([(await each).ok for each in held])
        await draining
        await world.end()

    happen(story())


def test_two_addresses_of_one_process_share_a_connection() -> None:
    """The process stays usable by the one that is left."""

    async def story() -> None:
        world = Steadies()
        first, second, _ = ADDRESSES
        server = world.start(first)
        await world.places(1)
        world.servers[at(second)] = server
        world.listed.add(second)
        await asyncio.sleep(3)
        assert [each.up for each in world.backend.connections] == [True, False]
        assert world.backend.connections[1].twin == at(first)
        world.listed.discard(first)
        await asyncio.sleep(15)
        assert await world.places(3) == {at(first): 3}
        assert len(world.backend.connections) == 2
        await world.end()

    happen(story())


def test_a_program_waits_for_the_first_that_joins() -> None:
    """While the only one that is listed does not answer, and with a resolver that has nothing yet."""

    async def story() -> None:
        world = Steadies()
        first, second, _ = ADDRESSES
        running = world.run_one(0.0)
        await asyncio.sleep(4)
        world.listed.add(first)  # nothing is there
        await asyncio.sleep(4)
        began = asyncio.get_running_loop().time()
        world.start(second)
        assert (await running).raise_for_error().value == at(second)
        assert asyncio.get_running_loop().time() - began < 2
        await world.end()

    happen(story())


class Known:
    """What is known of an endpoint."""

    def __init__(self, load: float) -> None:
        self.load = load


def test_old_news_does_not_lead_all_to_the_same() -> None:
    """One of two by chance is taken, the less busy one: never the busiest, and no more than a few to each."""
    random.seed(3)
    known: Any = [Known(load / 10) for load in range(1, 9)]
    drawn = Counter(less_busy(known).load for _ in range(400))
    assert len(drawn) == 7
    assert max(drawn.values()) < 150
    assert less_busy(known[:1]) is known[0]
    assert {less_busy(known[:2]).load for _ in range(50)} == {0.1}
    equal: Any = [Known(0.0) for _ in range(4)]
    assert len({id(less_busy(equal)) for _ in range(100)}) == 4


async def test_replicas_of_a_name_share_the_load_and_come_and_go(tmp_path: Path) -> None:
    """Real servers at several addresses of this machine: one leaves under load, another joins, and each program runs
    once."""
    if sys.platform != "linux":
        missing("this machine answers at 127.0.0.1 alone", "run the tests on Linux")
    begun: Counter[str] = Counter()
    gate = asyncio.Event()
    gate.set()

    def sandbox(number: int) -> ScriptedSandbox:
        async def program(request: ExecuteRequest) -> Any:
            begun[request.code] += 1
            await asyncio.sleep(0.01)
            await gate.wait()
            return number

        return ScriptedSandbox(default=program)

    shop = Workshop()
    listed = ["127.0.0.2", "127.0.0.3"]

    async def look_up(_: str, __: int) -> list[str]:
        return [*listed]

    async with AsyncExitStack() as stack:
        port = 0
        for number in (2, 3, 4):
            served = serving(
                tmp_path / str(number),
                sandbox(number),
                host=f"127.0.0.{number}",
                port=port,
                max_running=8,
                behind_proxy=True,
            )
            port = urlsplit(await stack.enter_async_context(served)).port or 0
        name = f"dns+http://runtimes.localhost:{port}/v1/execute"
        backend = await stack.enter_async_context(remote_to(name, discovery_interval=0.05))
        use_names(backend, look_up)

        async def run(prefix: str, count: int) -> Counter[Any]:
            runs = (backend.execute(shop.request(f"{prefix}-{n}", timeout=PATIENCE)) for n in range(count))
            return Counter(result.raise_for_error().value for result in await asyncio.gather(*runs))

        await backend.check()
        await until(lambda: len(backend.connections) == 2 and all(each.up for each in backend.connections))
        shares = await run("first", 40)
        assert min(shares[2], shares[3]) >= 10, shares
        gate.clear()
        held = asyncio.create_task(run("held", 12))
        await until(lambda: sum(begun[f"held-{n}"] for n in range(12)) == 12)
        listed[:] = ["127.0.0.3", "127.0.0.4"]
        await until(lambda: [each.up for each in backend.connections] == [True] * 3)
        gate.set()
        later = await run("later", 40)
        assert later[2] == 0
        assert min(later[3], later[4]) >= 5, later
        assert (await held)[2] > 0
    assert {*begun.values()} == {1}
    assert len(begun) == 92
