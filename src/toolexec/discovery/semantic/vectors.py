"""Where the vectors of tools are kept, and which of them are closest to a query's."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toolexec.discovery.search import Accept, Hit
from toolexec.discovery.semantic.rows import MAX_DIMENSIONS, Rows, empty_rows, finite
from toolexec.errors import ConfigurationError
from toolexec.model.settings import checked

_MAGIC = b"toolexec vectors 1\n"
_DIGEST_BYTES = 16
_SPARE_SLOTS = 1024


@dataclass(frozen=True, slots=True)
class VectorEntry:
    """A tool's vector. `mark` says what it was made from, so that it need not be made again; see `marks` of a store."""

    tool_id: str
    vector: Sequence[float]
    mark: str = ""


class VectorStore(Protocol):
    """Keeps one vector for a tool and finds the closest ones. All have the same length.

    It may be called on several threads at once. `add` and `search` raise ConfigurationError for a vector of another
    length than the first, or with numbers that are not finite.
    """

    def add(self, entries: Sequence[VectorEntry]) -> None:
        """Keep these, all or none; the vector of a known tool is replaced."""
        ...

    def remove(self, tool_ids: Iterable[str]) -> None:
        """Forget tools; unknown IDs are ignored."""
        ...

    def marks(self) -> Mapping[str, str]:
        """Return the mark of each tool that there is a vector of, as a copy."""
        ...

    def search(
        self, vector: Sequence[float], limit: int, accept: Accept | None = None, *, above: float = 0.0
    ) -> list[Hit]:
        """At most *limit* tools that *accept* lets through with a cosine above *above* (0 or more) as their score, by
        score, highest first, then by ID. *accept* must be called without a lock held."""
        ...

    def scores(self, vector: Sequence[float], tool_ids: Iterable[str]) -> dict[str, float]:
        """Return the cosines, from -1 to 1, of those tools that there is a vector of."""
        ...

    def __len__(self) -> int:
        """Return how many tools there are."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


@checked("InMemoryVectors")
class InMemoryVectors:
    """A `VectorStore` in this process's memory. Searches are exact; a vector takes a byte for each of its numbers.

    Storing rounds cosines by some 0.001. With numpy (in the `semantic` extra), a search among 100,000 vectors of 256
    numbers takes a few ms; without it, some 10 us a vector. Scores are the same. *dimensions* is the length of the
    vectors; when left out, that of the first. Raises ConfigurationError unless it is from 1 to 8,192.
    """

    def __init__(self, dimensions: int | None = None) -> None:
        self._lock = threading.Lock()
        self._dimensions = dimensions
        self._rows: Rows | None = None if dimensions is None else empty_rows(_checked_dimensions(dimensions))
        self._ids: list[str] = []  # by slot; "" in an empty one
        self._slots: dict[str, int] = {}
        self._marks: dict[str, str] = {}
        self._empty: list[int] = []

    @property
    def dimensions(self) -> int | None:
        """How long a vector is; None as long as that is open."""
        return self._dimensions

    def add(self, entries: Sequence[VectorEntry]) -> None:
        """Implement `VectorStore.add`."""
        latest = {entry.tool_id: entry for entry in entries}
        if not latest:
            return
        with self._lock:
            length = self._dimensions or _checked_dimensions(len(entries[0].vector))
            vectors = _checked([entry.vector for entry in latest.values()], length)
            if self._rows is None:
                self._rows, self._dimensions = empty_rows(length), length
            self._rows.put([self._slot(tool_id) for tool_id in latest], vectors)
            self._marks.update((tool_id, entry.mark) for tool_id, entry in latest.items())

    def remove(self, tool_ids: Iterable[str]) -> None:
        """Implement `VectorStore.remove`."""
        with self._lock:
            for tool_id in tool_ids:
                slot = self._slots.pop(tool_id, None)
                if slot is not None and self._rows is not None:
                    del self._marks[tool_id]
                    self._ids[slot] = ""
                    self._rows.clear(slot)
                    self._empty.append(slot)
            if len(self._empty) > max(len(self._slots), _SPARE_SLOTS):
                self._compact()

    def marks(self) -> Mapping[str, str]:
        """Implement `VectorStore.marks`."""
        with self._lock:
            return dict(self._marks)

    def search(
        self, vector: Sequence[float], limit: int, accept: Accept | None = None, *, above: float = 0.0
    ) -> list[Hit]:
        """Implement `VectorStore.search`."""
        if limit < 1:
            return []
        with self._lock:
            if self._rows is None:
                return []
            query = self._query(vector)
            ids = self._ids if accept is None else list(self._ids)
            runs = self._rows.runs(query, limit, max(above, 0.0))
            if accept is None:
                return _ranked(next(runs, []), ids)[:limit]
        hits: list[Hit] = []
        for run in runs:
            for hit in _ranked(run, ids):
                if accept(hit.tool_id):
                    hits.append(hit)
                    if len(hits) == limit:
                        return hits
        return hits

    def scores(self, vector: Sequence[float], tool_ids: Iterable[str]) -> dict[str, float]:
        """Implement `VectorStore.scores`."""
        with self._lock:
            if self._rows is None:
                return {}
            query = self._query(vector)
            known = [(tool_id, self._slots[tool_id]) for tool_id in tool_ids if tool_id in self._slots]
            cosines = self._rows.cosines(query, [slot for _, slot in known])
            return {tool_id: cosine for (tool_id, _), cosine in zip(known, cosines, strict=True)}

    def __len__(self) -> int:
        """Return how many tools there are."""
        return len(self._slots)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def dump(self) -> bytes:
        """Return all of it as bytes, for `load`."""
        with self._lock:
            self._compact()
            header = {"dimensions": self._dimensions, "ids": self._ids, "marks": [self._marks[i] for i in self._ids]}
            numbers = self._rows.dump() if self._rows is not None else b""
        text = json.dumps(header, separators=(",", ":")).encode()
        body = _MAGIC + len(text).to_bytes(8, "big") + text + numbers
        return body + hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()

    @classmethod
    def load(cls, data: bytes) -> InMemoryVectors:
        """Return a store with what `dump` gave; raises ConfigurationError for other or damaged bytes."""
        body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if not body.startswith(_MAGIC) or hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
            raise ConfigurationError("these bytes are no snapshot of vectors, or a damaged one; make a new one")
        start = len(_MAGIC) + 8
        end = start + int.from_bytes(body[len(_MAGIC) : start], "big")
        try:
            header: Any = json.loads(body[start:end])
            store = cls(header["dimensions"])
            store._fill(header["ids"], header["marks"], body[end:])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ConfigurationError("this snapshot of vectors makes no sense; make a new one") from error
        return store

    def _fill(self, ids: list[Any], marks: list[Any], numbers: bytes) -> None:
        if not all(isinstance(text, str) and text for text in ids) or not all(isinstance(mark, str) for mark in marks):
            raise ValueError("IDs and marks are strings")
        if len(numbers) != len(ids) * (self._dimensions or 0):
            raise ValueError("there are more or fewer numbers than the IDs need")
        self._ids, self._slots = ids, {tool_id: slot for slot, tool_id in enumerate(ids)}
        self._marks = dict(zip(ids, marks, strict=True))
        if len(self._slots) != len(ids):
            raise ValueError("an ID is there twice")
        if self._rows is not None:
            self._rows.load(numbers)

    def _query(self, vector: Sequence[float]) -> list[float]:
        return [float(number) for number in _checked([vector], self._dimensions or 0)[0]]

    def _slot(self, tool_id: str) -> int:
        slot = self._slots.get(tool_id)
        if slot is None:
            slot = self._empty.pop() if self._empty else len(self._ids)
            self._ids[slot : slot + 1] = [tool_id]
            self._slots[tool_id] = slot
        return slot

    def _compact(self) -> None:
        if self._empty and self._rows is not None:
            kept = [slot for slot, tool_id in enumerate(self._ids) if tool_id]
            self._rows.keep(kept)
            self._ids = [self._ids[slot] for slot in kept]
            self._slots = {tool_id: slot for slot, tool_id in enumerate(self._ids)}
            self._empty = []


def _ranked(run: Iterable[tuple[float, int]], ids: Sequence[str]) -> list[Hit]:
    ranked = sorted((-cosine, ids[slot]) for cosine, slot in run)
    return [Hit(tool_id, -negative) for negative, tool_id in ranked]


def _checked(vectors: Sequence[Sequence[float]], length: int) -> Sequence[Sequence[float]]:
    try:
        return finite(vectors, length)
    except (TypeError, ValueError, OverflowError) as error:
        message = f"a vector is a sequence of {length} finite numbers here, as long as the first one"
        raise ConfigurationError(message) from error


def _checked_dimensions(dimensions: object) -> int:
    if not isinstance(dimensions, int) or not 1 <= dimensions <= MAX_DIMENSIONS:
        raise ConfigurationError(f"vectors have 1 to {MAX_DIMENSIONS:,} numbers, not {dimensions!r}")
    return dimensions
