"""Rounds of the event loop, in each of which a tenant has little done: however much it sends, and over how many
connections, what the others have to do comes next."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

__all__ = ["Rounds"]

_ALONE: Final = 4
"""How many messages a tenant has done in a round where there is no other tenant."""


class Rounds:
    """Has one message of each tenant done in a round, and some where *is_shared* says that there is one tenant only.

    A round is some *passes* of the event loop: all else that is ready is done so often in it. A run takes a dozen of
    them, and would wait in each for a message of a tenant that sends very many. Connections of a tenant take turns.
    Nothing waits where a tenant has sent no more than that.
    """

    def __init__(self, is_shared: Callable[[], bool], passes: int = 1) -> None:
        self._is_shared = is_shared
        self._passes = passes
        self._left = 0  # passes of this round
        self._done: Counter[str] = Counter()  # in this round
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def turn(self, account: str) -> None:
        """Wait until the next message of a tenant may be done."""
        waiting = self._waiting.get(account)
        if waiting is None and self._done[account] < self._most:
            self._count(account)
            return
        if waiting is None:
            waiting = self._waiting[account] = deque()
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        await turn

    @property
    def _most(self) -> int:
        return 1 if self._is_shared() else _ALONE

    def _count(self, account: str) -> None:
        self._done[account] += 1
        if not self._left:
            self._left = self._passes if self._is_shared() else 1
            asyncio.get_running_loop().call_soon(self._pass)

    def _pass(self) -> None:
        """Begin the next round after the last pass of this one, with those that wait."""
        self._left -= 1
        if self._left:
            asyncio.get_running_loop().call_soon(self._pass)
            return
        self._done.clear()
        most = self._most
        for account, waiting in [*self._waiting.items()]:
            while waiting and self._done[account] < most:
                turn = waiting.popleft()
                if not turn.done():  # else it was given up
                    turn.set_result(None)
                    self._count(account)
            if not waiting:
                del self._waiting[account]
