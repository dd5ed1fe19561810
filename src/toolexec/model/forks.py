"""Counts the forks that lie between this process and the import of this module."""

from __future__ import annotations

import os

__all__ = ["forks"]


class _Forks:
    """Threads, event loops and connections stay in the parent of a fork: what holds any compares `count` with the one
    at its own start."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count: int = 0

    def add(self) -> None:
        """Count one more fork; called in the child."""
        self.count += 1


forks: _Forks = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forks.add)
