"""The tools of all steps of a task, and not those of one step many times over.

The words of one step stand together, so a tool that has several words of one clause is more likely meant than one that
has as many of them here and there. And once a tool has come that has a word, the next with the same word is less likely
to be the one that another step needs: what a word adds falls with each tool before that has it, as in the maximal
marginal relevance of Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking", SIGIR 1998.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from toolexec.discovery.ranking.stems import STOP_WORDS
from toolexec.discovery.words import split_words

LONG: Final = 9
"""From so many words on, stop words aside, a query is about more than one tool. (Of the 599 labelled queries for one
tool two have as many; a task has 11.)"""
_SOME: Final = 5
"""The same for a query of `_CLAUSES` clauses. (Of the labelled queries one has as many; 160 of the 205 tasks have.)"""
_CLAUSES: Final = 3
_FIRST: Final = 20
"""For how many tools it matters what came before them."""
_TOGETHER: Final = 0.3
"""How much more the words of the clause count that says most of a tool."""
_KEPT: Final = 0.8
"""The share of what a word adds that is left after a tool that has as much of it as any."""
_END: Final = r"(?i:[.,;:!?](?=\s)|[\u3002\uff0c\uff1b\uff1a\uff01\uff1f\u3001\u061b\u060c\u061f]|\b(?:and|then|but)\b)"
"""What ends a clause; compiled when the first task comes."""


def is_task(text: str, count: int) -> bool:
    """Return whether a query of *count* words, stop words aside, is about the several tools of a task.

    >>> is_task("close the ticket, book an hour, and mail Kim", 6), is_task("close the ticket and mail it to Kim", 4)
    (True, False)
    """
    return count >= LONG or (count >= _SOME and len(re.findall(_END, text.strip()[:-1])) >= _CLAUSES - 1)


def clauses_of(text: str) -> dict[str, int]:
    """Return the number of the clause that each word of a query is first in.

    >>> clauses_of("Close the ticket, and mail Kim.")
    {'close': 0, 'the': 0, 'ticket': 0, 'mail': 2, 'kim': 2}
    """
    found: dict[str, int] = {}
    for number, clause in enumerate(re.split(_END, text)):
        for word in split_words(clause):
            found.setdefault(word, number)
    return found


def telling_clauses(text: str) -> list[str]:
    """Return the clauses of a query that have words other than stop words.

    >>> telling_clauses("Close the ticket, and mail Kim about it, please; that is all.")
    ['Close the ticket', 'mail Kim about it']
    """
    clauses = [clause.strip() for clause in re.split(_END, text)]
    return [clause for clause in clauses if not STOP_WORDS.issuperset(split_words(clause))]


def spread(
    scores: Mapping[int, float], gains: Mapping[int, Sequence[float]], clauses: Sequence[int]
) -> list[tuple[float, int]]:
    """Return slots with the scores that they have then, best first; equal ones in the order of *scores*.

    *gains* has what each word of the query adds to the score of a slot (nothing for one that is not there), *clauses*
    the clause of each word.
    """
    left = dict(scores)
    having: list[list[tuple[int, float]]] = [[] for _ in clauses]
    for slot, row in gains.items():
        sums: dict[int, float] = {}
        for word, gain in enumerate(row):
            if gain:
                having[word].append((slot, gain))
                sums[clauses[word]] = sums.get(clauses[word], 0.0) + gain
        left[slot] += _TOGETHER * max(sums.values(), default=0.0)
    most = [max((gain for _, gain in slots), default=0.0) for slots in having]
    counts = [1.0] * len(having)
    found: list[tuple[float, int]] = []
    while left and len(found) < _FIRST:
        slot = max(left, key=left.__getitem__)
        found.append((left.pop(slot), slot))
        for word, gain in enumerate(gains.get(slot, ())):
            if gain:
                lost = counts[word] * (1 - _KEPT) * gain / most[word]
                counts[word] -= lost
                for other, share in having[word]:
                    if other in left:
                        left[other] -= lost * share
    found += sorted(((score, slot) for slot, score in left.items()), key=lambda item: -item[0])
    return found
