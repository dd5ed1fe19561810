"""Take samples inside a measured program. Standard library only: the peers' programs use it too."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from statistics import median
from time import perf_counter
from typing import Any

__all__ = ["Meter", "run_program"]


class Meter:
    """Collects samples by name: seconds for one call, unless the name says something else.

    A sample is the mean of a batch of calls that takes some milliseconds. The garbage collector stays on, as it is in
    an application, and collects once before each row. The loop around the calls is part of the figure (some 30 ns).
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
        self.record(name, *(batch(count) / count / per for _ in range(self._batches)))

    async def awaited(self, name: str, function: Callable[..., Awaitable[Any]], *args: Any, per: int = 1) -> None:
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
        self.record(name, *[await batch(count) / count / per for _ in range(self._batches)])


def _larger(count: int, taken: float, wanted: float) -> int:
    """How many calls to try next: enough, as far as one can tell, but at most ten times as many."""
    return max(count + 1, min(count * 10, int(count * wanted / max(taken, 1e-9) * 1.1)))


def run_program(main: Callable[[Meter], Coroutine[Any, Any, None]]) -> None:
    """Run a measured program and print what it measured as JSON, on the last line."""
    meter = Meter(quick="--quick" in sys.argv[1:])
    asyncio.run(main(meter))
    print(json.dumps({"samples": meter.samples, "facts": meter.facts}), flush=True)
