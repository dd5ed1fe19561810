"""What this process has started, and what it has ruled out: in memory alone, so that no old copy of a disk can say
otherwise."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from toolexec.errors import SandboxUnavailableError
from toolexec_remote.server.shares import Pool

RunName: TypeAlias = tuple[str, str]
"""The account of a run, and its ID."""
_MOST: Final = 1_000_000


class PastRuns:
    """Remembers each run that was started for *keeps* seconds after its end, and each that never will be for as long;
    times are those of a clock that is never set. At most *most* of them, which tenants share where *is_shared* says so:
    rather than forget one, it takes no more."""

    def __init__(self, keeps: float, most: int = _MOST, is_shared: Callable[[], bool] = lambda: False) -> None:
        self._keeps = keeps
        self._most = most
        self._room = Pool(most, is_shared=is_shared)
        self._started: set[RunName] = set()
        self._sealed: set[RunName] = set()
        self._over: deque[tuple[float, RunName]] = deque()

    def start(self, name: RunName) -> None:
        """Record that a run starts. Raises SandboxUnavailableError when no more can be remembered, or when it must
        not start any more."""
        if name in self._sealed:
            raise SandboxUnavailableError("this run was given up before it started; use a new ID", retryable=True)
        if name not in self._started and not self._room.take(name[0]):
            raise SandboxUnavailableError(
                f"this server remembers {self._most} runs, and takes no more than that; try again later",
                code="queue_full",
                retryable=True,
            )
        self._started.add(name)

    def take_back(self, name: RunName) -> None:
        """Undo `start`: nothing of the run was run."""
        if name in self._started:
            self._started.discard(name)
            self._room.give(name[0])

    def end(self, name: RunName, now: float) -> None:
        """Record that a run is over."""
        self._over.append((now, name))

    def seal(self, name: RunName, now: float) -> bool:
        """Have a run never start; return whether that holds, which it does not for one that was started."""
        if name in self._started:
            return False
        if name not in self._sealed:
            if not self._room.take(name[0]):
                return False
            self._sealed.add(name)
            self._over.append((now, name))
        return True

    def has_started(self, name: RunName) -> bool:
        """Return whether a run was started, and is not forgotten."""
        return name in self._started

    def is_sealed(self, name: RunName) -> bool:
        """Return whether a run must never start."""
        return name in self._sealed

    def prune(self, now: float) -> None:
        """Forget what ended too long ago."""
        while self._over and now - self._over[0][0] > self._keeps:
            _, name = self._over.popleft()
            self._room.give(name[0], (name in self._started) + (name in self._sealed))
            self._started.discard(name)
            self._sealed.discard(name)
