"""Three servers that are rolled one by one under load: no run is lost, and none runs twice."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import pytest
from packages.remote.tests.processes import RemoteServer, settings_for
from packages.remote.tests.tools import Workshop

from toolexec.sandbox import CodeResult
from toolexec_remote.backend import RemoteBackend

pytestmark = [pytest.mark.soak]

RATE = int(os.environ.get("ROLLED_RATE", "200"))
SECONDS = int(os.environ.get("ROLLED_SECONDS", "60"))
KIND = os.environ.get("ROLLED_KIND", "scripted")


class Load:
    """Runs that begin at a steady rate, whatever becomes of those before."""

    def __init__(self, backend: RemoteBackend, shop: Workshop) -> None:
        self.results: dict[int, CodeResult] = {}
        self.took: list[float] = []
        self._backend = backend
        self._shop = shop
        self._begun = 0

    async def keep_up(self, seconds: float) -> list[float]:
        """Begin `RATE` runs a second for so long; return how long each took, once all are over."""
        self.took = []
        began, tasks = perf_counter(), list[asyncio.Task[None]]()
        for number in range(int(RATE * seconds)):
            await asyncio.sleep(max(0.0, began + number / RATE - perf_counter()))
            self._begun += 1
            tasks.append(asyncio.create_task(self._one(self._begun)))
        await asyncio.gather(*tasks)
        return sorted(self.took)

    async def _one(self, number: int) -> None:
        began = perf_counter()
        code = str(number) if KIND == "scripted" else f"return tools.shop.count(item={number})"
        self.results[number] = await self._backend.execute(self._shop.request(code, timeout=60.0))
        self.took.append(perf_counter() - began)


async def roll(servers: list[RemoteServer], seconds: float) -> None:
    """End each server in peace, and start another one in its place, spread over so many seconds."""
    for server in servers:
        await asyncio.sleep(seconds / len(servers) / 2)
        assert await asyncio.to_thread(server.drain) == 0
        await asyncio.to_thread(server.start)


async def test_a_fleet_is_rolled_under_load(tmp_path: Path) -> None:
    """Each run has its value, and each call was made once."""
    shop = Workshop()
    with ExitStack() as stack:
        servers = [stack.enter_context(RemoteServer(tmp_path, KIND, max_running=64)) for _ in range(3)]
        backend = RemoteBackend(settings_for(*servers))
        try:
            load = Load(backend, shop)
            await load.keep_up(1)  # connections, and the first of all
            quiet = await load.keep_up(SECONDS / 4)
            rolling = asyncio.create_task(roll(servers, SECONDS))
            rolled = await load.keep_up(SECONDS)
            await rolling
        finally:
            await backend.aclose()
    for name, took in (("quiet", quiet), ("rolled", rolled)):
        at = {share: f"{took[int(len(took) * share)] * 1000:.1f} ms" for share in (0.5, 0.99)}
        print(f"{name}: {len(took)} runs, p50 {at[0.5]}, p99 {at[0.99]}, longest {took[-1] * 1000:.1f} ms")
    wrong = {number: result for number, result in load.results.items() if result.error or result.value != number}
    assert not wrong, f"{len(wrong)} runs were lost: {[*wrong.items()][:3]}"
    assert all(shop.calls[number] == 1 for number in load.results), "a call was made twice"
