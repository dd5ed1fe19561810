"""Which tools have changed while somebody was looking."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

__all__ = ["RecentChanges"]

_KEPT = 512


class RecentChanges:
    """Remembers the IDs of the tools that were changed last, so that a reader who takes no lock can see afterwards
    whether what it read belongs together. `note` is called before a change, one caller at a time."""

    __slots__ = ("_ids", "count")

    def __init__(self) -> None:
        self.count = 0
        self._ids: deque[str] = deque(maxlen=_KEPT)

    def note(self, tool_id: str) -> None:
        """A tool is about to change."""
        self._ids.append(tool_id)
        self.count += 1

    def touched(self, tool_ids: Iterable[str], since: int) -> bool:
        """Whether any of the tools may have changed since there were *since* changes."""
        fresh = self.count - since
        if not fresh:
            return False
        if fresh >= _KEPT:
            return True
        try:
            changed = set(list(self._ids)[-fresh:])
        except RuntimeError:  # one was added just now
            return True
        return not changed.isdisjoint(tool_ids)
