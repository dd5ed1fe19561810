"""Vectors as rows of small integers, and their exact cosines: with numpy where that is installed, else in plain Python.

A vector is stored as integers from -127 to 127, its largest one 127, in a byte each. A query keeps more digits,
but no more than let every sum of products stay below 2**24: such sums are exact in 32-bit floats, in whatever order
they are added up. So a score depends on nothing but the two vectors, and both kinds of rows give the same.
"""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from operator import mul
from typing import Any, Protocol

MAX_DIMENSIONS = 8192
_TOP = 127
_EXACT = 2.0**24
_BLOCK = 1 << 18
"""So many numbers are turned into floats at a time: 1 MB, which stays in a processor's cache."""

Run = list[tuple[float, int]]
"""Cosines with the slots of their rows."""


class Rows(Protocol):
    """Numbered slots with one vector each, all of the same length; an empty slot is all zeros."""

    def put(self, slots: Sequence[int], vectors: Sequence[Sequence[float]]) -> None:
        """Store vectors; a slot that is not there yet must come just after the last one."""
        ...

    def clear(self, slot: int) -> None:
        """Make the slot empty."""
        ...

    def keep(self, slots: Sequence[int]) -> None:
        """Keep only these slots, renumbered in their order."""
        ...

    def runs(self, vector: Sequence[float], first: int, above: float) -> Iterator[Run]:
        """Yield all rows with a cosine above *above*, which is 0 or more, as runs: the first has at least *first* rows
        (if there are as many), every cosine of a run is below all of those before, and equal ones are never parted."""
        ...

    def cosines(self, vector: Sequence[float], slots: Sequence[int]) -> list[float]:
        """Return the cosines of some rows, from -1 to 1; 0 for an empty one."""
        ...

    def dump(self) -> bytes:
        """Return all slots in order, a signed byte for a number."""
        ...

    def load(self, data: bytes) -> None:
        """Replace everything by what `dump` gave; the length must be a multiple of a vector's."""
        ...


@functools.cache
def _has_numpy() -> bool:
    return find_spec("numpy") is not None


def empty_rows(dimensions: int) -> Rows:
    """Rows for vectors of this length, of the faster kind if there is numpy."""
    return NumpyRows(dimensions) if _has_numpy() else PlainRows(dimensions)


def finite(vectors: Sequence[Sequence[float]], dimensions: int) -> Sequence[Sequence[float]]:
    """Return the same as plain numbers, or as a numpy array; raises ValueError unless all are finite and of this
    length."""
    if not all(len(vector) == dimensions for vector in vectors):
        raise ValueError(f"not every vector has {dimensions} numbers")
    if _has_numpy():
        import numpy as np

        numbers: Any = np.array(vectors, np.float64)
        good = numbers.shape == (len(vectors), dimensions) and bool(np.isfinite(numbers).all())
    else:
        numbers = [[float(number) for number in vector] for vector in vectors]
        good = all(math.isfinite(number) for vector in numbers for number in vector)
    if not good:
        raise ValueError("not every number is finite")
    return numbers


def _query_numbers(vector: Sequence[float]) -> list[int]:
    """Return the vector with a length of at most 2**24 / (length of the longest row), in integers."""
    top = max(map(abs, vector), default=0.0)
    if not top:
        return [0] * len(vector)
    scaled = [value / top for value in vector]
    root = math.sqrt(len(vector))
    longest = _EXACT / (_TOP * root) - root  # rounding makes it longer by half of the root at most
    factor = longest / math.sqrt(sum(value * value for value in scaled))
    return [round(value * factor) for value in scaled]


def _length(numbers: Sequence[int]) -> float:
    return math.sqrt(sum(map(mul, numbers, numbers)))


