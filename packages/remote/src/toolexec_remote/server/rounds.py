"""Rounds of the event loop, in each of which a tenant has little done: however much it sends, and over how many
connections, what the others have to do comes next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

__all__ = ["Rounds"]

_ALONE: Final = 4
"""How many messages a tenant has done in a round where there is no other tenant."""
_SECONDS: Final = 0.001
"""After how long a tenant has a turn in any case: a round that no one waits for is not counted, which would cost a pass
of the event loop for each message."""


class Rounds:
    """Has one message of each tenant done in a round, and some where *is_shared* says that there is one tenant only.

    A round is a pass of the event loop: all else that is ready is done once in it, too. Connections of a tenant take
    turns. Nothing waits where a tenant has sent no more than that. *clock* is that of `time.monotonic`.
    """

    def __init__(self, is_shared: Callable[[], bool], clock: Callable[[], float] = monotonic) -> None:
        self._is_shared = is_shared
        self._clock = clock
        self._had: dict[str, tuple[float, int]] = {}  # since when, and how many: what each tenant had in this round
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def turn(self, account: str) -> None:
        """Wait until the next message of a tenant may be done."""
        waiting = self._waiting.get(account)
        if waiting is None and self._takes(account):
            return
        if waiting is None:
            if not self._waiting:
                asyncio.get_running_loop().call_soon(self._begin)
            waiting = self._waiting[account] = deque()
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        await turn

    def _takes(self, account: str) -> bool:
        """Take a turn of this round, if there is one; return whether there was."""
        now = self._clock()
        since, number = self._had.get(account, (now, 0))
        if now - since > _SECONDS:
            since, number = now, 0
        if number >= (1 if self._is_shared() else _ALONE):
            return False
        self._had[account] = since, number + 1
        return True

    def _begin(self) -> None:
        """Begin the next round, with those that wait."""
        self._had.clear()
        for account, waiting in [*self._waiting.items()]:
            while waiting and (waiting[0].done() or self._takes(account)):  # one that is done was given up
                turn = waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
            if not waiting:
                del self._waiting[account]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._begin)
