"""Scores of all tools at once: bit sets as big integers.

What a word of the query adds to each tool's score is rounded up to six bits, and each of the six is one big integer
with a bit for every slot. They are put together from the tiers of the catalogue's words, which many queries share.
Adding the words up for the whole catalogue is then a handful of integer operations (one microsecond each for 100,000
tools), and the best are read off from the top bit down. As every rounding is upwards, the sums are upper bounds, and
the best tools by exact score are known for certain once the worst of them beats the bound of all that were not looked
at.

The addition of bit slices is that of O'Neil and Quass, "Improved Query Performance with Variant Indexes", SIGMOD 1997.
"""

from __future__ import annotations

import math
import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import Final, NamedTuple

PLANES: Final = 6
_TOP: Final = (1 << PLANES) - 1
_PER_OCTAVE: Final = 16
_FEW: Final = 3000
_COARSE: Final = [*(odds / (1 + odds) for odds in (0.25, 0.5, 1, 2, 4, 8, 16)), 1.0]
_FINE: Final = [*(odds / (1 + odds) for odds in (2 ** (i / 4) for i in range(-8, 17))), 1.0]
"""The most that the tiers add, as shares of a word's factor."""
_PLACES: Final = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


class Member(NamedTuple):
    """One of the words that stand for a word of the query: its sign and weight, what it would add to the score of a
    tool that consists of nothing else, and its postings."""

    sign: str
    weight: float
    factor: float
    postings: array[int]


class WordPlanes(NamedTuple):
    """What a word of the query adds to every tool's score, rounded up: plane *i* counts `2 ** (i + exponent)`.

    `factors` and `mean_length` are those that it was built with.
    """

    planes: list[int]
    exponent: int
    factors: tuple[float, ...]
    mean_length: float
    size: int


class Tiers(NamedTuple):
    """The tools that have a word, as bits, in tiers: each with the share of the word's factor that the word adds at
    most to the score of a tool of that tier. No tool is in two."""

    tiers: list[tuple[float, int]]
    size: int


class Levels(dict[int, int]):
    """The tier of a posting by its count and the class of the tool's length, as `count | class << 8`; computed when it
    is first asked for.

    `flat + slope * length` is what BM25 adds to a count in the denominator. Fine ones cost more to build for many
    tools, and leave less tools to look at one by one.
    """

    def __init__(self, flat: float, slope: float, *, fine: bool) -> None:
        super().__init__()
        self.shares: list[float] = _FINE if fine else _COARSE
        self._norms = [flat + slope * (2 ** (i / _PER_OCTAVE) if i else 0.0) for i in range(256)]

    def __missing__(self, key: int) -> int:
        count = key & 255
        level = self[key] = bisect_left(self.shares, count / (count + self._norms[key >> 8]))
        return level


@lru_cache(maxsize=4096)
def length_class(length: float) -> int:
    """Return the class of a document's length, 16 to each doubling; 0 to 255."""
    return min(int(math.log2(length) * _PER_OCTAVE), 255) if length > 1 else 0


def build_tiers(postings: array[int], classes: bytearray, levels: Levels) -> Tiers:
    """Return the tiers of a word; *classes* are the tools' classes of length."""
    nothing = bytearray((len(classes) >> 3) + 1)
    buffers = [nothing[:] for _ in levels.shares]
    for posting in postings:
        slot = posting >> 8
        buffers[levels[posting & 255 | classes[slot] << 8]][slot >> 3] |= 1 << (slot & 7)
    pairs = zip(levels.shares, buffers, strict=True)
    tiers = [(share, int.from_bytes(buffer, "little")) for share, buffer in pairs if buffer != nothing]
    return Tiers(tiers, len(tiers) * len(nothing))


def build_planes(
    factors: tuple[float, ...], tiers: Sequence[Tiers | None], everywhere: int, drift: float, mean: float
) -> WordPlanes:
    """Return the planes of a word whose members have these *factors*; the best of them counts for each tool.

    A member without *tiers* counts in full for *everywhere*, the bits of all tools. *drift* is the factor by which
    shares may have grown since the tiers were built.
    """
    exponent = math.ceil(math.log2(max(factors) / _TOP))
    unit = drift * 2.0**-exponent
    at: dict[int, int] = {}
    for factor, found in zip(factors, tiers, strict=True):
        scale = factor * unit
        for share, bits in found.tiers if found is not None else ((1.0, everywhere),):
            level = min(math.ceil(scale * share), _TOP)
            at[level] = at[level] | bits if level in at else bits
    planes = [0] * PLANES
    seen = 0
    for level in sorted(at, reverse=True):
        bits = at[level]
        bits ^= bits & seen
        seen |= bits
        for i in _PLACES[level]:
            planes[i] |= bits
    size = sum(plane.bit_length() for plane in planes) // 8
    return WordPlanes(planes, exponent, factors, mean, size)


def add_planes(total: list[int], planes: Sequence[int], offset: int) -> None:
    """Add the numbers in *planes*, times `2 ** offset`, to those in *total*, for every bit."""
    while len(total) < offset + len(planes):
        total.append(0)
    carry = 0
    for i, plane in enumerate(planes, offset):
        old = total[i]
        either = old ^ plane
        total[i] = either ^ carry
        carry = old & plane | carry & either
    i = offset + len(planes)
    while carry:
        if i == len(total):
            total.append(0)
        old = total[i]
        total[i] = old ^ carry
        carry &= old
        i += 1


def best_of(total: Sequence[int], among: int, wanted: int) -> tuple[int, int, int]:
    """Return the highest numbers of *total* among some bits: those that are surely of the *wanted* best, those that are
    equal at the end of these, and the number which the latter have. When that is 0, nothing is left of any worth."""
    sure, equal, bound, count = 0, among, 0, 0
    for i in range(len(total) - 1, -1, -1):
        having = equal & total[i]
        if not having:
            continue
        size = having.bit_count()
        if count + size >= wanted:
            equal = having
            bound |= 1 << i
        else:
            sure |= having
            count += size
            equal ^= having
    return sure, equal, bound


def slots_of(bits: int) -> list[int]:
    """Return the numbers of the bits that are set, in order."""
    words = array("Q", bits.to_bytes(-(-bits.bit_length() // 64) * 8, "little"))
    if sys.byteorder != "little":
        words.byteswap()
    found: list[int] = []
    for i in compress(range(len(words)), words):
        word, before = words[i], (i << 6) - 1
        while word:
            lowest = word & -word
            found.append(before + lowest.bit_length())
            word ^= lowest
    return found


def bits_of(slots: Sequence[int], size: int) -> int:
    """Return the big integer with these bits set, all below *size*."""
    if len(slots) > _FEW:
        flags = bytearray(b"0") * size
        for slot in slots:
            flags[slot] = 49
        flags.reverse()
        return int(flags, 2) if flags else 0
    buffer = bytearray((size >> 3) + 1)
    for slot in slots:
        buffer[slot >> 3] |= 1 << (slot & 7)
    return int.from_bytes(buffer, "little")
