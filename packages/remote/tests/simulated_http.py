"""HTTP in a world that a seed decides about: both libraries' own protocols, over connections that the network delays,
loses and cuts, and of which a proxy says all again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Self, cast

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from packages.remote.tests.virtual import Faults

from toolexec.remote import RemoteSettings, SigningKey
from toolexec_remote.discovery import Discovery
from toolexec_remote.gateway import HttpGateway
from toolexec_remote.post import PostClient

Listen = Callable[["HttpLine"], Any]
"""Gives the protocol of a new connection; raises OSError where nothing listens."""


class _End(asyncio.Transport):
    """One side of a connection."""

    def __init__(self, line: HttpLine) -> None:
        super().__init__()
        self.line = line
        self.other: _End
        self.protocol: Any = None
        self._is_paused = False
        self._is_over = False
        self._came: deque[bytes] = deque()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_over:
            self.line.carry(bytes(data), self.other)

    def take(self, data: bytes) -> None:
        """Get what has arrived; nothing is the end of the other side."""
        if self._is_over:
            return
        if self._is_paused:
            self._came.append(data)
        elif data:
            self.protocol.data_received(data)
        else:
            self.protocol.eof_received()
            self.end(None)

    def end(self, error: Exception | None) -> None:
        """Be over, which its protocol learns in a moment."""
        if not self._is_over:
            self._is_over = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)

    def close(self) -> None:
        if not self._is_over:
            self.line.carry(b"", self.other)
            self.end(None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_over

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        while self._came and not self._is_paused:
            self.take(self._came.popleft())

    def is_reading(self) -> bool:
        return not self._is_paused

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: what is written is on its way."""

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self.protocol)


class HttpLine:
    """A connection: two ends, and what the network does in between. What its client has sent may be said again, to the
    same server, by a proxy that got no answer."""

    def __init__(self, faults: Faults, again: Callable[[bytes], None] | None = None) -> None:
        self._faults = faults
        self._again = again
        self._loop = asyncio.get_running_loop()
        self._free = [0.0, 0.0]
        self._said: list[bytes] = []
        self.is_silent = False
        self.client, self.server = _End(self), _End(self)
        self.client.other, self.server.other = self.server, self.client

    def open(self, client: Any, server: Any) -> None:
        """Have both protocols begin."""
        self.client.protocol, self.server.protocol = client, server
        server.connection_made(self.server)
        client.connection_made(self.client)

    def carry(self, data: bytes, to: _End) -> None:
        """Bring bytes to their end, in order, or lose them and all after them."""
        faults = self._faults
        if to is self.server and data:
            self._said.append(data)
        if self.is_silent or faults.is_up_to(faults.lost):
            self.go_silent()
            return
        side = 0 if to is self.server else 1
        when = self._free[side] = max(self._loop.time() + faults.delay * faults.dice.random(), self._free[side] + 1e-6)
        self._loop.call_at(when, self._arrive, to, data)

    def _arrive(self, to: _End, data: bytes) -> None:
        if not self.is_silent:
            to.take(data)

    def go_silent(self) -> None:
        """Lose all from now on; both sides notice that later, each at a time of its own."""
        if self.is_silent:
            return
        self.is_silent = True
        faults = self._faults
        for end in (self.client, self.server):
            self._loop.call_later(faults.silence * (0.2 + faults.dice.random()), end.end, ConnectionResetError("lost"))
        if self._again is not None and faults.is_up_to(faults.doubled * 5):
            self._loop.call_later(faults.silence * faults.dice.random(), self._again, b"".join(self._said))

    def cut(self) -> None:
        """End it at once, with what is on its way."""
        self.is_silent = True
        self.end()

    def end(self) -> None:
        """End both sides."""
        for end in (self.client, self.server):
            end.end(ConnectionResetError("cut"))


class _NoClient(asyncio.Protocol):
    """A proxy that says something again, and does not pass on the answer."""


class Wires(aiohttp.BaseConnector):
    """Connects to what listens in a world, by host and port."""

    def __init__(self, faults: Faults, listen: Callable[[str, int], Listen], lines: list[HttpLine]) -> None:
        super().__init__(force_close=True)
        self._faults = faults
        self._listen = listen
        self._lines = lines

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
        faults, loop = self._faults, asyncio.get_running_loop()
        await asyncio.sleep(faults.delay * faults.dice.random())
        host, port = req.url.host or "", req.url.port or 80

        def again(data: bytes) -> None:
            try:
                line = HttpLine(faults)
                line.open(_NoClient(), self._listen(host, port)(line))
            except OSError:
                return
            self._lines.append(line)
            line.client.write(data)

        line, made = HttpLine(faults, again), ResponseHandler(loop)
        try:
            line.open(made, self._listen(host, port)(line))
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        self._lines.append(line)
        return made


class SimulatedGateway(HttpGateway):
    """A gateway that listens in a world."""

    def __init__(self, doors: dict[str, Listen]) -> None:
        super().__init__(url="http://10.9.9.9/gateway")
        self._doors = doors

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/gateway/{run}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._doors["10.9.9.9"] = lambda _: server()
        return self


class SimulatedPost(PostClient):
    """A client whose connections, and whose gateway, are those of a world."""

    def __init__(
        self,
        settings: RemoteSettings,
        discovery: Discovery,
        key: SigningKey,
        connector: Callable[[], Wires],
        doors: dict[str, Listen],
    ) -> None:
        super().__init__(settings, discovery)
        self._own_key = key
        self._connector = connector
        self._doors = doors

    async def _opened(self) -> tuple[aiohttp.ClientSession, SigningKey]:
        async with self._starting:
            if self._session is None:
                self._key = self._own_key
                self._gateway = await self._stack.enter_async_context(SimulatedGateway(self._doors))
                timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.settings.connect_timeout)
                session = aiohttp.ClientSession(timeout=timeout, trust_env=False, connector=self._connector())
                self._session = await self._stack.enter_async_context(session)
            return self._session, self._own_key
