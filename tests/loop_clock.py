"""The clock of an event loop, set by hand: time limits pass when a test says so, however slow the machine is."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast


class LoopClock:
    """Time that stands still until it is advanced."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let so much time pass: timers that are due ring in the next turn of the loop."""
        self.now += seconds


@contextmanager
def loop_clock() -> Generator[LoopClock]:
    """Set the running loop's clock by hand until the block ends. Nothing in it may sleep for more than 0 seconds."""
    loop = cast("Any", asyncio.get_running_loop())
    clock = loop.time = LoopClock(loop.time())
    try:
        yield clock
    finally:
        del loop.time
