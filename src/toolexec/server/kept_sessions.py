"""Sessions of the handshake era as records, so that a client goes on with its session at the next server."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from mcp.server.context import CallNext, HandlerResult

from toolexec.errors import ConfigurationError, StateError
from toolexec.model.json_value import JSONDict
from toolexec.server.callers import RequestContext, connection_of, is_modern
from toolexec.server.http.replies import caller_key
from toolexec.server.state import StateStore, key_of

logger: logging.Logger = logging.getLogger(__name__)
RESTORED: Final = "toolexec.restored"
"""The key in the scope of the requests that open a session again, of the `KeptSession` that it was."""
_STATE: Final = "toolexec.kept_session"
_LONGEST: Final = 64 * 1024
_SUBSCRIPTIONS: Final = 1000
_LATER: Final = 1.1
T = TypeVar("T")
_METHODS: Final = frozenset({"initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})


@dataclass(slots=True)
class KeptSession:
    """What a session is made of: the key of its caller, the parameters of its `initialize`, the level of its log, and
    the resources that it watches. `id` is what its client knows it by, and is not kept. `keeping` is held while it is
    written down, so that what is written last is what was last."""

    id: str
    owner: str
    params: JSONDict
    level: str = ""
    watched: list[str] = field(default_factory=list[str])
    keeping: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False, compare=False)

    def messages(self) -> list[JSONDict]:
        """Return the messages that make a session what this one was; requests have an ID."""
        found: list[tuple[str, JSONDict]] = [("initialize", self.params)]
        if self.level:
            found.append(("logging/setLevel", {"level": self.level}))
        found += (("resources/subscribe", {"uri": uri}) for uri in self.watched)
        requests = [
            {"jsonrpc": "2.0", "id": f"restored-{number}", "method": method, "params": params}
            for number, (method, params) in enumerate(found)
        ]
        return [requests[0], {"jsonrpc": "2.0", "method": "notifications/initialized"}, *requests[1:]]


class KeptSessions:
    """The records of the sessions at *endpoint*, in what *store* gives, each for about *idle* seconds after its last
    use. Where that cannot be reached, sessions end with their server."""

    def __init__(self, store: Callable[[], StateStore | None], idle: float, endpoint: str = "") -> None:
        self._store = store
        self._endpoint = endpoint
        self._ttl = idle * _LATER
        self.pause: float = idle * (_LATER - 1)
        """After how many seconds a use of a session is to be kept at the latest."""

    async def note(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Keep what a request has made of its session; middleware of the server."""
        result = await call_next(ctx)
        if ctx.method in _METHODS and not is_modern(ctx) and ctx.params is not None:
            scope: Any = getattr(ctx.request, "scope", None)
            connection = connection_of(ctx)
            if scope is not None and RESTORED in scope:
                connection.state[_STATE] = scope[RESTORED]
            elif ctx.method == "initialize" and scope is not None and connection.session_id:
                session = KeptSession(connection.session_id, caller_key(scope), dict(ctx.params))
                connection.state[_STATE] = session
                await self._keep(session)
            elif (session := connection.state.get(_STATE)) is not None and _has_changed(session, ctx):
                await self._keep(session)
        return result

    async def find(self, session_id: str, owner: str) -> KeptSession | None:
        """Return the session that the caller with the key *owner* had under this ID, if it is kept. Raises StateError
        where that cannot be found out now."""
        try:
            store = self._store()
            text = await store.get("session", self._key(session_id)) if store is not None else None
        except ConfigurationError as error:
            logger.error("a session cannot go on here: %s", error)
            return None
        if text is None:
            return None
        facts = json.loads(text)
        return KeptSession(session_id, **facts) if facts["owner"] == owner else None

    async def use(self, session_id: str) -> None:
        """Keep that a session is used."""

        async def again(store: StateStore) -> None:
            text = await store.get("session", self._key(session_id))
            if text is not None:
                await store.swap("session", self._key(session_id), text, text, self._ttl)

        await self._try(again)

    async def forget(self, session_id: str) -> None:
        """Forget a session that is over."""
        await self._try(lambda store: store.delete("session", self._key(session_id)))

    async def _keep(self, session: KeptSession) -> None:
        async with session.keeping:
            facts = {
                "owner": session.owner, "params": session.params, "level": session.level, "watched": session.watched,
            }  # fmt: skip
            text = json.dumps(facts)
            if len(text) <= _LONGEST:
                await self._try(lambda store: store.put("session", self._key(session.id), text, self._ttl))

    def _key(self, session_id: str) -> str:
        return key_of(self._endpoint, session_id)

    async def _try(self, do: Callable[[StateStore], Awaitable[T]]) -> T | None:
        try:
            store = self._store()
            return await do(store) if store is not None else None
        except (ConfigurationError, StateError) as error:
            logger.error("a session would not outlive this server: %s", error)
            return None


@runtime_checkable
class KeepsSessions(Protocol):
    """A server of the MCP SDK that keeps records of its sessions."""

    kept_sessions: KeptSessions


def _has_changed(session: KeptSession, ctx: RequestContext) -> bool:
    """Have *session* say what a request has changed; return whether it did."""
    params = ctx.params or {}
    if ctx.method == "logging/setLevel":
        session.level = str(params.get("level"))
        return True
    uri = params.get("uri")
    watches = ctx.method == "resources/subscribe"
    if not isinstance(uri, str) or (uri in session.watched) == watches:
        return False
    if watches:
        if len(session.watched) >= _SUBSCRIPTIONS:
            return False
        session.watched.append(uri)
    else:
        session.watched.remove(uri)
    return True
