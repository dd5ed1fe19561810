"""The events of one stream, kept in memory so that its client can come back to them, and how many of all are kept."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable
from time import monotonic
from typing import Final

from toolexec.errors import ApprovalRequiredError
from toolexec.model.origin import ANYONE
from toolexec.server.http.event_ids import RequestID
from toolexec.server.kept_streams import CallName, Events, KeptStreams

_EVENTS: Final = 100
_BYTES: Final = 1 << 20
_SESSION_STREAMS: Final = 50
_SESSION_BYTES: Final = 4 << 20
_ALL_BYTES: Final = 64 << 20
_KEPT: Final = 600.0


class SessionLog:
    """The streams of a session that *owner* has. `id` is what its client knows it by, once it has one; `caller` is
    that of the last request, with its rights; `watched` are the resources that it watched at another server."""

    def __init__(self, owner: str, session_id: str = "") -> None:
        self.owner = owner
        self.id = session_id
        self.caller = ANYONE
        self.watched: list[str] = []
        self.streams: OrderedDict[str, Stream] = OrderedDict()


class Stream:
    """The events of a stream, the last ones of as many as are kept; `add` takes them, and `after` gives them.

    It is also the `Work` of the call that it answers: with *kept* others know of that, once it is marked. `readers` are
    the connections that it goes to now; `is_taken` says that one of them has got all of it. `tools` are those that the
    answer comes of, by ID.
    """

    def __init__(
        self, log: SessionLog, kept: KeptStreams | None = None, *, most: int = _EVENTS, longest: int = _BYTES
    ) -> None:
        self.log = log
        self.name = ""
        self.request: RequestID = None
        self.body = b""
        self.readers = 0
        self.is_over = False
        self.is_taken = False
        self.is_whole = True
        self.is_kept = False
        self.is_marked = False
        self.size = 0
        self.ended = 0.0
        self.asking = asyncio.Lock()
        self.tools: set[str] = set()
        self._kept = kept
        self._is_begun = False
        self._most, self._longest = most, longest
        self._count = 0
        self._events: deque[tuple[int, str]] = deque()
        self._changed = asyncio.Event()
        self._guard = threading.Lock()
        self._marking = asyncio.Lock()

    @property
    def call(self) -> CallName:
        """What others know it by."""
        return CallName(self.log.id, self.name, self.log.owner)

    def open(self, name: str, request: RequestID) -> None:
        """Have the session know it: it answers *request*, with the ID that the SDK has for it."""
        self.name, self.request, self.body = name, request, b""
        self.log.streams[name] = self

    def add(self, text: str, *, last: bool) -> int:
        """Take an event, and return its number; the *last* one is the answer."""
        self._count += 1
        self._events.append((self._count, text))
        self.size += len(text)
        while self._events and (len(self._events) > self._most or self.size > self._longest):
            self.size -= len(self._events.popleft()[1])
            self.is_whole = bool(self._events)  # without the answer, where that alone is too long
        if last:
            self.is_over, self.ended = True, monotonic()
        self._changed.set()
        self._changed = asyncio.Event()
        return self._count

    def after(self, number: int) -> list[tuple[int, str]]:
        """Return the events after that with this number."""
        return [event for event in self._events if event[0] > number]

    async def changed(self) -> None:
        """Wait for an event."""
        await self._changed.wait()

    def clear(self) -> None:
        """Forget its events, and have the session not know it any more."""
        self._events.clear()
        self.size = 0
        if self.log.streams.get(self.name) is self:
            del self.log.streams[self.name]

    async def ask(self, questions: Events) -> None:
        """Have other servers know which questions of the call are open; with `asking` held, so that the last is what
        they know."""
        if self._kept is not None:
            await self._kept.ask(self.call, questions)

    # -- the call -----------------------------------------------------------------------------------------------

    async def mark(self) -> None:
        """Have other servers know that this one works on the call."""
        self.is_marked = True  # from here on nothing begins without a change of the record
        async with self._marking:
            if self._kept is not None and not self.is_over:
                await self._kept.mark(self.call, begun=self._is_begun)

    def begin(self) -> Awaitable[None] | None:
        """Keep, before it is done, that something is done for the call, where others know of it; any thread may call
        this.

        What it returns raises ApprovalRequiredError where that cannot be kept: others would say that nothing was done.
        """
        with self._guard:
            if self._is_begun or not self.is_marked:
                self._is_begun = True
                return None
        return self._begin()

    async def _begin(self) -> None:
        async with self._marking:
            if self._is_begun or self._kept is None:
                return
            if not await self._kept.begin(self.call):
                raise ApprovalRequiredError(
                    "another server has given this call up, or the store of calls under way cannot be reached",
                    retryable=True,
                )
            self._is_begun = True


class Ended:
    """The streams of all sessions that are over, the oldest first, for ten minutes and within bounds: 50 and 4 MiB of a
    session, and 64 MiB together, of which the caller with most makes room first."""

    def __init__(self) -> None:
        self._streams: OrderedDict[Stream, None] = OrderedDict()
        self._sizes: Counter[str] = Counter()  # by owner

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def size(self) -> int:
        """How long they are together."""
        return self._sizes.total()

    def add(self, stream: Stream) -> None:
        """Keep a stream that is over, and forget those that have to go for it."""
        owner, now = stream.log.owner, monotonic()
        self._streams[stream] = None
        self._sizes[owner] += stream.size
        while (oldest := next(iter(self._streams))) is not stream and now - oldest.ended > _KEPT:
            self.drop(oldest)
        ended = [each for each in stream.log.streams.values() if each.is_over and each is not stream]
        size = stream.size + sum(each.size for each in ended)
        for each in ended:
            if len(ended) < _SESSION_STREAMS and size <= _SESSION_BYTES:
                break
            size -= each.size
            self.drop(each)
            ended = ended[1:]
        while self.size > _ALL_BYTES:
            most = self._sizes.most_common(1)[0][0]
            self.drop(next(each for each in self._streams if each.log.owner == most))

    def drop(self, stream: Stream) -> None:
        """Forget a stream."""
        if stream in self._streams:
            del self._streams[stream]
            self._sizes[stream.log.owner] -= stream.size
            if not self._sizes[stream.log.owner]:
                del self._sizes[stream.log.owner]
        stream.clear()

    def end(self, log: SessionLog) -> None:
        """Forget all streams of a session that is over."""
        for stream in [*log.streams.values()]:
            self.drop(stream)
