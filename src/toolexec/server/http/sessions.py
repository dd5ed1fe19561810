"""The sessions of the handshake era, of which each caller has a share."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final
from weakref import WeakValueDictionary

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolexec.errors import StateError
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Caller
from toolexec.model.shares import NoShareError, giving_way
from toolexec.server.auth.credentials import CALLER
from toolexec.server.http.exchange import Exchanges
from toolexec.server.http.replies import caller_key, header, is_stream, owner_of, reply_json
from toolexec.server.http.restoring import post, reopened
from toolexec.server.http.settings import HttpSettings
from toolexec.server.http.stream import SessionLog
from toolexec.server.http.streams import RETRY_MS, Streams
from toolexec.server.kept_sessions import KeepsSessions, KeptSessions
from toolexec.server.rare_warnings import RareWarning

logger: logging.Logger = logging.getLogger(__name__)
_HANDSHAKE: Final = HANDSHAKE_PROTOCOL_VERSIONS[0]  # what a request that names no version belongs to
_INTERNAL_ERROR: Final = -32603


@dataclass(slots=True)
class _Session:
    """A session: whose it is, where it is, the request that opened it, when it was last used, and how many requests it
    has now. One that goes on after its server has ended has another ID inside, `inner`. `kept` is when its record was
    renewed, and `log` has its streams."""

    owner: str
    home: Sessions
    scope: Scope
    used: float
    log: SessionLog
    requests: int = 0
    inner: str = ""
    kept: float = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it has no request now; see `Held`."""
        return self.requests == 0


class SessionRoom:
    """The sessions of all endpoints of a server, which share the room for them."""

    def __init__(self, http: HttpSettings) -> None:
        self.most: int = http.max_sessions
        self.idle: float = http.session_idle
        self.open: OrderedDict[str, _Session] = OrderedDict()  # the least recently used one first
        self.opening: Counter[str] = Counter()  # by owner
        self._warning = RareWarning(logger)

    def count(self) -> int:
        """Return how many sessions there are."""
        self._forget_idle()
        return len(self.open)

    def make_room(self, owner: str) -> list[tuple[str, _Session]]:
        """Take a session out for a new one of *owner*, and return it; empty where none has to end. Raises
        NoShareError."""
        if self.count() + self.opening.total() < self.most:
            return []
        session_id = giving_way(self.open, owner, self.opening)
        if session_id is None:
            return []
        self._warning.log("there are %d sessions; the oldest of %s gives way", self.most, self.open[session_id].owner)
        return [(session_id, self.open.pop(session_id))]

    def _forget_idle(self) -> None:
        """Forget sessions that were idle for so long that the SDK has closed them."""
        oldest = monotonic() - self.idle
        for session_id, session in [*self.open.items()]:
            if session.requests == 0 and session.used <= oldest:
                self.open.pop(session_id).home.streams.end(session.log)


