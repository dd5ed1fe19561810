"""Keep what one caller has a server do from holding the others: the interpreter collects garbage, and changes between
threads, in short steps."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

OBJECTS: Final = 1000
"""After how many new objects garbage is collected: each two thousand of them take a millisecond, in which no thread
runs. Commands that end soon have it done after many more."""
SWITCH_SECONDS: Final = 0.0005
"""For how long a thread may keep the interpreter from the event loop: a tenth of Python's default. Large bodies are
decoded in threads, and a run of code changes between threads a dozen times."""
SLOW: Final = 0.01
"""From how many seconds on a collection is too slow for the next one to look at the same objects."""
GROWTH: Final = 4.0
"""How many times as much there must be in memory until all is looked at, which takes half a second: with twice as much
a caller who opens a thousand sessions had that done."""


@contextmanager
def short_steps() -> Generator[None, None, None]:
    """Have threads change after half a millisecond in the block, and keep each collection of garbage short, however
    much is in memory; servers of one process share that.

    All objects are looked at each time that the young ones were, on the event loop that runs where the first block is
    entered. What is there at the start, and what survives a slow collection, is not looked at again: tools are loaded
    once, and stay. What of it is dropped later is freed as always, unless it is part of a cycle; those wait until there
    is four times as much in memory, and all is looked at once more, or until the last block ends. A program that
    freezes objects itself is left alone.
    """
    _shared.enter()
    try:
        yield
    finally:
        _shared.leave()


_NEVER: Final = 1 << 30


class _Steps:
    """The steps of this process. The interpreter calls `look` before and after each collection."""

    def __init__(self) -> None:
        self._users = 0
        self._began = 0.0
        self._active = False
        self._thresholds = gc.get_threshold()
        self._seconds = sys.getswitchinterval()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_due = False
        self._left = 0  # how many blocks of memory the first slow collection left; to count objects takes too long

    def enter(self) -> None:
        self._users += 1
        if self._users > 1:
            return
        self._seconds = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        if not gc.get_freeze_count():
            self._active = True
            self._thresholds = gc.get_threshold()
            self._loop, self._is_due = _running_loop(), False
            oldest = self._thresholds[2] if self._loop is None else _NEVER
            gc.set_threshold(OBJECTS, self._thresholds[1], oldest)
            gc.collect(1)
            gc.freeze()
            gc.callbacks.append(self.look)

    def leave(self) -> None:
        self._users -= 1
        if self._users:
            return
        sys.setswitchinterval(self._seconds)
        if self._active:
            self._active = False
            self._loop = None
            self._left = 0
            gc.set_threshold(*self._thresholds)
            gc.callbacks.remove(self.look)
            gc.unfreeze()

    def look(self, phase: str, info: dict[str, int]) -> None:
        """Have all objects looked at after the young ones, and take what survived a slow collection out of the next
        ones."""
        if phase == "start":
            self._began = perf_counter()
        elif info["generation"] == 1:
            self._look_at_all_soon()
        elif info["generation"] == 2 and perf_counter() - self._began > SLOW:
            gc.freeze()
            blocks = sys.getallocatedblocks()
            if self._left and blocks > GROWTH * self._left:
                gc.unfreeze()
                self._left = 0
            else:
                self._left = self._left or blocks

    def _look_at_all_soon(self) -> None:
        """Left alone, the interpreter looks at all once a quarter more is there than the last time left, which takes a
        tenth of a second where that was much."""
        loop = self._loop  # any thread collects, while that of the loop may end it, or leave
        if loop is None or (self._is_due and loop.is_running()):
            return
        try:
            if loop.is_running():
                self._is_due = True
                loop.call_soon_threadsafe(self._look_at_all)
                return
        except RuntimeError:  # it was closed just now
            self._is_due = False
        self._loop = None  # it has ended, and another server goes on
        if self._active:
            gc.set_threshold(OBJECTS, *self._thresholds[1:])

    def _look_at_all(self) -> None:
        self._is_due = False
        if self._active:
            gc.collect()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_shared: Final = _Steps()
