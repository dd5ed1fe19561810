"""Answers that a client was not there to take, as records that outlive the server and that others can read.

A call that takes long has a record, too: it says which server works on it, and whether anything was done for it. So the
next server knows whether to wait for the answer, or that there will be none.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from toolexec.errors import ConfigurationError, StateError
from toolexec.server.callers import RequestContext
from toolexec.server.kept_replies import KeptReplies
from toolexec.server.kept_results import KeptResults
from toolexec.server.state import StateStore, key_of

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")
Standing: TypeAlias = Literal["at_work", "not_run", "unknown", "over", "denied"]
"""How a call stands whose answer is not there: a server works on it; none does, and nothing was done for it; none does,
and what was done for it is unknown; it is over; its client may not have the answer any more."""

WORK: Final = "toolexec.work"
"""The key of the `Work` in the scope of a request."""
BEAT: Final = 2.0
"""Seconds between two renewals of the record that a server works on calls."""
_SILENT: Final = 6.0  # so long is that record good
_LASTS: Final = 86_400.0
_KEPT: Final = 600.0
_OVER: Final = 1.0
_ASKS: Final = "\0asks"
_QUESTIONS: Final = 128 << 10
Events: TypeAlias = Sequence[tuple[int, str]]
"""Messages of a stream, as JSON, with their numbers."""


@dataclass(frozen=True, slots=True)
class CallName:
    """A request of a session, and the key of the caller that both belong to."""

    session: str
    request: str
    owner: str


@dataclass(frozen=True, slots=True)
class KeptEvents:
    """What is kept of a stream: the server that it was at, events of it, and the IDs of the tools that they came of."""

    server: str
    events: Events
    tools: Collection[str] = ()


class KeptStreams:
    """The records of calls at *endpoint*, in what *store* gives, with their answers in *results*.

    An answer is there for ten minutes, and a question as long as it is open, within the bytes that results have there
    together, encrypted as they are; *keys* seal what clients reply to questions.
    """

    def __init__(
        self, store: Callable[[], StateStore | None], results: KeptResults, endpoint: str = "", keys: Sequence[str] = ()
    ) -> None:
        self.server: str = secrets.token_hex(8)
        """This process."""
        self.replies: KeptReplies = KeptReplies(store, keys, endpoint)
        """What clients answer to questions of these calls."""
        self._store = store
        self._results = results
        self._endpoint = endpoint

    async def mark(self, call: CallName, *, begun: bool) -> bool:
        """Keep that this server works on a call, and whether anything was done for it; return whether that is kept."""

        async def write(store: StateStore) -> bool:
            await store.put("stream", self._alive(self.server), "here", _SILENT)
            await store.put("stream", self._key(call), self._facts(begun=begun), _LASTS)
            return True

        return await self._try(write) or False

    async def begin(self, call: CallName) -> bool:
        """Keep that something is about to be done for a call that was marked; return whether it may be. It may not
        where another server has said meanwhile that nothing was: this one was silent, as a machine that slept is."""
        key, before, after = self._key(call), self._facts(begun=False), self._facts(begun=True)

        async def write(store: StateStore) -> bool:
            return await store.swap("stream", key, before, after, _LASTS) or await store.add(
                "stream", key, after, _LASTS
            )

        return await self._try(write) or False

    async def beat(self) -> None:
        """Keep that this server still works on the calls that it has marked."""
        await self._try(lambda store: store.put("stream", self._alive(self.server), "here", _SILENT))

    async def over(self, call: CallName) -> None:
        """Keep that a call is over: no server works on it any more."""
        await self._try(lambda store: store.put("stream", self._key(call), json.dumps({"over": True}), _KEPT))

    async def end(self) -> None:
        """Keep that this server works on nothing any more."""
        await self._try(lambda store: store.delete("stream", self._alive(self.server)))

    async def keep(self, call: CallName, events: Events, tools: Collection[str] = ()) -> None:
        """Keep what a client has not got of a call that is over: messages with their numbers, the answer last, and the
        IDs of the *tools* that it came of."""
        await self._write(call, "", KeptEvents(self.server, events, tools), _KEPT)

    async def answer(self, call: CallName) -> KeptEvents | None:
        """Return what `keep` has kept of a call; None for nothing. Raises StateError where that cannot be found out
        now."""
        return await self._read(call, "")

    async def ask(self, call: CallName, questions: Events) -> None:
        """Keep which questions of a call are open, in place of those that were: requests with their numbers. Those from
        the one on that is too long for 128 KiB of all are not kept."""
        kept: list[tuple[int, str]] = []
        for number, text in questions:
            if sum(len(each) for _, each in kept) + len(text) > _QUESTIONS:
                break
            kept.append((number, text))
        await self._write(call, _ASKS, KeptEvents(self.server, kept), _LASTS if kept else _OVER)

    async def questions(self, call: CallName) -> KeptEvents | None:
        """Return the questions of a call that are open; raises as `answer` does."""
        return await self._read(call, _ASKS)

    async def _write(self, call: CallName, what: str, kept: KeptEvents, ttl: float) -> None:
        data = json.dumps([kept.server, kept.events, [*kept.tools]]).encode()
        await self._results.write(self._handle(call) + what, (call.owner,), data, ttl)

    async def _read(self, call: CallName, what: str) -> KeptEvents | None:
        data = await self._results.read(self._handle(call) + what, (call.owner,))
        if data is None:
            return None
        server, events, *tools = json.loads(data)
        return KeptEvents(server, [(number, text) for number, text in events], *tools)

    async def standing(self, call: CallName) -> Standing:
        """Return how a call stands whose answer is not there. Raises StateError as `answer` does."""
        try:
            store = self._store()
            text = await store.get("stream", self._key(call)) if store is not None else None
            if store is None or text is None:
                return "unknown"
            facts: Any = json.loads(text)
            if "over" in facts:
                return "over"
            if "given_up" in facts:
                return "not_run"
            if await store.get("stream", self._alive(facts["server"])) is not None:
                return "at_work"
            if facts["begun"]:
                return "unknown"
            given_up = json.dumps({"given_up": True})  # from here on its server, if it only slept, does nothing for it
            return "not_run" if await store.swap("stream", self._key(call), text, given_up, _LASTS) else "unknown"
        except ConfigurationError as error:
            logger.error("how a call stands cannot be found out: %s", error)
            return "unknown"

    def _facts(self, *, begun: bool) -> str:
        return json.dumps({"server": self.server, "begun": begun})

    def _handle(self, call: CallName) -> str:
        return f"{call.session}\0{call.request}"  # a secret of the client, as the handle of a result is

    def _key(self, call: CallName) -> str:
        return key_of(self._endpoint, "call", call.session, call.request, call.owner)

    def _alive(self, server: str) -> str:
        return key_of("server", server)

    async def _try(self, do: Callable[[StateStore], Awaitable[T]]) -> T | None:
        try:
            store = self._store()
            return await do(store) if store is not None else None
        except (ConfigurationError, StateError) as error:
            logger.error("a call under way would not be known to other servers: %s", error)
            return None


class Work(Protocol):
    """A call whose answer may be asked for again, as who makes it sees it. `tools` are those that it comes of; see
    `Origin.used_tools`."""

    tools: set[str]

    def begin(self) -> Awaitable[None] | None:
        """Keep, before it is done, that something is done for it; see `Origin.on_effect`."""
        ...


def work_of(ctx: RequestContext) -> Work | None:
    """Return the call of a request, where its answer may be asked for again."""
    scope: Any = getattr(ctx.request, "scope", None)
    return scope.get(WORK) if isinstance(scope, dict) else None


@runtime_checkable
class KeepsStreams(Protocol):
    """A server of the MCP SDK that keeps the answers which its clients have missed."""

    kept_streams: KeptStreams