class Sessions:
    """The SDK's sessions, which can be counted, and of which no caller can take all.

    *room* is shared with other endpoints of the server. Once there are as many as there may be, `giving_way` says which
    one ends for the next, or that it is refused.

    The SDK's manager is used as the ASGI application that it is: which sessions there are is read from its answers, and
    a session is ended by the request that its own client would end it with. It has no limit of its own: it would count
    the sessions that are being opened, too, and refuse the next caller.

    A session of which the server keeps a record, but that is not open here, is opened again by the messages that have
    made it, for the caller that it belongs to; its client goes on with the ID that it knows.
    """

    def __init__(self, lowlevel: Server[Any], http: HttpSettings, room: SessionRoom | None = None) -> None:
        self.streams: Streams = Streams(lowlevel, self._hand_in, keeps=not http.json_response)
        self._manager = StreamableHTTPSessionManager(
            lowlevel,
            event_store=None if http.json_response else self.streams,
            retry_interval=RETRY_MS,
            json_response=http.json_response,
            session_idle_timeout=http.session_idle,
            max_request_body_size=http.max_body_bytes,
            max_sessions=None,
        )
        self._modern: ASGIApp = self._manager.asgi_app
        if not http.json_response:
            self._modern = Exchanges(lowlevel, self._modern)
        self._room = room if room is not None else SessionRoom(http)
        self._kept = lowlevel.kept_sessions if isinstance(lowlevel, KeepsSessions) else None
        self._restoring: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of those that requests hold

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Sessions can be opened in the block; at its end all are closed."""
        async with self.streams.running(), self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of either era; only those of the handshake era have sessions."""
        if (header(scope, b"mcp-protocol-version") or _HANDSHAKE) not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._modern(scope, receive, send)
            return
        owner, session_id = owner_of(scope), header(scope, b"mcp-session-id")
        if session_id is not None:
            await self._continue(session_id, owner, scope, receive, send)
        elif scope["method"] == "POST":
            await self._begin(owner, scope, receive, send)
        else:
            await self._manager.asgi_app(scope, receive, send)

    async def end_of(self, method: str, ids: frozenset[str]) -> None:
        """End all sessions of the callers with these IDs, who proved them by *method*."""
        await self._end_all(lambda session: _is_of(session.scope.get(CALLER), method, ids), forget=True)

    async def end(self) -> None:
        """End all sessions; those that are kept can go on elsewhere."""
        await self._end_all(lambda _: True, forget=False)

    async def _end_all(self, which: Callable[[_Session], bool], *, forget: bool) -> None:
        held = self._room.open
        gone = [key for key, session in held.items() if session.home is self and which(session)]
        for session_id, session in [(key, held.pop(key)) for key in gone]:
            await self.end_one(session_id, session)
            if forget:
                await self.forget(session_id)

    # -- requests -----------------------------------------------------------------------------------------------

    async def _begin(self, owner: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request open a session, where its owner may have one."""
        try:
            log = SessionLog(caller_key(scope))
            async with self._opening(owner):
                with self.streams.within(log):
                    await self._manager.asgi_app(scope, receive, self._watched(send, scope, owner, None, log))
        except NoShareError:
            await _refuse(send, self._room.most)

    @asynccontextmanager
    async def _opening(self, owner: str) -> AsyncGenerator[None, None]:
        """Hold a place for a session of *owner* that is opened in the block; raises NoShareError before it."""
        ended = self._room.make_room(owner)
        opening = self._room.opening
        opening[owner] += 1  # with no other request in between
        try:
            for session_id, session in ended:
                await session.home.end_one(session_id, session)
                await session.home.forget(session_id)
            yield
        finally:
            opening[owner] -= 1
            if not opening[owner]:
                del opening[owner]

    async def forget(self, session_id: str) -> None:
        """Have a session go on nowhere else."""
        if self._kept is not None:
            await self._kept.forget(session_id)

    async def _continue(self, session_id: str, owner: str, scope: Scope, receive: Receive, send: Send) -> None:
        if self._kept is not None and session_id not in self._room.open:
            try:
                await self._restore(self._kept, session_id, owner, scope)
            except StateError as error:  # no 404: with that the client would give up a session that there is
                await _refuse_for_now(send, error)
                return
        found = self._room.open.get(session_id)
        if found is not None and found.home is self and found.inner:
            scope = {**scope, "headers": _renamed(scope["headers"], found.inner)}
        watched = self._watched(send, scope, owner, session_id)
        session = self._own(session_id, owner)
        if session is None:
            await self._manager.asgi_app(scope, receive, watched)
            return
        self._room.open.move_to_end(session_id)
        session.requests += 1
        renewing: asyncio.Task[None] | None = None
        try:
            await self._use(session_id, session)
            if self._kept is not None and is_stream(scope):
                renewing = asyncio.create_task(self._renew(session_id, session))
            await self.streams.serve(self._manager.asgi_app, session.log, scope, receive, watched)
        finally:
            session.requests -= 1
            session.used = monotonic()
            if renewing is not None:
                renewing.cancel()

    async def _use(self, session_id: str, session: _Session) -> None:
        """Have the record of a session last longer, where that was not done just now."""
        if self._kept is not None and monotonic() - session.kept >= self._kept.pause:
            session.kept = monotonic()
            await self._kept.use(session_id)

    async def _renew(self, session_id: str, session: _Session) -> None:
        """Have the record of a session last as long as a stream of it."""
        while self._kept is not None:
            await asyncio.sleep(self._kept.pause)
            await self._use(session_id, session)

    async def _restore(self, kept: KeptSessions, session_id: str, owner: str, scope: Scope) -> None:
        """Open a session again that another server had, if it is the caller's and there is room; requests of one
        session that come together wait for each other."""
        lock = self._restoring.setdefault(session_id, asyncio.Lock())
        try:
            async with lock:
                session = None if session_id in self._room.open else await kept.find(session_id, caller_key(scope))
                if session is None:
                    return
                async with self._opening(owner):
                    log = SessionLog(caller_key(scope), session_id)
                    log.watched += session.watched
                    with self.streams.within(log):
                        inner = await reopened(self._manager.asgi_app, session, scope)
                    if inner:
                        self._room.open[session_id] = _Session(owner, self, scope, monotonic(), log, inner=inner)
        except NoShareError:
            logger.warning("a session does not go on here: there are %d", self._room.most)

    def _own(self, session_id: str, owner: str) -> _Session | None:
        """Return the session of this endpoint that *owner* has under this ID."""
        found = self._room.open.get(session_id)
        return found if found is not None and found.home is self and found.owner == owner else None

    def _watched(
        self, send: Send, scope: Scope, owner: str, session_id: str | None, log: SessionLog | None = None
    ) -> Send:
        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._note(scope, owner, session_id, message, log)
                if session_id is not None:
                    message = {**message, "headers": _renamed(message.get("headers", ()), session_id)}
            await send(message)

        return watch

    async def _note(
        self, scope: Scope, owner: str, session_id: str | None, start: Message, log: SessionLog | None
    ) -> None:
        """Keep a session that an answer opens, and forget one that it says is over."""
        status: int = start["status"]
        if log is not None:
            opened = next((value for key, value in start.get("headers", ()) if key.lower() == b"mcp-session-id"), b"")
            if opened and status < 400:
                log.id = opened.decode("latin-1")
                self._room.open[log.id] = _Session(owner, self, scope, monotonic(), log)
        elif (
            session_id is None or self._own(session_id, owner) is None
        ):  # another caller gets the same for one that goes on
            return
        elif status == 404 or (status < 400 and scope["method"] == "DELETE"):
            self.streams.end(self._room.open.pop(session_id).log)
            if scope["method"] == "DELETE":
                await self.forget(session_id)

    async def _hand_in(self, log: SessionLog, message: JSONDict) -> None:
        """Give a session a message of its client that another server got."""
        session = self._room.open.get(log.id)
        if session is not None and session.log is log:
            headers = [
                (b"mcp-session-id", (session.inner or log.id).encode("latin-1")),
                (b"content-type", b"application/json"),
                (b"accept", b"application/json, text/event-stream"),
            ]
            await post(self._manager.asgi_app, session.scope, headers, message)

    async def end_one(self, session_id: str, session: _Session) -> None:
        """End a session as its own client would."""
        self.streams.end(session.log)
        headers = [
            (b"mcp-session-id", (session.inner or session_id).encode("latin-1")),
            (b"accept", b"application/json"),
        ]

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            """Drop the answer."""

        await self._manager.asgi_app({**session.scope, "method": "DELETE", "headers": headers}, receive, send)


def _renamed(headers: Iterable[tuple[bytes, bytes]], session_id: str) -> list[tuple[bytes, bytes]]:
    """Return headers with another ID of the session, where they have one."""
    name = session_id.encode("latin-1")
    return [(key, name if key.lower() == b"mcp-session-id" else value) for key, value in headers]


def _is_of(caller: object, method: str, ids: frozenset[str]) -> bool:
    return isinstance(caller, Caller) and caller.method == method and caller.id in ids


async def _refuse_for_now(send: Send, error: StateError) -> None:
    logger.error("a session cannot go on for now: %s", error)
    message = "It is not known whether this session goes on: its store cannot be reached; try again later"
    reply = {"jsonrpc": "2.0", "id": None, "error": {"code": _INTERNAL_ERROR, "message": message}}
    await reply_json(send, 503, reply, [("retry-after", "5")])


async def _refuse(send: Send, most: int) -> None:
    message = f"Too many open sessions ({most}), and all of yours are in use; end one, or try again later"
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": _INTERNAL_ERROR, "message": message}}
    await reply_json(send, 503, error, [("retry-after", "5")])
