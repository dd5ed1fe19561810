"""How many tools there are of each kind: by namespace, tag, backend and hint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from toolexec.discovery.search import Accept
from toolexec.model.binding import Binding
from toolexec.model.json_value import JSONDict
from toolexec.model.tool import Tool

_MAX_VALUES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """Counts of the tools that a query and filters leave: `total`, and by value of each facet, the most frequent first,
    at most 100 values. A tool with several tags or backends counts for each; backends go by kind and by name.
    `hints` counts the tools that are read-only, idempotent, destructive, open-world, as `Filters` reads these."""

    total: int = 0
    namespaces: Mapping[str, int] = field(default_factory=dict[str, int])
    tags: Mapping[str, int] = field(default_factory=dict[str, int])
    backends: Mapping[str, int] = field(default_factory=dict[str, int])
    hints: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def of(cls, total: int, counts: Mapping[str, Mapping[str, int]]) -> Facets:
        """Facets from counts by facet (`namespace`, `tag`, `backend`, `hint`) and value."""
        return cls(
            total=total,
            namespaces=_ranked(counts.get("namespace", {})),
            tags=_ranked(counts.get("tag", {})),
            backends=_ranked(counts.get("backend", {})),
            hints=_ranked(counts.get("hint", {})),
        )

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        return {
            "total": self.total,
            "namespaces": dict(self.namespaces),
            "tags": dict(self.tags),
            "backends": dict(self.backends),
            "hints": dict(self.hints),
        }


@runtime_checkable
class CountsFacets(Protocol):
    """A searcher that can count by facet by itself."""

    def facets(self, query: str, accept: Accept | None = None) -> Facets:
        """Return the counts of all tools that a search for *query* would find; of all tools for a query without
        words."""
        ...


def count_facets(entries: Iterable[tuple[Tool, Sequence[Binding]]]) -> Facets:
    """Return the counts of some tools with their bindings, one by one."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in ("namespace", "tag", "backend", "hint")}
    total = 0
    for tool, bindings in entries:
        total += 1
        counts["namespace"][tool.namespace] += 1
        counts["tag"].update(tool.tags)
        counts["backend"].update({part for b in bindings for part in (b.kind, b.backend)})
        counts["hint"].update(tool.annotations.on())
    return Facets.of(total, counts)


def _ranked(counts: Mapping[str, int]) -> dict[str, int]:
    ranked = sorted(((value, count) for value, count in counts.items() if count), key=lambda item: (-item[1], item[0]))
    return dict(ranked[:_MAX_VALUES])
