"""What was written, as a cache must know it: after a write, what was read from the same backend counts no more."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, TypeAlias

from toolexec.discovery.index import Registered
from toolexec.model.binding import Binding
from toolexec.model.call import ToolCall
from toolexec.run.cache_stores import CacheStore
from toolexec.run.layer import CallEnd, ObserverLayer
from toolexec.run.repeating import outcome_of
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner
from toolexec.run.types import Result

Place: TypeAlias = str
"""A backend, whose reads a write makes stale."""

_MAX_PLACES: Final = 10_000
_MARGIN: Final = 86_400.0


class Writes:
    """The state of each backend: a token that each write to it replaces, and that is a part of the keys of its reads.

    It is kept in *store*, too, where there is one, *longest* seconds and a day: so long an answer may be kept at most.
    """

    def __init__(self, store: CacheStore | None, longest: float, clock: Callable[[], float]) -> None:
        self._store = store
        self._longest = longest
        self._clock = clock
        self._tokens: dict[Place, bytes] = {}

    def token(self, place: Place) -> bytes:
        """Return the state of a backend."""
        if self._store is not None:
            found = self._store.get(_key(place), self._clock())
            if found is not None:
                return found[0]
        return self._tokens.get(place, b"")

    def record(self, place: Place) -> None:
        """Note that something was written to the backend, or may have been."""
        token = os.urandom(8)
        self._tokens.pop(place, None)
        self._tokens[place] = token
        if len(self._tokens) > _MAX_PLACES:
            del self._tokens[next(iter(self._tokens))]
        if self._store is not None:
            now = self._clock()
            self._store.put(_key(place), token, now + self._longest + _MARGIN, now)


def place_of(binding: Binding) -> Place:
    """Return the backend that a binding names."""
    return f"{binding.kind}\0{binding.backend}"


def _key(place: Place) -> bytes:
    return blake2b(place.encode("utf-8", "surrogatepass"), person=b"cache-writes", digest_size=24).digest()


class WriteWatch(ObserverLayer):
    """Records calls that may have changed what others read: those of tools that are not *is_read*, unless they have
    certainly done nothing."""

    def __init__(self, writes: Writes, is_read: Callable[[Registered], bool], inner: Runner, find: Find) -> None:
        super().__init__(inner)
        self._writes = writes
        self._is_read = is_read
        self._find = find

    def begin(self, call: ToolCall) -> CallEnd:
        """Implement `ObserverLayer.begin`."""
        entry = resolved(call, self._find)
        if self._is_read(entry):
            return _ignore

        def end(result: Result | None, failure: BaseException | None) -> None:
            is_over = result is not None or failure is not None
            if is_over and not outcome_of(result.error if result is not None else failure).is_undone:
                self._writes.record(place_of(entry.binding))
                if (
                    result is not None and result.binding is not None and result.binding != entry.binding
                ):  # it was made elsewhere
                    self._writes.record(place_of(result.binding))

        return end


def _ignore(result: Result | None, failure: BaseException | None) -> None:
    """Take the end of a call that changes nothing."""
