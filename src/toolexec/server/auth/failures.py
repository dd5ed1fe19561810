"""How many wrong credentials somebody may try."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Failures"]

_MINUTE = 60.0
_REMEMBERED = 4096


class Failures:
    """Counts wrong credentials by address.

    Who has sent *most* of them within a minute must wait, also with new ones. A credential that was good before is
    not held up: others behind the same proxy cannot lock its owner out. *clock* gives seconds, from any start.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._peers: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def wait(self, peer: str, credential: str) -> float:
        """For how many seconds nothing that *peer* sends is looked at; 0 when it may go on."""
        began, count = self._peers.get(peer, (0.0, 0))
        left = began + _MINUTE - self._clock()
        if count < self._most or left <= 0 or _digest(credential) in self._good:
            return 0.0
        return left

    def failed(self, peer: str) -> None:
        """*peer* sent something wrong."""
        now = self._clock()
        began, count = self._peers.pop(peer, (now, 0))
        self._peers[peer] = (began, count + 1) if began + _MINUTE > now else (now, 1)
        if len(self._peers) > _REMEMBERED:
            self._peers.popitem(last=False)

    def succeeded(self, credential: str) -> None:
        """This credential was accepted."""
        digest = _digest(credential)
        self._good[digest] = None
        self._good.move_to_end(digest)
        if len(self._good) > _REMEMBERED:
            self._good.popitem(last=False)


def _digest(credential: str) -> bytes:
    return hashlib.blake2b(credential.encode("utf-8", "surrogateescape"), digest_size=16).digest()
