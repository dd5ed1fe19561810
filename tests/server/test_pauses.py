"""How long an event loop was held, measured by a clock that stands still unless the loop waits."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any

from toolexec.server.pauses import LONG_PAUSE, watch_loop

HOUR = 3600.0


class StillSelector(selectors.DefaultSelector):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
    """Waits for nothing: a clock is put forward instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events and timeout:
            self.now += timeout
        return events


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop with that clock; *hold* puts it forward in the middle of a turn."""

    def __init__(self) -> None:
        self.clock = StillSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now

    def hold(self, seconds: float) -> None:
        """Have the loop be held for so long."""
        self.clock.now += seconds


def run(work: Callable[[StillLoop], Coroutine[Any, Any, None]]) -> None:
    """Run *work* in such a loop."""
    loop = StillLoop()
    try:
        loop.run_until_complete(work(loop))
    finally:
        loop.close()


def test_an_idle_loop_is_left_alone() -> None:
    """Nothing ticks in an hour in which nothing happens, and each thing that happens is worth a few ticks."""

    async def work(loop: StillLoop) -> None:
        late: list[float] = []
        async with watch_loop(late.append):
            await asyncio.sleep(HOUR)
            assert len(late) < 100  # of 180,000
            before = len(late)
            for _ in range(10):
                await asyncio.sleep(HOUR)
            assert len(late) - before < 100

    run(work)


def test_a_pause_that_ends_a_rest_is_measured() -> None:
    """The first turn after a rest is seen, and the rest itself does not count as a pause."""

    async def work(loop: StillLoop) -> None:
        late: list[float] = []
        async with watch_loop(late.append):
            for number in range(5):
                await asyncio.sleep(HOUR)
                loop.hold(2 * LONG_PAUSE)
                await asyncio.sleep(HOUR)
                assert len([each for each in late if each > LONG_PAUSE]) == number + 1
        assert all(each < 1 for each in late)

    run(work)


def test_a_process_that_computes_is_watched_on() -> None:
    """A thread that keeps the interpreter from the loop is noticed although the loop itself has nothing to do."""

    async def work(loop: StillLoop) -> None:
        late: list[float] = []

        def observe(seconds: float) -> None:
            late.append(seconds)
            ends = time.thread_time() + 0.002
            while time.thread_time() < ends:
                pass

        async with watch_loop(observe):
            await asyncio.sleep(2.0)
        assert len(late) > 90

    run(work)


def test_watches_of_one_loop_leave_it_as_it_was() -> None:
    """Two servers of one loop each measure it, and end in any order."""

    async def work(loop: StillLoop) -> None:
        first: list[float] = []
        second: list[float] = []
        one, two = watch_loop(first.append), watch_loop(second.append)
        await one.__aenter__()
        await two.__aenter__()
        await asyncio.sleep(HOUR)
        await one.__aexit__(None, None, None)
        seen = len(first), len(second)
        loop.hold(2 * LONG_PAUSE)
        await asyncio.sleep(HOUR)
        assert (len(first), max(second) >= LONG_PAUSE) == (seen[0], True)
        await two.__aexit__(None, None, None)
        await asyncio.sleep(HOUR)
        assert len(second) < 200

    run(work)
