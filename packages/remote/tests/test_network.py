"""Remote runtimes behind a bad network: slow, lossy, and cut in the middle of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packages.remote.tests.network import Network
from packages.remote.tests.processes import RemoteServer
from packages.remote.tests.test_faults import WAITS, begun, client, refusal
from packages.remote.tests.tools import Workshop
from tests.waiting import PATIENCE, until

CALLS = """
import asyncio
found = await asyncio.gather(*(tools.shop.count(item=@NUMBER@ * 100 + n) for n in range(5)))
return [found, len(tools.shop.echo(text="x" * 200_000))]
"""


@pytest.fixture
def network() -> Iterator[Network]:
    """Make a second network namespace."""
    with Network() as network:
        yield network


def server_in(network: Network, directory: Path, **fields: Any) -> RemoteServer:
    """Return a server on the other side of the wire."""
    return RemoteServer(directory, host=network.there, command=network.inside(), behind_proxy=True, **fields)


async def test_runs_survive_delay_and_loss(network: Network, tmp_path: Path) -> None:
    """With 20 ms each way and 3 % of the packets lost, each run has its own result, and each call is made once."""
    shop = Workshop()
    with server_in(network, tmp_path) as server:
        network.delay, network.loss = 0.02, 0.03
        async with client(server, reconnect=PATIENCE) as backend:
            runs = (backend.execute(shop.request(CALLS.replace("@NUMBER@", str(n)))) for n in range(20))
            results = await asyncio.gather(*runs)
    for number, result in enumerate(results):
        assert result.raise_for_error().value == [[number * 100 + n for n in range(5)], 200_000]
    assert set(shop.calls.values()) == {1}
    assert len(shop.calls) == 100


async def test_a_partition_during_a_call_delays_it(network: Network, tmp_path: Path) -> None:
    """The call ends while the network is cut; its answer gets there afterwards, and it is made once."""
    shop = Workshop()
    with server_in(network, tmp_path) as server:
        async with client(server, silence=0.6, reconnect=PATIENCE) as backend:
            running = asyncio.ensure_future(backend.execute(shop.request(WAITS)))
            await begun(shop, running)
            network.is_cut = True
            await until(lambda: not backend.connections[0].up)
            shop.gate.set()
            await asyncio.sleep(0.3)
            assert not running.done()
            network.is_cut = False
            assert (await running).raise_for_error().value == 7
    assert shop.calls == {7: 1}


async def test_a_partition_that_lasts_fails_the_run_once(network: Network, tmp_path: Path) -> None:
    """The caller gives up and says that it may have run; the server stops the program, and has its room back."""
    shop = Workshop()
    with server_in(network, tmp_path, max_running=1, reconnect=1.0) as server:
        async with client(server, silence=0.6, reconnect=1.0) as backend:
            running = asyncio.ensure_future(backend.execute(shop.request(WAITS)))
            await begun(shop, running)
            network.is_cut = True
            refusal(await running)
            assert shop.stopped == 1
            network.is_cut = False
            result = await backend.execute(shop.request("return tools.shop.count(item=1)"))
            assert result.raise_for_error().value == 1
    assert shop.calls == {7: 1, 1: 1}


async def test_what_a_cut_network_holds_back_is_not_started_later(network: Network, tmp_path: Path) -> None:
    """A program whose start was on its way when the network was cut runs at most once, wherever that is."""
    shop = Workshop()
    with server_in(network, tmp_path) as far, RemoteServer(tmp_path) as near:
        async with client(far, near, silence=0.6, reconnect=2.0) as backend:
            await backend.check()
            await until(lambda: all(each.up for each in backend.connections))
            network.is_cut = True
            runs = (backend.execute(shop.request(f"return tools.shop.count(item={n})")) for n in range(20))
            waiting = asyncio.ensure_future(asyncio.gather(*runs))
            await until(lambda: not backend.connections[0].up)
            network.is_cut = False
            results = await waiting
            await asyncio.sleep(1.0)
    ended = {n: result.ok for n, result in enumerate(results)}
    assert all(shop.calls[n] == 1 for n, ok in ended.items() if ok)
    assert all(count == 1 for count in shop.calls.values())
    for result in results:
        if not result.ok:
            refusal(result)
