"""Take samples inside a measured program. Standard library only: the peers' programs use it too."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

_PAUSE = 0.05
_AT_ONCE = 64
_TICK = 1 / os.sysconf("SC_CLK_TCK")


class Meter:
    """Collects samples by name: seconds for one call, unless the name says something else.

    A sample is the mean of a batch of calls that takes some milliseconds. The garbage collector stays on, as it is in
    an application, and collects once before each row. The loop around the calls is part of the figure (some 30 ns).

    Beside `name`, where calls follow each other at once, there is `name@cpu`, the processor time of all threads; with
    *ways* also `name@paused`, a single call after a pause, and `name@at_once`, a call of many that run together.
    """

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.samples: dict[str, list[float]] = {}
        self.facts: dict[str, Any] = {}
        self._batches = 5 if quick else 30
        self._batch_seconds = 0.002 if quick else 0.01

    def record(self, name: str, *values: float) -> None:
        """Keep values that were measured elsewhere."""
        self.samples.setdefault(name, []).extend(values)

    def median(self, name: str) -> float:
        """The median of what was recorded under *name* so far."""
        return median(self.samples[name])

    def sync(self, name: str, function: Callable[..., Any], *args: Any, per: int = 1) -> None:
        """Time `function(*args)`, which does *per* units of work."""

        def batch(count: int) -> float:
            started = perf_counter()
            for _ in range(count):
                function(*args)
            return perf_counter() - started

        count = 1
        while (taken := batch(count)) < self._batch_seconds:
            count = _larger(count, taken, self._batch_seconds)
        gc.collect()
        before = process_time()
        self.record(name, *(batch(count) / count / per for _ in range(self._batches)))
        self.record(f"{name}@cpu", (process_time() - before) / count / per / self._batches)

    async def awaited(
        self, name: str, function: Callable[..., Awaitable[Any]], *args: Any, per: int = 1, ways: bool = False
    ) -> None:
        """Time `await function(*args)`, which does *per* units of work."""

        async def batch(count: int) -> float:
            started = perf_counter()
            for _ in range(count):
                await function(*args)
            return perf_counter() - started

        count = 1
        while (taken := await batch(count)) < self._batch_seconds:
            count = _larger(count, taken, self._batch_seconds)
        gc.collect()
        before = process_time()
        self.record(name, *[await batch(count) / count / per for _ in range(self._batches)])
        self.record(f"{name}@cpu", (process_time() - before) / count / per / self._batches)
        if ways:
            await self._other_ways(name, lambda: function(*args), self._batches, max(_AT_ONCE, count), per)

    async def runs(self, name: str, function: Callable[[], Awaitable[Any]], times: int = 60) -> None:
        """Time `await function()`, which takes a millisecond or more, in all three ways, each run by itself."""
        times = 5 if self.quick else times
        await function()
        gc.collect()
        before = cpu_seconds()
        for _ in range(times):
            self.record(name, await _timed(function))
        self.record(f"{name}@cpu", (cpu_seconds() - before) / times)
        await self._other_ways(name, function, times, _AT_ONCE)

    async def _other_ways(
        self, name: str, function: Callable[[], Awaitable[Any]], times: int, together: int, per: int = 1
    ) -> None:
        for _ in range(times):
            await asyncio.sleep(_PAUSE)
            self.record(f"{name}@paused", await _timed(function) / per)
        for _ in range(1 if self.quick else 3):
            started = perf_counter()
            await asyncio.gather(*(function() for _ in range(together)))
            self.record(f"{name}@at_once", (perf_counter() - started) / together / per)


async def _timed(function: Callable[[], Awaitable[Any]]) -> float:
    started = perf_counter()
    await function()
    return perf_counter() - started


def cpu_seconds() -> float:
    """The processor time of this process and its children, those that live (to a hundredth of a second) and those that
    have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    alive = 0.0
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in path.read_text().split():
            with suppress(OSError):  # it has just ended
                alive += cpu_seconds_of(int(pid))
    return process_time() + ended.ru_utime + ended.ru_stime + alive


def cpu_seconds_of(pid: int) -> float:
    """The processor time of another process and of its children that have ended, to a hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * _TICK


def _larger(count: int, taken: float, wanted: float) -> int:
    """How many calls to try next: enough, as far as one can tell, but at most ten times as many."""
    return max(count + 1, min(count * 10, int(count * wanted / max(taken, 1e-9) * 1.1)))


def run_program(main: Callable[[Meter], Coroutine[Any, Any, None]]) -> None:
    """Run a measured program and print what it measured as JSON, on the last line."""
    meter = Meter(quick="--quick" in sys.argv[1:])
    asyncio.run(main(meter))
    print(json.dumps({"samples": meter.samples, "facts": meter.facts}), flush=True)
