"""The inverted index: which tools have a word, and how often; changed in place, tool by tool."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from toolexec.discovery.ranking.vocabulary import Vocabulary

MAX_COUNT: Final = 255
"""The most that a word can count in a tool, in units."""
_MAX_DEAD: Final = 4096
_ONE: Final = "\x01"
_NOTHING: Final = array("I")


def _empty() -> array[int]:
    return array("I")


class Postings:
    """Words and their counts by slot, a small number that stands for a tool.

    Counts are whole *units*: a word of the name counts more of them than one of the description. A posting is one
    32-bit integer, `slot << 8 | count`, and the postings of a word are sorted. What a slot holds is kept the other way
    round, too, as a string: first the sign of each word, then as many characters with their counts. `str.find` in it
    says in a tenth of a microsecond whether a tool has a word.

    Not safe for use by several threads at once.
    """

    def __init__(self) -> None:
        self.words: Vocabulary = Vocabulary()
        self.lists: defaultdict[str, array[int]] = defaultdict(_empty)
        self.held: list[str] = []
        self.lengths: array[int] = array("I")
        self.total_length: int = 0
        self.count: int = 0
        self._free: list[int] = []
        self._dead: set[str] = set()

    def put(self, counts: dict[str, int], marks: str) -> int:
        """Take in what a tool holds: counts of words by sign (more than 255 count as 255), and *marks*, the sign
        of each mark, which do not count towards its length; returns its slot."""
        try:
            values = bytes(counts.values())
        except ValueError:
            for sign, count in counts.items():
                counts[sign] = min(count, MAX_COUNT)
            values = bytes(counts.values())
        text = f"{''.join(counts)}{marks}{values.decode('latin-1')}{_ONE * len(marks)}"
        length = sum(values)
        slot = self._free.pop() if self._free else len(self.held)
        base = slot << 8
        lists = self.lists
        if slot == len(self.held):  # higher than all others
            self.held.append(text)
            self.lengths.append(length)
            for sign, count in counts.items():
                lists[sign].append(base | count)
            for sign in marks:
                lists[sign].append(base | 1)
        else:
            self.held[slot] = text
            self.lengths[slot] = length
            for sign in marks:
                insort(lists[sign], base | 1)
            for sign, count in counts.items():
                insort(lists[sign], base | count)
        self.total_length += length
        self.count += 1
        return slot

    def take(self, slot: int) -> None:
        """Forget what a slot holds; the slot is free for another tool."""
        text = self.held[slot]
        base = slot << 8
        for sign in text[: len(text) // 2]:
            postings = self.lists[sign]
            place = bisect_left(postings, base)
            if place < len(postings) and postings[place] >> 8 == slot:  # else a snapshot was wrong about it
                del postings[place]
            if not postings:
                self._dead.add(sign)
        self.held[slot] = ""
        self.total_length -= self.lengths[slot]
        self.lengths[slot] = 0
        self.count -= 1
        self._free.append(slot)
        if len(self._dead) > _MAX_DEAD:
            self._forget_dead()

    def restore(self, lists: Mapping[str, array[int]], held: list[str], lengths: array[int]) -> None:
        """Take over what others have held, when there is nothing here yet but the vocabulary; a slot that holds nothing
        is free."""
        self.lists.update(lists)
        self.held, self.lengths = held, lengths
        self.total_length = sum(lengths)
        self._free = [slot for slot, text in enumerate(held) if not text]
        self.count = len(held) - len(self._free)
        self._dead = {sign for sign in self.words.signs.values() if not self.lists.get(sign)}

    def of(self, sign: str) -> array[int]:
        """Return the postings of a word."""
        return self.lists.get(sign, _NOTHING)

    def units(self, slot: int, sign: str) -> int:
        """Return how much a word counts in a tool, in units; 0 when the tool does not have it."""
        text = self.held[slot]
        half = len(text) // 2
        place = text.find(sign, 0, half)
        return ord(text[half + place]) if place >= 0 else 0

    @property
    def mean_length(self) -> float:
        """The mean of the tools' lengths in units; 1 when there is nothing to say."""
        return self.total_length / self.count if self.count and self.total_length else 1.0

    def _forget_dead(self) -> None:
        gone = [sign for sign in self._dead if not self.lists[sign]]
        self._dead.clear()
        for sign in gone:
            del self.lists[sign]
        self.words.forget(gone)
