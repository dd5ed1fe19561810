"""Connections of their own to one MCP server, for each session or caller, where the server keeps state."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from toolexec.backend.secrets.callers import caller_key
from toolexec.errors import BackendUnavailableError, PolicyError
from toolexec.model.origin import Origin
from toolexec.model.shares import NoShareError, giving_way

if TYPE_CHECKING:
    from toolexec.backend.mcp.backend import MCPBackend
    from toolexec.backend.mcp.config import MCPServer

logger: logging.Logger = logging.getLogger(__name__)
_RETRY_AFTER: Final = 5.0
_Key: TypeAlias = tuple[str, str, str, str]


@dataclass(slots=True)
class _Instance:
    """A connection: for whom room is shared out, whose it is (as operators name callers), in which session it is used,
    since when it is idle, and by how many calls it is used now."""

    owner: str
    caller: str
    session: str
    backend: MCPBackend
    used: float
    calls: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether no call would be broken off; see `Held`."""
        return self.calls == 0


class Instances:
    """Instances of *server*, which *make* makes, one for each session, or for each caller, as `apart` of it says.

    There are at most `max_instances`; when one more is needed, `giving_way` says which caller gives one up, or that the
    newcomer gets none. One without a call for `instance_idle` seconds is closed. They are used on one event loop.
    """

    def __init__(self, server: MCPServer, make: Callable[[Origin], MCPBackend]) -> None:
        self._name = server.name
        self._by_caller = server.apart == "caller"
        self._make = make
        self._most = server.max_instances
        self._idle = server.instance_idle
        self._open: OrderedDict[_Key, _Instance] = OrderedDict()  # the least recently used one first
        self._work: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._open)

    def backends(self) -> list[MCPBackend]:
        """Return the connections of all."""
        return [instance.backend for instance in self._open.values()]

    @contextmanager
    def used_by(self, origin: Origin) -> Generator[MCPBackend, None, None]:
        """Yield the instance that calls of *origin* go to, made now if there is none; it stays open for the block.

        Raises PolicyError for a caller that cannot be distinguished from others, and BackendUnavailableError where
        there is no room, or all were closed.
        """
        key = self._key(origin)
        instance = self._open.get(key)
        if instance is None:
            instance = self._begin(key, origin)
        self._open.move_to_end(key)
        instance.calls += 1
        try:
            yield instance.backend
        finally:
            instance.calls -= 1
            instance.used = asyncio.get_running_loop().time()
            self._watch()

    def end_session(self, session: str) -> None:
        """Close the instances of a session that is over."""
        for key in [key for key, each in self._open.items() if each.session == session]:
            self._end(key)

    def end_caller(self, caller: str) -> None:
        """Close the instances of a caller that no call needs now."""
        for key in [key for key, each in self._open.items() if each.caller == caller and each.is_idle]:
            self._end(key)

    async def close_all(self) -> None:
        """Close all instances; others can be made afterwards."""
        for key in [*self._open]:
            self._end(key)
        while self._work:
            await asyncio.wait([*self._work])

    async def aclose(self) -> None:
        """Close all instances, and make no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self.close_all()

    def _key(self, origin: Origin) -> _Key:
        caller = origin.caller
        if self._by_caller and caller.id:
            return (caller.method, caller.realm, caller.id, "")
        if origin.approvals == "once":
            raise PolicyError(
                f"the MCP server {self._name} keeps state of each {'caller' if self._by_caller else 'session'}, and "
                "this call has neither a known caller nor a session; authenticate",
                code="no_caller",
                op="isolation",
                details={"backend": self._name},
            )
        session = "" if self._by_caller and origin.approvals == "always" else origin.session
        return (caller.method, caller.realm, caller.id, session)

    def _begin(self, key: _Key, origin: Origin) -> _Instance:
        if self._closed:
            raise BackendUnavailableError(f"MCP server {self._name} is closed", backend=self._name)
        method, realm, caller, session = key
        owner = f"{method}/{realm}/{caller}" if caller else f"{realm}/{session}"
        if len(self._open) >= self._most:
            try:
                victim = giving_way(self._open, owner)
            except NoShareError:
                raise self._refusal(owner) from None
            if victim is not None:
                logger.info("there are %d instances of MCP server %s; one gives way", len(self._open), self._name)
                self._end(victim)
        now = asyncio.get_running_loop().time()
        instance = self._open[key] = _Instance(owner, caller_key(origin.caller), session, self._make(origin), now)
        return instance

    def _refusal(self, owner: str) -> BackendUnavailableError:
        if any(each.owner == owner for each in self._open.values()):
            why = "all of this caller's are in use; wait until one of its calls has ended"
        else:
            why = "each is another caller's only one; set a higher max_instances, or a shorter instance_idle"
        return BackendUnavailableError(
            f"there are {len(self._open)} instances of the MCP server {self._name}, and {why}",
            backend=self._name,
            details={"limit": self._most, "retry_after": _RETRY_AFTER},
        )

    def _end(self, key: _Key) -> None:
        backend = self._open.pop(key).backend
        # Without the trace and the caller of the call that happens to cause it.
        task = asyncio.get_running_loop().create_task(self._closing(backend), context=contextvars.Context())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def _closing(self, backend: MCPBackend) -> Coroutine[Any, Any, None]:
        async def close() -> None:
            try:
                await backend.aclose()
            except Exception:
                logger.exception("an instance of MCP server %s did not close", self._name)

        return close()

    def _watch(self) -> None:
        """Have the instances closed that are idle for long enough, when the first of them is."""
        if self._timer is not None or self._closed:
            return
        idle = [each.used for each in self._open.values() if each.is_idle]
        if idle:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(min(idle) + self._idle, self._end_idle)

    def _end_idle(self) -> None:
        self._timer = None
        latest = asyncio.get_running_loop().time() - self._idle
        for key in [key for key, each in self._open.items() if each.is_idle and each.used <= latest]:
            self._end(key)
        self._watch()