class PlainRows:
    """Rows in an `array`; some 10 us a row and search."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._numbers = array("b")
        self._lengths = array("d")

    def put(self, slots: Sequence[int], vectors: Sequence[Sequence[float]]) -> None:
        """Implement `Rows.put`."""
        for slot, vector in zip(slots, vectors, strict=True):
            top = max(map(abs, vector)) or 1.0
            row = array("b", [round(_TOP * (value / top)) for value in vector])
            if slot == len(self._lengths):
                self._numbers.extend(row)
                self._lengths.append(_length(row))
            else:
                self._numbers[slot * self._dimensions : (slot + 1) * self._dimensions] = row
                self._lengths[slot] = _length(row)

    def clear(self, slot: int) -> None:
        """Implement `Rows.clear`."""
        self.put([slot], [[0.0] * self._dimensions])

    def keep(self, slots: Sequence[int]) -> None:
        """Implement `Rows.keep`."""
        numbers, lengths = array("b"), array("d")
        for slot in slots:
            numbers.extend(self._row(slot))
            lengths.append(self._lengths[slot])
        self._numbers, self._lengths = numbers, lengths

    def runs(self, vector: Sequence[float], first: int, above: float) -> Iterator[Run]:
        """Implement `Rows.runs`."""
        cosines = self.cosines(vector, range(len(self._lengths)))
        run = [(cosine, slot) for slot, cosine in enumerate(cosines) if cosine > above]
        return iter([run] if run else [])

    def cosines(self, vector: Sequence[float], slots: Sequence[int]) -> list[float]:
        """Implement `Rows.cosines`."""
        query = _query_numbers(vector)
        length = _length(query)
        products = (sum(map(mul, query, self._row(slot))) for slot in slots)
        return [p / (self._lengths[slot] * length) if p else 0.0 for p, slot in zip(products, slots, strict=True)]

    def dump(self) -> bytes:
        """Implement `Rows.dump`."""
        return self._numbers.tobytes()

    def load(self, data: bytes) -> None:
        """Implement `Rows.load`."""
        self._numbers = array("b", data)
        self._lengths = array("d", [_length(self._row(slot)) for slot in range(len(data) // self._dimensions)])

    def _row(self, slot: int) -> array[int]:
        return self._numbers[slot * self._dimensions : (slot + 1) * self._dimensions]


class NumpyRows:
    """Rows in a numpy array, which grows by halves; a few ms for a search of 100,000 rows of 256."""

    def __init__(self, dimensions: int) -> None:
        import numpy as np

        self._np: Any = np
        self._dimensions = dimensions
        self._count = 0
        self._numbers: Any = np.zeros((0, dimensions), np.int8)
        self._lengths: Any = np.ones(0)  # 1 for an empty row, whose products are all 0

    def put(self, slots: Sequence[int], vectors: Sequence[Sequence[float]]) -> None:
        """Implement `Rows.put`."""
        np = self._np
        rows = np.array(vectors, np.float64)
        tops = np.abs(rows).max(axis=1, keepdims=True)
        tops[tops == 0] = 1.0
        numbers = np.rint(_TOP * (rows / tops))
        self._reserve(max(slots) + 1)
        self._numbers[slots] = numbers
        self._lengths[slots] = _nonzero(np.sqrt((numbers**2).sum(axis=1)))

    def clear(self, slot: int) -> None:
        """Implement `Rows.clear`."""
        self._numbers[slot] = 0
        self._lengths[slot] = 1.0

    def keep(self, slots: Sequence[int]) -> None:
        """Implement `Rows.keep`."""
        chosen = self._np.array(slots, self._np.intp)
        self._numbers, self._lengths = self._numbers[chosen], self._lengths[chosen]
        self._count = len(slots)

    def runs(self, vector: Sequence[float], first: int, above: float) -> Iterator[Run]:
        """Implement `Rows.runs`."""
        cosines = self._cosines(vector, self._numbers[: self._count], self._lengths[: self._count])
        found = self._np.flatnonzero(cosines > above)
        return self._descending(cosines[found], found, max(first, 1))

    def cosines(self, vector: Sequence[float], slots: Sequence[int]) -> list[float]:
        """Implement `Rows.cosines`."""
        chosen = self._np.array(slots, self._np.intp)
        return self._cosines(vector, self._numbers[chosen], self._lengths[chosen]).tolist()

    def dump(self) -> bytes:
        """Implement `Rows.dump`."""
        return self._numbers[: self._count].tobytes()

    def load(self, data: bytes) -> None:
        """Implement `Rows.load`."""
        np = self._np
        self._numbers = np.frombuffer(data, np.int8).reshape(-1, self._dimensions).copy()
        self._count = len(self._numbers)
        self._lengths = np.ones(self._count)
        for start in range(0, self._count, 1024):
            squares = self._numbers[start : start + 1024].astype(np.float64) ** 2
            self._lengths[start : start + 1024] = _nonzero(np.sqrt(squares.sum(axis=1)))

    def _descending(self, cosines: Any, slots: Any, size: int) -> Iterator[Run]:
        np = self._np
        while len(slots):
            floor = np.partition(cosines, len(slots) - size)[len(slots) - size] if size < len(slots) else 0.0
            above = cosines >= floor
            yield list(zip(cosines[above].tolist(), slots[above].tolist(), strict=True))
            cosines, slots = cosines[~above], slots[~above]
            size *= 4

    def _cosines(self, vector: Sequence[float], rows: Any, lengths: Any) -> Any:
        np = self._np
        numbers = _query_numbers(vector)
        query = np.array(numbers, np.float32)
        products = np.empty(len(rows), np.float32)
        step = max(_BLOCK // self._dimensions, 1)
        floats = np.empty((min(step, len(rows)), self._dimensions), np.float32)
        for start in range(0, len(rows), step):
            block = floats[: len(rows) - start]
            np.copyto(block, rows[start : start + step])
            np.matmul(block, query, out=products[start : start + step])
        return products / (lengths * (_length(numbers) or 1.0))

    def _reserve(self, count: int) -> None:
        np = self._np
        if count > len(self._numbers):
            more = max(count - len(self._numbers), self._count // 2, 64)
            self._numbers = np.concatenate((self._numbers, np.zeros((more, self._dimensions), np.int8)))
            self._lengths = np.concatenate((self._lengths, np.ones(more)))
        self._count = max(count, self._count)


def _nonzero(lengths: Any) -> Any:
    lengths[lengths == 0] = 1.0
    return lengths
