"""A thousand runs on two servers that are killed three times and cut off once: none is lost, and none runs twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

from packages.remote.tests.network import Network
from packages.remote.tests.processes import RemoteServer
from packages.remote.tests.test_faults import client, refusal
from packages.remote.tests.tools import Workshop
from tests.waiting import PATIENCE, until

from toolexec.sandbox import CodeResult
from toolexec_remote.backend import RemoteBackend

RUNS = 1000
AT_ONCE = 4


async def reached(share: float, done: dict[int, CodeResult]) -> None:
    """Wait until this share of the runs is done; fail when none of them ends for too long."""
    while (before := len(done)) <= share * RUNS:
        await until(lambda before=before: len(done) > before, 0.01)


async def spoil(near: RemoteServer, far: RemoteServer, network: Network, done: dict[int, CodeResult]) -> None:
    """Kill the servers and cut the network, spread over the runs."""
    for share, server in ((0.15, near), (0.4, far), (0.8, near)):
        if share == 0.8:
            await reached(0.6, done)
            network.is_cut = True
            await asyncio.sleep(1.5)
            network.is_cut = False
        await reached(share, done)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)


async def test_none_is_lost_and_none_runs_twice(tmp_path: Path) -> None:
    """Each run has one result: its value, or an error for those that ran on a server when it was killed. A program
    whose tool was not called is asked for again, as its caller may; in the end each was called exactly once."""
    shop = Workshop()
    done: dict[int, CodeResult] = {}
    with Network() as network:
        near = RemoteServer(tmp_path, max_running=AT_ONCE)
        far = RemoteServer(
            tmp_path,
            host=network.there,
            command=network.inside(),
            behind_proxy=True,
            max_running=AT_ONCE,
        )
        with near, far:
            async with client(near, far, silence=0.6, reconnect=PATIENCE) as backend:
                spoiling = asyncio.create_task(spoil(near, far, network, done))
                await asyncio.gather(*(run(backend, shop, done, number) for number in range(RUNS)))
                await spoiling
    assert len(done) == RUNS
    failed = {number: result for number, result in done.items() if not result.ok}
    assert len(failed) <= 3 * AT_ONCE
    for result in failed.values():
        refusal(result)
    assert all(count == 1 for count in shop.calls.values()), "a program ran twice"
    assert all(done[number].value == number for number in done.keys() - failed.keys())
    assert {number for number in range(RUNS) if not shop.calls[number]} <= failed.keys()


async def run(backend: RemoteBackend, shop: Workshop, done: dict[int, CodeResult], number: int) -> None:
    """Have one program run, and keep what came of it."""
    request = shop.request(f"return tools.shop.count(item={number})", timeout=PATIENCE * 10)
    done[number] = await backend.execute(request)
