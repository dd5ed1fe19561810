"""What a view shows of one version of its index, and how that follows from the version before."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Self

from toolexec.discovery.changes import TracksChanges
from toolexec.discovery.index import Index, Registered

_BY_ID = attrgetter("tool.id")


class Shown:
    """The entries that *visible* accepts, by ID, at the versions *stamps* of the index and of what else it depends on.

    It never changes; `after` makes the next one. With few changes that costs no look at the other tools.
    """

    def __init__(
        self, entries: tuple[Registered, ...], stamps: tuple[int, ...], namespace_counts: Counter[str]
    ) -> None:
        self.entries = entries
        self.stamps = stamps
        self.namespace_counts = namespace_counts

    @classmethod
    def of(cls, index: Index, visible: Callable[[Registered], bool], stamps: tuple[int, ...]) -> Self:
        """Look at all tools. *stamps* were read before: older ones only mean to look again."""
        entries = tuple([entry for entry in index.tools() if visible(entry)])
        return cls(entries, stamps, Counter([entry.tool.namespace for entry in entries]))

    def after(
        self,
        changed: Iterable[str],
        index: Index,
        visible: Callable[[Registered], bool],
        stamps: tuple[int, ...],
    ) -> Self:
        """Return what is shown once the *changed* tools are looked at again."""
        entries, counts = list(self.entries), self.namespace_counts.copy()
        for tool_id in changed:
            at = bisect_left(entries, tool_id, key=_BY_ID)
            before = entries[at] if at < len(entries) and entries[at].tool.id == tool_id else None
            now = index.find(tool_id)
            if now is not None and (now.tool.id != tool_id or not visible(now)):
                now = None
            entries[at : at + (before is not None)] = [now] if now is not None else []
            counts.update([now.tool.namespace] if now is not None else [])
            counts.subtract([before.tool.namespace] if before is not None else [])
        return type(self)(tuple(entries), stamps, +counts)

    @cached_property
    def ids(self) -> frozenset[str]:
        """The IDs of the entries."""
        return frozenset([entry.tool.id for entry in self.entries])

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces of the entries, in order."""
        return tuple(sorted(self.namespace_counts))


def changes_since(sources: Sequence[object], stamps: Sequence[int], now: Sequence[int]) -> Collection[str] | None:
    """Return which tools changed between two versions of *sources*; None where one of them does not know."""
    found: set[str] = set()
    for source, before, after in zip(sources, stamps, now, strict=True):
        if before == after:
            continue
        changed = source.changed_since(before) if isinstance(source, TracksChanges) else None
        if changed is None:
            return None
        found.update(changed)
    return found
