"""Which tools changed since a reader looked last, so that it need not look at all of them again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final, Protocol, runtime_checkable

_MAX_CHANGES: Final = 1024


@runtime_checkable
class TracksChanges(Protocol):
    """Something that tools depend on and that changes over time, such as an index, or the pins."""

    @property
    def version(self) -> int:
        """Grows with every change; must be quick."""
        ...

    def changed_since(self, version: int) -> Collection[str] | None:
        """Return the IDs of the tools that changed after this version; None when that is too long ago to know."""
        ...


class ChangeLog:
    """The IDs of the tools that changed last, each with the version that it made. Safe to use from several threads."""

    def __init__(self, version: int = 0) -> None:
        self.version: int = version
        self._ids: deque[str] = deque(maxlen=_MAX_CHANGES)
        self._lock = threading.Lock()

    def add(self, tool_ids: Iterable[str]) -> None:
        """Note changed tools; each is a version of its own."""
        with self._lock:
            for tool_id in tool_ids:
                self._ids.append(tool_id)
                self.version += 1

    def changed_since(self, version: int) -> frozenset[str] | None:
        """Implement `TracksChanges.changed_since`."""
        with self._lock:
            count = self.version - version
            if not 0 <= count <= len(self._ids):
                return None
            return frozenset(islice(self._ids, len(self._ids) - count, None))
