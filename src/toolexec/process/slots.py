"""So many at a time: places that go to those who wait for one until a deadline, first come, first served."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from typing import TypeAlias

_Waiting: TypeAlias = "tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]"


class Slots:
    """*size* places, and those who wait for one; safe to use from several threads and loops.

    Who was given a place, by `take` or by `wait`, must `leave` it.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: int = size
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """How many places are taken."""
        return self.size - self.free

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waiting)

    def take(self) -> bool:
        """Take a free place; return whether there was one that no earlier caller waits for."""
        with self._lock:
            if self.free < 1:
                return False
            self.free -= 1
            return True

    def leave(self) -> None:
        """Give a place to who has waited longest, or make it free. From any thread."""
        with self._lock:
            if not self._waiting:
                self.free += 1
                return
            loop, turn = self._waiting.popleft()
        try:
            loop.call_soon_threadsafe(self._hand_over, turn)
        except RuntimeError:  # its loop is closed
            self.leave()

    def _hand_over(self, turn: asyncio.Future[None]) -> None:
        if turn.done():  # who waited was cancelled, or is late
            self.leave()
        else:
            turn.set_result(None)

    async def wait(self, seconds: float, most: float = math.inf) -> bool:
        """Wait for a place so long, unless *most* wait already; return whether the caller has one."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        place = (loop, turn)
        with self._lock:
            if self.free:  # left a moment ago
                self.free -= 1
                return True
            if len(self._waiting) >= most:
                return False
            self._waiting.append(place)
        try:
            await asyncio.wait([turn], timeout=seconds)
        except BaseException:
            self._give_up(place)
            raise
        if not turn.done():
            self._give_up(place)
            return False
        return True

    def _give_up(self, place: _Waiting) -> None:
        """Wait no more; a place that was handed over already goes to the next one."""
        _, turn = place
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
        if turn.done():
            self.leave()
        else:
            turn.cancel()
