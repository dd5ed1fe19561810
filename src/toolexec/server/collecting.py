"""Keep the collection of garbage from holding a server: a full one looks at all objects, and no other thread runs."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

logger: logging.Logger = logging.getLogger(__name__)
OBJECTS: Final = 1000
"""After how many new objects garbage is collected: each two thousand of them take a millisecond, in which no thread
runs. Commands that end soon have it done after many more."""
SLOW: Final = 0.01
"""From how many seconds on a collection is too slow for the next one to look at the same objects."""


@contextmanager
def short_collections() -> Generator[None, None, None]:
    """Keep each collection in the block short, however much is in memory; servers of one process share that.

    What is there at the start, and what survives a slow collection, is not looked at again: tools are loaded once, and
    stay. What of it is dropped later is freed as always, unless it is part of a cycle; those wait until twice as much
    has survived, and all is looked at once more, or until the last block ends. A program that freezes objects itself is
    left alone.
    """
    _shared.enter()
    try:
        yield
    finally:
        _shared.leave()


class _Collections:
    """The collections of this process. The interpreter calls it before and after each."""

    def __init__(self) -> None:
        self._users = 0
        self._began = 0.0
        self._active = False
        self._thresholds = gc.get_threshold()
        self._left = 0  # how many blocks of memory the first slow collection left; to count objects takes too long

    def enter(self) -> None:
        self._users += 1
        if self._users == 1 and not gc.get_freeze_count():
            self._active = True
            self._thresholds = gc.get_threshold()
            gc.set_threshold(OBJECTS, *self._thresholds[1:])
            gc.collect(1)
            gc.freeze()
            gc.callbacks.append(self.look)

    def leave(self) -> None:
        self._users -= 1
        if not self._users and self._active:
            self._active = False
            self._left = 0
            gc.set_threshold(*self._thresholds)
            gc.callbacks.remove(self.look)
            gc.unfreeze()

    def look(self, phase: str, info: dict[str, int]) -> None:
        """Take what survived a slow collection out of the next ones."""
        if phase == "start":
            self._began = perf_counter()
        elif info["generation"] == 2 and perf_counter() - self._began > SLOW:
            gc.freeze()
            blocks = sys.getallocatedblocks()
            if self._left and blocks > 2 * self._left:
                gc.unfreeze()
                self._left = 0
            else:
                self._left = self._left or blocks


_shared: Final = _Collections()
