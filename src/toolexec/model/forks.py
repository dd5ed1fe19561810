"""Counts the forks that lie between this process and the import of this module."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewed(Protocol):
    """Holds what must stay with the process that made it: a lock of its threads, a connection, a lock on a file."""

    def renew(self) -> None:
        """Make it the child's own, in a child that was forked just now; quick, as nothing else runs there yet."""
        ...


class _Forks:
    """Threads, event loops and connections stay in the parent of a fork: what holds any compares `count` with the one
    at its own start, or is renewed."""

    __slots__ = ("_renewed", "count")

    def __init__(self) -> None:
        self.count: int = 0
        self._renewed: WeakSet[Renewed] = WeakSet()

    def renew(self, owner: Renewed) -> None:
        """Have *owner* renewed in each child, as long as it is used."""
        self._renewed.add(owner)

    def add(self) -> None:
        """Count one more fork; called in the child."""
        self.count += 1
        for owner in list(self._renewed):
            owner.renew()


forks: _Forks = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forks.add)
