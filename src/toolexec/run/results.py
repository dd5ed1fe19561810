"""Results that are too large to be read at once: kept under a handle, shown as an outline, read page by page."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from toolexec.errors import InvalidResultError, ResultNotFoundError
from toolexec.model.declared import setting
from toolexec.model.origin import Origin
from toolexec.model.settings import checked
from toolexec.run.large import COMPACT, json_pieces, surely_fits
from toolexec.run.outline import Outline, outline
from toolexec.run.reading import Page, find_places, page_of, select
from toolexec.run.settings import MIN_BYTES, ResultSettings
from toolexec.run.tokens import VALUES, TokenCounter, estimated

__all__ = ["ResultStore", "Shown", "owner_of"]

_Owner: TypeAlias = tuple[str, ...]
_BETWEEN: Final = b"\0"  # JSON has none
_MARGIN: Final = 0.9
"""Of what fits by the mean of the whole: an outline has more tokens to the byte than most values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of a value: the value itself when it fits, else an outline, with the `handle` of the whole.

    `bytes` is the size of the whole as JSON where an outline is shown, else 0. The handle is empty for a value that is
    shown whole, and for one that is too large to be kept.
    """

    value: Any
    handle: str = ""
    bytes: int = 0


@dataclass(slots=True)
class _Kept:
    owner: _Owner
    data: bytes
    used: float
    tools: frozenset[str]


@checked("ResultStore")
@dataclass(eq=False, repr=False, kw_only=True)
class ResultStore(ResultSettings):
    """Keeps what is too large for one reply, each value for those who may read it.

    *max_bytes* is the budget of one reply: its JSON, compact and in UTF-8 (at least 1000). *max_tokens*, if it is not
    0, is another one, by *tokens*, which counts those of a text; less than 1000 bytes always fit. A kept value goes
    *keep_seconds* after it was last read, or earlier when more than *max_kept* values or *max_kept_bytes* are kept:
    then the caller that keeps most loses what it has not read for the longest time. *clock* gives seconds.

    A handle cannot be guessed, and works only for the caller that it was made for (for the session, where the caller
    is anonymous). Safe to use from several threads. Raises ConfigurationError for numbers that make no sense.
    """

    max_kept: int = setting(1000, "How many values are kept in all.", above=0)
    tokens: TokenCounter = estimated
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # the least recently used one first
        self._total = 0
        self._decoded: tuple[str, Any] = ("", None)  # the value that was read last, for who reads on
        self._new: set[str] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            self._drop_expired()
            return len(self._kept)

    @property
    def kept_bytes(self) -> int:
        """How many bytes of JSON are kept just now."""
        with self._lock:
            self._drop_expired()
            return self._total

    def show(self, value: Any, origin: Origin, max_bytes: int | None = None) -> Shown:
        """*value* as it may be shown within *max_bytes* (None: the store's; less than 1000 counts as 1000).

        A value that fits is given as it is. Of a larger one there is an Outline, and *origin* can read the whole. An
        outline that is shown again stays that, with the same handle, or gets smaller. Raises InvalidResultError for a
        value that cannot be written as JSON.
        """
        limit = self.max_bytes if max_bytes is None else max(max_bytes, MIN_BYTES)
        if self.surely_fits(value, limit):
            return Shown(value=value)
        again = isinstance(value, Outline)
        data = _written(value)
        limit = self.room_for(data, limit)
        if len(data) <= limit:
            return Shown(value=value, handle=value["handle"], bytes=value["bytes"]) if again else Shown(value=value)
        handle = value["handle"] if again else ""
        kept = self._find(handle, origin) if handle else None
        if kept is not None:
            data, value = kept.data, json.loads(kept.data)
        else:
            handle = self._keep(data, origin)
        whole = value if isinstance(value, str | dict | list | tuple) else data.decode("utf-8", "surrogatepass")
        word = f", for {self.keep_seconds / 60:.3g} minutes after each use" if handle else ""
        seen = outline(whole, total=len(data), max_bytes=limit, handle=handle, kept=word)
        return Shown(value=seen, handle=handle, bytes=len(data))

    def surely_fits(self, value: Any, max_bytes: int) -> bool:
        """Return whether *value* is so small that it is shown whole within *max_bytes*, without encoding it. A token
        is a byte at least, so what has few bytes has few tokens."""
        return surely_fits(value, min(max_bytes, self.max_tokens) if self.max_tokens else max_bytes)

    def room_for(self, data: bytes | str, max_bytes: int) -> int:
        """Return how many bytes of JSON may be shown of *data*: *max_bytes*, or less where it has more tokens than
        `max_tokens`, and then as many bytes as have so many tokens (at least 1000)."""
        size = len(data)
        if not self.max_tokens or size <= self.max_tokens:
            return max_bytes
        text = data if isinstance(data, str) else data[:max_bytes].decode("utf-8", "replace")
        tokens = self.tokens(text[:max_bytes], VALUES)
        if tokens <= self.max_tokens:
            return max_bytes
        return max(min(int(min(size, max_bytes) * self.max_tokens / tokens * _MARGIN), max_bytes), MIN_BYTES)

    def keep(self, value: Any, origin: Origin) -> str:
        """Keep *value* whatever its size and give its handle; empty when it is too large to be kept."""
        return self._keep(_written(value), origin)

    def read(
        self,
        handle: str,
        origin: Origin,
        *,
        path: str = "",
        offset: int = 0,
        limit: int | None = None,
        grep: str = "",
        as_json: bool = False,
        max_bytes: int | None = None,
    ) -> Page:
        """Return a page of what is kept under *handle*: of text from character *offset* on, of an array from that item,
        of an object from that key, as much as fits *max_bytes* (1000 at least, the store's at most) and at most
        *limit*.

        *path* selects a part first (`items[0].name`, or JMESPath). *grep* gives the places where a text or a /pattern/
        is found instead. With *as_json* the JSON text is paged: all pages together are exactly what was kept.

        Raises ResultNotFoundError for a handle that is unknown, expired or another caller's, and InputValidationError
        for a path, pattern or number that makes no sense, and an offset past the end.
        """
        kept = self._find(handle, origin)
        if kept is None:
            raise ResultNotFoundError(
                "no result is kept under this handle: it may have expired; run the tool again for a new one", op="read"
            )
        room = self.max_bytes if max_bytes is None else min(max(max_bytes, MIN_BYTES), self.max_bytes)
        room = self.room_for(kept.data, room)
        part = select(self._value(handle, kept), path)
        if grep:
            return find_places(part, path, grep, offset, limit, room)
        return page_of(part, path, offset, limit, room, as_json=as_json)

    def tools(self, handle: str, origin: Origin) -> frozenset[str]:
        """Return the IDs of the tools that what *origin* can read under *handle* came of, where its `used_tools` said
        it."""
        kept = self._find(handle, origin)
        return kept.tools if kept is not None else frozenset()

    # -- for who keeps it elsewhere, too ------------------------------------------------------------------------

    def note_new(self) -> None:
        """From now on have `new` return what is kept."""
        with self._lock:
            self._new = set() if self._new is None else self._new

    def new(self, origin: Origin) -> dict[str, bytes]:
        """Return, by handle, the record of what is kept for *origin* and was not `noted` yet."""
        if not self._new:
            return {}
        owner = owner_of(origin)
        with self._lock:
            return {handle: _record(kept) for handle in self._new if (kept := self._kept[handle]).owner == owner}

    def is_new(self, handle: str) -> bool:
        """Return whether a value is kept that was not `noted` yet."""
        return self._new is not None and handle in self._new

    def noted(self, handle: str) -> None:
        """Have `new` return a value no more."""
        with self._lock:
            if self._new is not None:
                self._new.discard(handle)

    def data(self, handle: str, origin: Origin) -> bytes | None:
        """Return the record of what *origin* can read under this handle, which counts as a use; None for nothing."""
        kept = self._find(handle, origin)
        return _record(kept) if kept is not None else None

    def adopt(self, handle: str, origin: Origin, data: bytes) -> None:
        """Keep the record of a value that was kept elsewhere under this handle, for *origin*; another one that has the
        handle stays."""
        tools, _, value = data.rpartition(_BETWEEN)
        with self._lock:
            self._drop_expired()
            if handle not in self._kept and len(data) <= self.max_kept_bytes:
                self._put(handle, origin, value, frozenset(json.loads(tools or b"[]")))

    # -- what is kept -------------------------------------------------------------------------------------------

    def _find(self, handle: str, origin: Origin) -> _Kept | None:
        """Return what is kept under the handle for this origin; it counts as used now."""
        with self._lock:
            self._drop_expired()
            kept = self._kept.get(handle)
            if kept is None or kept.owner != owner_of(origin):
                return None
            kept.used = self.clock()
            self._kept.move_to_end(handle)
            return kept

    def _value(self, handle: str, kept: _Kept) -> Any:
        known, value = self._decoded
        if known == handle:
            return value
        value = json.loads(kept.data)
        with self._lock:
            if handle in self._kept:
                self._decoded = (handle, value)
        return value

    def _keep(self, data: bytes, origin: Origin) -> str:
        if len(data) > self.max_kept_bytes:
            return ""
        handle = f"r-{secrets.token_urlsafe(12)}"
        with self._lock:
            self._drop_expired()
            if self._new is not None:
                self._new.add(handle)
            self._put(handle, origin, data, frozenset(origin.used_tools or ()))
        return handle

    def _put(self, handle: str, origin: Origin, data: bytes, tools: frozenset[str]) -> None:
        self._kept[handle] = _Kept(owner_of(origin), data, self.clock(), tools)
        self._total += len(data)
        while len(self._kept) > self.max_kept or self._total > self.max_kept_bytes:
            self._drop(self._least_missed(handle))

    def _least_missed(self, newest: str) -> str:
        """Return the handle to drop: the least recently used one of the owner who keeps most, and never the newest
        of all."""
        sizes: Counter[_Owner] = Counter()
        for kept in self._kept.values():
            sizes[kept.owner] += len(kept.data)
        for owner, _ in sizes.most_common():
            for handle, kept in self._kept.items():
                if kept.owner == owner and handle != newest:
                    return handle
        return newest

    def _drop_expired(self) -> None:
        oldest = self.clock() - self.keep_seconds
        while self._kept and next(iter(self._kept.values())).used < oldest:
            self._drop(next(iter(self._kept)))

    def _drop(self, handle: str) -> None:
        self._total -= len(self._kept.pop(handle).data)
        if self._new is not None:
            self._new.discard(handle)
        if self._decoded[0] == handle:
            self._decoded = ("", None)


def _record(kept: _Kept) -> bytes:
    """Return what `ResultStore.adopt` takes: the JSON of a value, after the IDs of the tools that it came of."""
    return b"".join((json.dumps(sorted(kept.tools)).encode(), _BETWEEN, kept.data)) if kept.tools else kept.data


def owner_of(origin: Origin) -> _Owner:
    """Return whose the values are that are kept for *origin*: those of its caller, else of its session."""
    caller = origin.caller
    return ("caller", caller.realm, caller.id) if caller.id else ("session", caller.realm, origin.session)


def _written(value: Any) -> bytes:
    """*value* as `encode` writes it, in short steps, as other threads wait meanwhile; raises as that does."""
    try:
        return "".join(json_pieces(value, encode=COMPACT)).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidResultError(f"the result cannot be written as JSON: {error}", op="normalize") from error
