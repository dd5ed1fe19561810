"""Guests that are pre-warmed: started before a run needs them, and replaced when one is taken or dies."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

logger: logging.Logger = logging.getLogger(__name__)
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_HEAD_START = 0.01


class WarmGuest(Protocol):
    """What can be kept in a pool."""

    @property
    def alive(self) -> bool:
        """Whether it could run a program now."""
        ...

    async def wait(self) -> Any:
        """Return when it is alive no more."""
        ...

    async def aclose(self) -> None:
        """End it."""
        ...


G = TypeVar("G", bound=WarmGuest)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """How a pool has served: runs that found a guest (`hits`) and that did not (`misses`), guests that `died` while
    they waited, those that could not be started (`failed`), and how many are `idle` and `starting` now."""

    hits: int = 0
    misses: int = 0
    died: int = 0
    failed: int = 0
    idle: int = 0
    starting: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the same as JSON-able data."""
        return {name: getattr(self, name) for name in ("hits", "misses", "died", "failed", "idle", "starting")}


class WarmPool(Generic[G]):
    """Keeps up to *size* guests for each key, for the *kinds* keys that were asked for last.

    *start* starts one for a key. Belongs to one event loop. A key is filled from when it is first asked for.
    """

    def __init__(self, start: Callable[[Any], Awaitable[G]], *, size: int, kinds: int) -> None:
        self._start = start
        self._size = size
        self._kinds = kinds
        self._shelves: OrderedDict[Hashable, _Shelf[G]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hits = self._misses = self._died = self._failed = 0
        self._closed = False

    @property
    def stats(self) -> PoolStats:
        """How it has served until now."""
        shelves = self._shelves.values()
        return PoolStats(
            hits=self._hits,
            misses=self._misses,
            died=self._died,
            failed=self._failed,
            idle=sum(len(shelf.idle) for shelf in shelves),
            starting=sum(shelf.starting for shelf in shelves),
        )

    @property
    def idle(self) -> list[G]:
        """The guests that wait."""
        return [guest for shelf in self._shelves.values() for guest, _ in shelf.idle]

    def take(self, key: Hashable) -> G | None:
        """Return a guest for *key*, which is the caller's own from now on; None if there is none. Has it replaced."""
        if self._closed or not self._size:
            return None
        shelf = self._shelf(key)
        found: G | None = None
        while shelf.idle and found is None:
            guest, watcher = shelf.idle.popleft()
            watcher.cancel()
            if guest.alive:
                found = guest
            else:
                self._died += 1
                self._spawn(guest.aclose())
        if found is None:
            self._misses += 1
        else:
            self._hits += 1
        # The caller goes first: starting another guest would take the processor away from the run that waits.
        asyncio.get_running_loop().call_later(_HEAD_START, self._refill, key, shelf)
        return found

    async def fill(self, key: Hashable) -> None:
        """Have the guests for *key* started, and wait until they are; raises what starting one raises."""
        if self._closed or not self._size:
            return
        shelf = self._shelf(key)
        shelf.pause = 0.0
        self._refill(key, shelf)
        while shelf.starting and not self._closed:
            shelf.changed.clear()
            await shelf.changed.wait()
        if shelf.problem is not None and not shelf.idle:
            raise shelf.problem

    async def aclose(self) -> None:
        """End all guests and start no more. A cancellation is heeded when that is done."""
        self._closed = True
        for shelf in self._shelves.values():
            self._empty(shelf)
        while self._tasks:
            await asyncio.wait([*self._tasks])

    def _shelf(self, key: Hashable) -> _Shelf[G]:
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = _Shelf()
            while len(self._shelves) > self._kinds:
                self._empty(self._shelves.popitem(last=False)[1])
        self._shelves.move_to_end(key)
        return shelf

    def _empty(self, shelf: _Shelf[G]) -> None:
        """Empty a shelf that is not needed any more."""
        shelf.dropped = True
        shelf.changed.set()
        for task in shelf.starts:
            task.cancel()
        while shelf.idle:
            guest, watcher = shelf.idle.popleft()
            watcher.cancel()
            self._spawn(guest.aclose())

    def _refill(self, key: Hashable, shelf: _Shelf[G]) -> None:
        while not (shelf.dropped or shelf.pausing) and len(shelf.idle) + shelf.starting < self._size:
            shelf.starting += 1
            task = self._spawn(self._add(key, shelf))
            shelf.starts.add(task)
            task.add_done_callback(shelf.starts.discard)

    async def _add(self, key: Hashable, shelf: _Shelf[G]) -> None:
        try:
            guest = await self._start(key)
        except Exception as error:
            if shelf.dropped:  # it was stopped, and no run waits for another try
                return
            self._failed += 1
            shelf.problem = error
            shelf.pause = min(shelf.pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
            shelf.pausing = True
            logger.warning("a guest could not be started ahead of its use: %s", error)
            self._spawn(self._resume(key, shelf))
            return
        finally:
            shelf.starting -= 1
            shelf.changed.set()
        shelf.pause, shelf.problem = 0.0, None
        if shelf.dropped:
            await guest.aclose()
            return
        watcher = asyncio.create_task(self._watch(key, shelf, guest))
        shelf.idle.append((guest, watcher))

    async def _resume(self, key: Hashable, shelf: _Shelf[G]) -> None:
        """Try again after a while: what cannot be started now would only be tried all the time."""
        waiting = asyncio.create_task(asyncio.sleep(shelf.pause))
        shelf.starts.add(waiting)
        await asyncio.wait({waiting})
        shelf.starts.discard(waiting)
        shelf.pausing = False
        if not self._closed:
            self._refill(key, shelf)

    async def _watch(self, key: Hashable, shelf: _Shelf[G], guest: G) -> None:
        """Replace a guest that dies while it waits."""
        await guest.wait()
        entry = next((entry for entry in shelf.idle if entry[0] is guest), None)
        if entry is not None:
            shelf.idle.remove(entry)
            self._died += 1
            self._spawn(guest.aclose())
            shelf.pause = min(shelf.pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
            shelf.pausing = True
            self._spawn(self._resume(key, shelf))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Shelf(Generic[G]):
    """The guests for one key."""

    def __init__(self) -> None:
        self.idle: deque[tuple[G, asyncio.Task[None]]] = deque()
        """Each with the task that watches it."""
        self.starting = 0
        self.starts: set[asyncio.Task[None]] = set()
        self.pause = 0.0
        """How long to wait after the next failure, in seconds."""
        self.pausing = False
        self.problem: Exception | None = None
        self.dropped = False
        self.changed = asyncio.Event()
