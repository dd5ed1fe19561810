"""Which tools have a name or a title of just these words."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from codecs import utf_32_le_encode
from collections.abc import Iterable
from typing import Final
from zlib import crc32

from toolexec.discovery.ranking.vocabulary import Vocabulary
from toolexec.model.tool import Tool

_FEW: Final = 32
_MAX_SLOTS: Final = 100
_SLOT: Final = (1 << 32) - 1


def codes_of(tool: Tool, words: Vocabulary) -> tuple[str, ...]:
    """Return the words of a tool's name and of its title, each as a string of their characters in *words*, without stop
    words; once where both have the same."""
    telling = words.telling.__getitem__
    name = "".join(map(telling, tool.name.split("_")))
    title = "".join(map(telling, tool.title.split())) if tool.title else name
    return (name,) if title == name else (name, title)


class Exact:
    """Finds slots by the words of their names and titles, in any order. A few bytes for each: a checksum of the words
    stands for them, so that the caller has to look whether a slot has them. Not safe for use by several threads at
    once."""

    def __init__(self) -> None:
        self.keys: array[int] = array("Q")
        """Checksums and slots, sorted once `slots` was called."""
        self._new: list[int] = []

    def put(self, slot: int, codes: Iterable[str]) -> None:
        """Remember what is called by each of these words."""
        self._new += [key | slot for one in codes if (key := _key(one))]

    def take(self, slot: int, codes: Iterable[str]) -> None:
        """Forget a slot that was put with these words."""
        self.settle()
        for one in codes:
            key = _key(one) | slot
            place = bisect_left(self.keys, key)
            while place < len(self.keys) and self.keys[place] == key:  # twice in a snapshot of an older version
                del self.keys[place]

    def slots(self, codes: str) -> list[int]:
        """Return the slots that may be called by just these words, a hundred at most."""
        self.settle()
        if not (key := _key(codes)):
            return []
        found: list[int] = []
        keys, place = self.keys, bisect_left(self.keys, key)
        while place < len(keys) and keys[place] & ~_SLOT == key and len(found) < _MAX_SLOTS:
            found.append(keys[place] & _SLOT)
            place += 1
        return list(dict.fromkeys(found)) if len(found) > 1 else found

    def settle(self) -> None:
        """Sort what was put."""
        if not self._new:
            return
        if len(self._new) > _FEW:
            self.keys = array("Q", sorted([*self.keys, *self._new]))
        else:
            for key in self._new:
                insort(self.keys, key)
        self._new.clear()


def _key(codes: str) -> int:
    """Return a number for a set of words that leaves room for a slot; 0 when there are none."""
    if not codes:
        return 0
    return crc32(utf_32_le_encode("".join(sorted(set(codes))), "surrogatepass")[0]) << 32
