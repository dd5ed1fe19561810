"""Which namespaces a long query speaks of.

A task of several steps ("the deal is won, write Kim a mail and book an hour") has many words that some tool or other
has by chance. What the words say together is more certain: a namespace much of which has a word, as *mail* or *deal*,
is one that the task needs, and its tools come before others that match as well; first of all those that look things
up there, and those that make a thing where nearly all of the namespace has a word of the query.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from toolexec.discovery.ranking.expansion import QueryWord
from toolexec.discovery.ranking.postings import Postings
from toolexec.discovery.words import split_words

LOOKED_AT: Final = 60
"""How many of the best tools are put into another order."""
_FEW_TOOLS: Final = 3
"""A namespace of fewer tools says little about a query."""
_SHARE: Final = 3.0
"""A word that a third of a namespace has counts in full for it."""
_CERTAIN: Final = frozenset({"word", "spelling"})
_LOOKUPS: Final = frozenset({"search", "find", "lookup"})
_MAKERS: Final = frozenset({"create", "send", "add"})
_NEARLY_ALL: Final = 0.8
_MAX_NAME: Final = 200
LOOKUP: Final = 1.5
"""How much more what a query says of a namespace counts for the tools that look up things in it."""
MAKER: Final = 0.2
"""The same for those that make something, where a word of the query is one of nearly all tools of a namespace."""
MANY_TOOLS: Final = 5_000
"""A namespace of more tools is not read for those that look things up or make them: it would take milliseconds."""


class Said(NamedTuple):
    """How much a query says of a namespace, and whether a word of it is one of nearly all of its tools."""

    gain: float = 0.0
    of_all: bool = False


def by_namespaces(
    postings: Postings,
    words: Sequence[QueryWord],
    best: Sequence[tuple[float, int]],
    namespace_of: Callable[[int], str],
    sizes: Mapping[str, int],
) -> dict[str, Said]:
    """Return what a query says of each namespace of the *best*, scores and slots: the gain is added to the scores of
    its tools. *sizes* has how many tools each namespace has."""
    spaces = [namespace_of(slot) for _, slot in best]
    heads = [text[: len(text) >> 1] for text in (postings.held[slot] for _, slot in best)]
    said: dict[str, Said] = {}
    for word in words:
        members = [member for member, _ in word.members if word.kinds[member] in _CERTAIN]
        if not members:
            continue
        rarity = math.log(1 + postings.count / max(len(postings.of(member)) for member in members))
        having = [any(member in head for member in members) for head in heads]
        for space, tools in Counter(space for space, has in zip(spaces, having, strict=True) if has).items():
            if (size := sizes[space]) >= _FEW_TOOLS:
                gain, of_all = said.get(space, Said())
                gain += rarity * min(1.0, _SHARE * tools / size)
                said[space] = Said(gain, of_all or tools > _NEARLY_ALL * size)
    return said


def looks_up(name: str) -> bool:
    """Return whether the tool of this name finds things by words.

    A task names things (the deal with Northwind), and tools take their IDs. So it needs what finds them, in each
    namespace that it speaks of, though it does not say so.

    >>> [looks_up(name) for name in ("search_contacts", "messages.find", "listIssues")]
    [True, True, False]
    """
    words = split_words(name[:_MAX_NAME])
    return bool(words) and (words[0] in _LOOKUPS or words[-1] in _LOOKUPS)


def makes(name: str) -> bool:
    """Return whether the tool of this name makes something, or sends it.

    A task says *mail Kim* or *a note with all of it* and not what makes one: that is what it needs of the namespace
    when it has no other word for it.

    >>> [makes(name) for name in ("create_note", "sendMessage", "notes_add")]
    [True, True, False]
    """
    words = split_words(name[:_MAX_NAME])
    return bool(words) and words[0] in _MAKERS
