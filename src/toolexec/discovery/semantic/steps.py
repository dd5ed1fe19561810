"""What the steps of a task are about, by meaning.

The text of a task as a whole is close to tools for none of its steps, and a clause alone ("write Kim a mail") to tools
of many namespaces. The tools of a namespace together are more certain: a clause is about the namespace whose tools
are on the whole the closest to it, also by the words of the query. Of that namespace the task needs what looks things
up, and the tools that are closest to the clause.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import islice
from statistics import fmean
from typing import Final

from toolexec.discovery.ranking.namespaces import looks_up
from toolexec.discovery.search import Accept, Hit

MAX_STEPS: Final = 16
"""How many clauses of a query are looked at."""
_MAX_SPACES: Final = 32
"""Among how many namespaces a clause has a choice."""
_MAX_TOOLS: Final = 40
"""How many tools stand for a namespace that has more."""
_LOOKED_AT: Final = 400
"""Among how many of its tools they are chosen."""
_BEST: Final = 3
"""Over how many tools of a namespace it is averaged what the words say of it."""
_WORDS: Final = 0.25
"""How much that counts beside the cosines, for which namespace a clause is about."""
_LOOKUP: Final = 4.8
"""How much what a clause says of a namespace counts for the tools that look things up in it."""
_CLOSE: Final = 0.6
"""The same for the tool that is closest to the clause there; for others as much less as they are farther away."""


class Namespaces:
    """Knows which tools are in a namespace. It may be used by several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tools: dict[str, dict[str, None]] = {}

    def add(self, tool_id: str) -> None:
        """Take in a tool; nothing happens with a known one."""
        with self._lock:
            self._tools.setdefault(_namespace_of(tool_id), {})[tool_id] = None

    def remove(self, tool_id: str) -> None:
        """Forget a tool; unknown IDs are ignored."""
        with self._lock:
            tools = self._tools.get(_namespace_of(tool_id), {})
            tools.pop(tool_id, None)
            if not tools:
                self._tools.pop(_namespace_of(tool_id), None)

    def chosen(self, scores: Mapping[str, float], accept: Accept | None) -> dict[str, list[str]]:
        """Return the tools that stand for each namespace, of those that have the most of *scores*: all that *accept*
        lets through, or of many those with a score, and those that look things up, before others."""
        totals: dict[str, float] = {}
        for tool_id, score in scores.items():
            space = _namespace_of(tool_id)
            totals[space] = totals.get(space, 0.0) + score
        spaces = sorted(totals, key=lambda space: (-totals[space], space))[:_MAX_SPACES]
        with self._lock:
            tools = {space: [*islice(self._tools.get(space, ()), _LOOKED_AT)] for space in spaces}
        found: dict[str, list[str]] = {}
        for space, ids in tools.items():
            if len(ids) > _MAX_TOOLS:
                ids.sort(key=lambda one: (-scores.get(one, 0.0), not _looks_up(one), one))
            allowed = [*islice((one for one in ids if accept is None or accept(one)), _MAX_TOOLS)]
            if allowed:
                found[space] = allowed
        return found


def by_words(lexical: Sequence[Hit]) -> dict[str, float]:
    """Return what the words of a query say of each namespace, from 0 to 1."""
    highest = max((hit.score for hit in lexical), default=0.0) or 1.0
    scores: dict[str, list[float]] = {}
    for hit in lexical:
        scores.setdefault(_namespace_of(hit.tool_id), []).append(hit.score / highest)
    return {space: sum(sorted(found)[-_BEST:]) / _BEST for space, found in scores.items()}


def gains_of(
    steps: Sequence[Mapping[str, float]], spaces: Mapping[str, Sequence[str]], words: Mapping[str, float]
) -> dict[str, float]:
    """Return what is added to the scores of tools by the *steps* of a task, of which each is the cosines of its text
    by tool. *spaces* has the tools of each namespace, *words* what `by_words` says of them."""
    lookups: dict[str, float] = {}
    close: dict[str, float] = {}
    for cosines in filter(None, steps):  # none where the embedder failed
        means = {space: fmean([cosines.get(one, 0.0) for one in ids]) for space, ids in spaces.items()}
        level = fmean(means.values() or [0.0])
        gains = {space: mean - level + _WORDS * words.get(space, 0.0) for space, mean in means.items()}
        space = max(gains, key=gains.__getitem__, default="")
        if not space or (gain := gains[space]) <= 0:
            continue
        lookups[space] = max(lookups.get(space, 0.0), gain)
        mean, highest = means[space], max(cosines.get(one, 0.0) for one in spaces[space])
        for one in spaces[space]:
            if (above := cosines.get(one, 0.0) - mean) > 0:
                close[one] = max(close.get(one, 0.0), _CLOSE * gain * above / (highest - mean))
    for space, gain in lookups.items():
        for one in spaces[space]:
            if _looks_up(one):
                close[one] = close.get(one, 0.0) + _LOOKUP * gain
    return close


def _namespace_of(tool_id: str) -> str:
    return tool_id.partition(":")[0] if ":" in tool_id else ""


def _looks_up(tool_id: str) -> bool:
    return looks_up(tool_id.partition(":")[2])
