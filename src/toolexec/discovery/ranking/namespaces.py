"""Which namespaces a long query speaks of.

A task of several steps ("the deal is won, write Kim a mail and book an hour") has many words that some tool or other
has by chance. What the words say together is more certain: a namespace much of which has a word, as *mail* or *deal*,
is one that the task needs, and its tools come before others that match as well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from toolexec.discovery.ranking.expansion import QueryWord
from toolexec.discovery.ranking.postings import Postings

__all__ = ["LONG", "LOOKED_AT", "by_namespaces"]

LONG: Final = 9
"""From so many words on, stop words aside, a query is about more than one tool. (Of the 599 labelled queries for one
tool two have as many; a task has 13.)"""
LOOKED_AT: Final = 60
"""How many of the best tools are put into another order."""
_FEW_TOOLS: Final = 3
"""A namespace of fewer tools says little about a query."""
_SHARE: Final = 3.0
"""A word that a third of a namespace has counts in full for it."""
_CERTAIN: Final = frozenset({"word", "spelling"})


def by_namespaces(
    postings: Postings,
    words: Sequence[QueryWord],
    best: Sequence[tuple[float, int]],
    namespace_of: Callable[[int], str],
    sizes: Mapping[str, int],
) -> list[tuple[float, int]]:
    """Return *best*, scores and slots, with what the query says of each one's namespace added to its score; not in
    order. *sizes* has how many tools each namespace has."""
    spaces = [namespace_of(slot) for _, slot in best]
    heads = [text[: len(text) >> 1] for text in (postings.held[slot] for _, slot in best)]
    said: dict[str, float] = {}
    for word in words:
        members = [member for member, _ in word.members if word.kinds[member] in _CERTAIN]
        if not members:
            continue
        rarity = math.log(1 + postings.count / max(len(postings.of(member)) for member in members))
        having = [any(member in head for member in members) for head in heads]
        for space, tools in Counter(space for space, has in zip(spaces, having, strict=True) if has).items():
            if (size := sizes[space]) >= _FEW_TOOLS:
                said[space] = said.get(space, 0.0) + rarity * min(1.0, _SHARE * tools / size)
    return [(score + said.get(space, 0.0), slot) for (score, slot), space in zip(best, spaces, strict=True)]
