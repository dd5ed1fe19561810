"""Turns on the event loop: who reads what a guest sends leaves time to the rest of the loop."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

_SECONDS: Final = 0.01
_STARTED: Final = 16
"""How many requests may start in one turn. Each runs in a task, and the loop runs all tasks that are ready before it
looks at its timers: with a thousand searches in one turn a deadline passed a second late."""


class Turns:
    """Counts what one reader of messages does without waiting for anything, and ends its turn when that is enough.

    A read need not wait while there is something to read: a guest that writes faster than it is listened to would hold
    the loop, and with it its own deadline.
    """

    __slots__ = ("_ends", "_started")

    def __init__(self) -> None:
        self._begin()

    async def read(self) -> None:
        """Record that a message was read; waits for the next turn if this one has taken 10 ms."""
        if monotonic() > self._ends:
            await self._rest()

    async def start(self) -> None:
        """Record that a request was started in a task; waits for the next turn if there were 16 in this one."""
        self._started += 1
        if self._started >= _STARTED:
            await self._rest()

    async def _rest(self) -> None:
        await asyncio.sleep(0)
        self._begin()

    def _begin(self) -> None:
        self._ends = monotonic() + _SECONDS
        self._started = 0
