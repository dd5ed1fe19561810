"""How many containers run at once, and the queue of those that wait for one to end."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Any

from toolexec.errors import SandboxUnavailableError

__all__ = ["Room"]


class Room:
    """Lets in *size* at once; who finds none waits, first come, first served. Belongs to one event loop."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken: int = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    async def enter(self, ends: float, backend: Any) -> None:
        """Wait for room until *ends* (of `monotonic()`); who is let in must `leave`.

        Raises SandboxUnavailableError, which is worth a retry, when there was none until then.
        """
        if self.taken < self.size and not self._queue:
            self.taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(ends - monotonic()):
                await turn
        except TimeoutError:
            self._give_up(turn)
            raise SandboxUnavailableError(
                f"{self.size} programs run in {backend.kind} already, and none ended in time; "
                "try again later, or raise max_running or the time limit",
                backend=backend.kind,
                retryable=True,
                details={"max_running": self.size},
            ) from None
        except asyncio.CancelledError:
            self._give_up(turn)
            raise

    def leave(self) -> None:
        """Free one place; the run that has waited longest is let in."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():  # let in at the very moment
            self.leave()
        elif turn in self._queue:
            self._queue.remove(turn)
