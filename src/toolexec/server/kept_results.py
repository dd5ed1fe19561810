"""Results that are read page by page, as records that outlive the server and that others can read.

A record is encrypted with a key that is made of the result's handle and of the server's `state_keys`. A store knows no
handles: who can read all of it can read no result.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Final, TypeAlias, TypeVar

from toolexec.errors import ConfigurationError, StateError
from toolexec.model.origin import Origin
from toolexec.run.results import ResultStore, owner_of
from toolexec.server.sealing import opened, sealed
from toolexec.server.state import StateStore, key_of

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")
_Owner: TypeAlias = tuple[str, ...]
_LIST: Final = key_of("results")
_PIECE: Final = 256 * 1024  # so long is a record: none holds up what else is stored
_MOST: Final = 500
_TRIES: Final = 50
_LATER: Final = 1.1


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the list of all results says of one: the name of its records and how many, whose it is, how long they are
    together, and when its time is over, in seconds since 1970."""

    name: str
    pieces: int
    owner: str
    size: int
    until: float


class KeptResults:
    """The records of what *results* keeps, in what *store* gives, at most *max_bytes* of all callers together.

    A value is kept there for as long as in *results* after each use, and up to a tenth longer. *keys* are the server's
    own: the first seals. Where the store cannot be reached, a value can be read at this server only.
    """

    def __init__(
        self, results: ResultStore, store: Callable[[], StateStore | None], max_bytes: int, keys: Sequence[str] = ()
    ) -> None:
        self._results = results
        self._store = store
        self._max_bytes = max_bytes
        self._keys = tuple(keys) or ("",)
        self._used: dict[str, float] = {}  # when a value was written last, by handle
        self._locks: dict[_Owner, asyncio.Lock] = {}
        results.note_new()

    async def after(self, reply: Awaitable[T], origin: Origin) -> T:
        """Return a reply, or raise its error, once what it may have handles of is written down: for an *origin* of whom
        another server would know whose it is."""
        try:
            found = await reply
        except Exception:
            await self.keep(origin)
            raise
        await self.keep(origin)
        return found

    async def keep(self, origin: Origin) -> None:
        """Write down what has been kept for *origin*: done before the reply that has the handles is sent."""
        owner = owner_of(origin)
        if owner not in self._locks and not self._results.new(origin):
            return
        lock = self._locks.setdefault(owner, asyncio.Lock())
        try:
            async with lock:
                for handle, data in self._results.new(origin).items():
                    await self._keep(handle, owner, data)
                    self._results.noted(handle)  # not where it was cancelled: the next one writes it
        finally:
            if not lock.locked():
                self._locks.pop(owner, None)

    async def find(self, handle: str, origin: Origin) -> None:
        """Have *results* keep what another server has kept under this handle for *origin*, if there is such a thing,
        and keep it longer. Raises StateError where that cannot be found out now."""
        owner = owner_of(origin)
        data = self._results.data(handle, origin)
        if data is None:
            data = await self.read(handle, owner)
            if data is None:
                return
            self._results.adopt(handle, origin, data)
        used, now = self._used.get(handle), time.monotonic()
        is_due = used is None or now - used >= self._results.keep_seconds * (_LATER - 1)
        if is_due and not self._results.is_new(handle):
            await self._keep(handle, owner, data)

    async def _keep(self, handle: str, owner: _Owner, data: bytes) -> None:
        now, pause = time.monotonic(), self._results.keep_seconds
        self._used = {each: used for each, used in self._used.items() if now - used < pause} | {handle: now}
        await self.write(handle, owner, data, pause * _LATER)

    # -- records ------------------------------------------------------------------------------------------------

    async def write(self, handle: str, owner: _Owner, data: bytes, ttl: float) -> None:
        """Keep a value for *ttl* seconds, in place of one that was there; where that fails, the log says it."""
        try:
            store = self._store()
            if store is None or not self._max_bytes or len(data) > self._results.max_kept_bytes:
                return
            text = await asyncio.to_thread(sealed, data, self._keys[0], handle, ("result", *owner))
            if len(text) > self._max_bytes:
                return
            name = key_of("result", handle, *owner)
            pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
            entry = _Entry(name, len(pieces), key_of(*owner), len(text), time.time() + ttl)
            if not await self._enter(store, entry, ttl):
                logger.warning("a result would not outlive this server: others keep too many at once")
                return
            for number, piece in enumerate(pieces):
                await store.put("result", f"{name}/{number}", f"{len(pieces)}:{piece}", ttl)
                await asyncio.sleep(0)
        except (ConfigurationError, StateError) as error:
            logger.error("a result would not outlive this server: %s", error)

    async def _enter(self, store: StateStore, entry: _Entry, ttl: float) -> bool:
        """Put a value on the list of all, and delete what has to go for it; return whether that could be done."""
        for _ in range(_TRIES):
            text = await store.get("result", _LIST)
            now = time.time()
            entries = [each for each in _entries(text) if each.until > now and each.name != entry.name]
            gone: list[_Entry] = []
            while entries and (len(entries) >= _MOST or _total(entries) + entry.size > self._max_bytes):
                gone.append(_least_missed(entries, entry))
                entries.remove(gone[-1])
            new = json.dumps([astuple(each) for each in (*entries, entry)], separators=(",", ":"))
            longest = max(ttl, *(each.until - now for each in entries)) if entries else ttl
            if text is None:
                is_done = await store.add("result", _LIST, new, longest)
            else:
                is_done = await store.swap("result", _LIST, text, new, longest)
            if is_done:
                for each in gone:
                    for number in range(each.pieces):
                        await store.delete("result", f"{each.name}/{number}")
                return True
        return False

    async def read(self, handle: str, owner: _Owner) -> bytes | None:
        """Return a value that is kept; None for none. Raises StateError."""
        name = key_of("result", handle, *owner)
        try:
            store = self._store()
            first = await store.get("result", f"{name}/0") if store is not None else None
            count, _, piece = (first or "").partition(":")
            if store is None or not count.isdecimal():
                return None
            pieces = [piece]
            for number in range(1, int(count)):
                more = await store.get("result", f"{name}/{number}")
                if more is None:
                    return None
                pieces.append(more.partition(":")[2])
        except ConfigurationError as error:
            logger.error("a result of another server cannot be read: %s", error)
            return None
        return await asyncio.to_thread(opened, "".join(pieces), self._keys, handle, ("result", *owner))


def _entries(text: str | None) -> list[_Entry]:
    """Return the list of all; an empty one for what no server can have written."""
    try:
        return [_Entry(*each) for each in json.loads(text or "[]")]
    except (ValueError, TypeError):
        logger.error("the list of results in the store of a server's state is damaged; a new one begins")
        return []


def _total(entries: Sequence[_Entry]) -> int:
    return sum(each.size for each in entries)


def _least_missed(entries: Sequence[_Entry], newest: _Entry) -> _Entry:
    """Return the one that goes: the least recently used one of the owner who has most, *newest* counted."""
    sizes: dict[str, int] = {}
    for each in (*entries, newest):
        sizes[each.owner] = sizes.get(each.owner, 0) + each.size
    owned = {each.owner for each in entries}
    loser = max(owned, key=lambda owner: sizes[owner])
    return next(each for each in entries if each.owner == loser)
