"""Scores of all tools at once: bit sets as big integers.

What a word of the query adds to each tool's score is rounded up to six bits, and each of the six is one big integer
with a bit for every slot. Adding the words up for the whole catalogue is then a handful of integer operations (one
microsecond each for 100,000 tools), and the best are read off from the top bit down. As every rounding is upwards, the
sums are upper bounds, and the best tools by exact score are known for certain once the worst of them beats the bound
of all that were not looked at.

The addition of bit slices is that of O'Neil and Quass, "Improved Query Performance with Variant Indexes", SIGMOD 1997.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "PLANES",
    "Member",
    "WordPlanes",
    "add_planes",
    "best_of",
    "bits_of",
    "build_planes",
    "length_class",
    "slots_of",
]

PLANES: Final = 6
_TOP: Final = (1 << PLANES) - 1
_PER_OCTAVE: Final = 16
_FEW: Final = 3000
_BYTE: Final = re.compile(rb"[^\0]")
_BITS: Final = [bytes(48 + (value >> bit & 1) for value in range(256)) for bit in range(PLANES)]
_PLACES: Final = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


@dataclass(frozen=True, slots=True)
class Member:
    """One of the words that stand for a word of the query: its sign and weight, what it would add to the score of a
    tool that consists of nothing else, and its postings."""

    sign: str
    weight: float
    factor: float
    postings: array[int]


@dataclass(frozen=True, slots=True)
class WordPlanes:
    """What a word of the query adds to every tool's score, rounded up: plane *i* counts `2 ** (i + exponent)`.

    `factors` and `mean_length` are those that it was built with.
    """

    planes: list[int]
    exponent: int
    factors: tuple[float, ...]
    mean_length: float
    size: int


def length_class(length: float) -> int:
    """Return the class of a document's length, 16 to each doubling; 0 to 255."""
    return min(int(math.log2(length) * _PER_OCTAVE), 255) if length > 1 else 0


def build_planes(members: Sequence[Member], classes: bytearray, flat: float, slope: float, mean: float) -> WordPlanes:
    """Return the planes of a word with these members, of which the best counts for each tool.

    *classes* are the tools' classes of length; `flat + slope * length` is what BM25 adds to a count in the
    denominator.
    """
    top = max(member.factor for member in members)
    exponent = math.ceil(math.log2(top / _TOP))
    unit = 2.0**-exponent
    norms = [flat + slope * (2 ** (i / _PER_OCTAVE) if i else 0.0) for i in range(256)]
    total = sum(len(member.postings) for member in members)
    if total <= _FEW and len(classes) > 512:
        planes = _sparse(members, classes, norms, unit)
    else:
        planes = _dense(members, classes, norms, unit)
    size = sum(plane.bit_length() for plane in planes) // 8
    return WordPlanes(planes, exponent, tuple(member.factor for member in members), mean, size)


class _Levels(dict[int, int]):
    """What a word adds to a score, in units, rounded up: by its count and the class of the tool's length, as
    `count | class << 8`; worked out when it is first asked for."""

    def __init__(self, scale: float, norms: Sequence[float]) -> None:
        super().__init__()
        self._scale = scale
        self._norms = norms

    def __missing__(self, key: int) -> int:
        count = key & 255
        level = self[key] = min(math.ceil(self._scale * count / (count + self._norms[key >> 8])), _TOP)
        return level


def _dense(members: Sequence[Member], classes: bytearray, norms: Sequence[float], unit: float) -> list[int]:
    levels = bytearray(len(classes))
    for i, member in enumerate(members):
        known = _Levels(member.factor * unit, norms)
        for posting in member.postings:
            slot = posting >> 8
            level = known[posting & 255 | classes[slot] << 8]
            if i == 0 or level > levels[slot]:
                levels[slot] = level
    levels.reverse()  # the first digit is the highest
    return [int(levels.translate(table), 2) for table in _BITS]


def _sparse(members: Sequence[Member], classes: bytearray, norms: Sequence[float], unit: float) -> list[int]:
    best: dict[int, int] = {}
    for member in members:
        known = _Levels(member.factor * unit, norms)
        for posting in member.postings:
            slot = posting >> 8
            level = known[posting & 255 | classes[slot] << 8]
            if level > best.get(slot, 0):
                best[slot] = level
    buffers = [bytearray((len(classes) >> 3) + 1) for _ in range(PLANES)]
    for slot, level in best.items():
        place, bit = slot >> 3, 1 << (slot & 7)
        for i in _PLACES[level]:
            buffers[i][place] |= bit
    return [int.from_bytes(buffer, "little") for buffer in buffers]


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
    data = bits.to_bytes((bits.bit_length() + 7) >> 3, "little")
    found: list[int] = []
    for match in _BYTE.finditer(data):
        start = match.start()
        base = start << 3
        found += [base + place for place in _PLACES[data[start]]]
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
