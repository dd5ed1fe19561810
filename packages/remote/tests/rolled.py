"""Three servers that are rolled one by one under load: what became of the runs, and how long they took."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import perf_counter

from packages.remote.tests.processes import RemoteServer, settings_for
from packages.remote.tests.tools import Workshop

from toolexec.sandbox import CodeResult
from toolexec_remote.backend import RemoteBackend


@dataclass(frozen=True, slots=True)
class Times:
    """How many seconds runs took, the shortest first, and which began when, in seconds from the first one."""

    took: list[float]
    slowest: list[tuple[float, float]]

    def at(self, share: float) -> float:
        """Return the milliseconds that this share of them did not exceed."""
        return self.took[min(len(self.took) - 1, int(len(self.took) * share))] * 1000


@dataclass(slots=True)
class Roll:
    """What was seen: the times before and while servers were rolled, when each was ended and there again, the errors of
    runs, by their number, and the numbers of those whose call was not made once."""

    quiet: Times = field(default_factory=lambda: Times([], []))
    rolled: Times = field(default_factory=lambda: Times([], []))
    drains: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    lost: dict[int, object] = field(default_factory=dict[int, object])
    doubled: list[int] = field(default_factory=list[int])


class _Load:
    """Runs that begin at a steady rate, whatever becomes of those before."""

    def __init__(self, backend: RemoteBackend, shop: Workshop, kind: str, rate: int) -> None:
        self.results: dict[int, CodeResult] = {}
        self._times: list[tuple[float, float]] = []
        self._backend, self._shop, self._kind, self._rate = backend, shop, kind, rate
        self._begun = 0

    async def keep_up(self, seconds: float, also: asyncio.Task[None] | None = None) -> Times:
        """Begin runs for so long, and until *also* is done; return how long they took, once all are over."""
        self._times = []
        began, tasks = perf_counter(), list[asyncio.Task[None]]()
        for number in count():
            if number >= self._rate * seconds and (also is None or also.done()):
                break
            await asyncio.sleep(max(0.0, began + number / self._rate - perf_counter()))
            self._begun += 1
            tasks.append(asyncio.create_task(self._one(self._begun, began)))
        await asyncio.gather(*tasks)
        slowest = sorted(self._times, reverse=True)[:20]
        return Times(sorted(took for took, _ in self._times), [(at, took) for took, at in slowest])

    async def _one(self, number: int, first: float) -> None:
        began = perf_counter()
        code = str(number) if self._kind == "scripted" else f"return tools.shop.count(item={number})"
        self.results[number] = await self._backend.execute(self._shop.request(code, timeout=60.0))
        self._times.append((perf_counter() - began, began - first))


async def roll(directory: Path, kind: str, *, rate: int, quiet: float, seconds: float, number: int = 3) -> Roll:
    """Have *rate* runs a second on so many servers, for *quiet* seconds, and then while each of the servers is ended in
    peace, and another one started in its place, spread over *seconds*."""
    shop, found = Workshop(), Roll()
    with ExitStack() as stack:
        servers = [stack.enter_context(RemoteServer(directory, kind, max_running=64)) for _ in range(number)]
        backend = RemoteBackend(settings_for(*servers))
        try:
            load = _Load(backend, shop, kind, rate)
            await load.keep_up(1)  # connections, and the first of all
            found.quiet = await load.keep_up(quiet)
            rolling = asyncio.create_task(_replace(servers, seconds, found.drains))
            found.rolled = await load.keep_up(seconds, rolling)
            await rolling
        finally:
            await backend.aclose()
    for number, result in load.results.items():
        if result.error is not None or result.value != number:
            found.lost[number] = result.error or result.value
        elif shop.calls[number] != 1:
            found.doubled.append(number)
    return found


async def _replace(servers: list[RemoteServer], seconds: float, drains: list[tuple[float, float]]) -> None:
    first = perf_counter()
    for server in servers:
        await asyncio.sleep(seconds / len(servers) / 2)
        began = perf_counter()
        assert await asyncio.to_thread(server.drain) == 0
        await asyncio.to_thread(server.start)
        drains.append((began - first, perf_counter() - first))
