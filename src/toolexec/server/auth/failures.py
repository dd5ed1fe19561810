"""How many wrong credentials one address may try."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_MINUTE = 60.0
_REMEMBERED = 4096


class TooManyFailuresError(Exception):
    """An address has sent too many wrong credentials, and should send no more for `wait` seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"too many wrong keys or tokens; wait {wait:.0f} s")
        self.wait = wait


class Failures:
    """Counts wrong credentials by address.

    An address that has sent *most* of them within a minute must wait, for wrong ones only: a right one is always let
    in, so that its owner cannot be locked out, from whatever address. *clock* gives seconds, from any start.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._peers: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def failed(self, peer: str) -> float:
        """*peer* sent something wrong; gives for how many seconds it should send no more, 0 when it may go on."""
        now = self._clock()
        began, count = self._peers.pop(peer, (now, 0))
        if began + _MINUTE <= now:
            began, count = now, 0
        self._peers[peer] = (began, count + 1)
        if len(self._peers) > _REMEMBERED:
            self._peers.popitem(last=False)
        return began + _MINUTE - now if count >= self._most else 0.0
