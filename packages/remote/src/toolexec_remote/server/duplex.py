"""The duplex route: many runs over one WebSocket, which go on over the next one when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from aiohttp import web

from toolexec.remote import JSONObject, SigningKey
from toolexec_remote.messages import RemoteMessage
from toolexec_remote.server.capacity import Capacity
from toolexec_remote.server.doors import Door
from toolexec_remote.server.duplex_connection import DuplexConnection, DuplexShared
from toolexec_remote.server.duplex_run import DuplexRuns
from toolexec_remote.server.runs import RunService
from toolexec_remote.signature import KeyRing, ReplayCache

_PUSH: Final = 0.05
_LINGER: Final = 5.0


class DuplexHub:
    """All connections of a server, and the runs that came by them."""

    def __init__(
        self,
        service: RunService,
        ring: KeyRing,
        replays: ReplayCache,
        capacity: Capacity,
        which: JSONObject | None = None,
    ) -> None:
        """*which* process this is, where there are several behind the port."""
        self.ring = ring
        self.replays = replays
        self._capacity = capacity
        self._runs = DuplexRuns(service)
        self._shared = DuplexShared(
            service=service, ring=ring, replays=replays, capacity=capacity, which=which or {}, runs=self._runs
        )
        self._metrics = service.metrics
        self._connections: dict[tuple[str, str], DuplexConnection] = {}
        self._push: asyncio.TimerHandle | None = None
        service.admission.changed = self.push_soon

    async def serve(
        self, socket: web.WebSocketResponse, key: SigningKey, client: str, path: str, door: Door | None = None
    ) -> None:
        """Serve a connection to its end, which came by *path* with the token of *key*. An older one of the same client
        ends as soon as this one has shown that it has the secret of the key."""
        connection = DuplexConnection(self._shared, socket, key, path, door)
        name = key.account, client or str(id(connection))
        try:
            await connection.serve(lambda: self._admit(name, connection))
        finally:
            if self._connections.get(name) is connection:
                del self._connections[name]
            if connection.is_admitted:
                self._metrics.connected(-1)
                self._runs.leave(connection)
            self._runs.left.set()

    def _admit(self, name: tuple[str, str], connection: DuplexConnection) -> None:
        older = self._connections.get(name)
        self._connections[name] = connection
        if older is not None:
            older.close_soon()
        connection.is_admitted = True
        self._metrics.connected(1)

    def push_soon(self) -> None:
        """Schedule a broadcast of the capacity to all clients."""
        if self._push is None and self._connections:
            self._push = asyncio.get_running_loop().call_later(_PUSH, self.push)

    def push(self) -> None:
        """Send the capacity to all clients."""
        if self._push is not None:
            self._push.cancel()
            self._push = None
        for connection in self._connections.values():
            connection.put(RemoteMessage("capacity", fields=self._capacity.counts(connection.key.account)))

    async def aclose(self, linger: float = _LINGER) -> None:
        """Deliver what is left to those who listen, within *linger* seconds, and close all connections."""
        self.push()
        for run in self._runs:
            run.end_session()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(linger):
                while any(run.is_listened_to for run in self._runs):
                    self._runs.left.clear()
                    await self._runs.left.wait()
        await asyncio.gather(*(connection.aclose() for connection in self._connections.values()))
        await self._runs.aclose()
        if self._push is not None:
            self._push.cancel()
