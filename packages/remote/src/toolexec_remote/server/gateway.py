"""The route to tools over HTTP, for requests by POST: each question is a POST to the gateway that the request names."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from toolexec.errors import ConnectionClosedError, InvalidRequestError, ProtocolError
from toolexec.remote import (
    MAX_FRAME_BYTES,
    HostRule,
    encode_message,
    is_address,
    look_up,
    plain_host,
    read_rule,
    refusal,
)
from toolexec.sandbox import JSONCodec
from toolexec_remote.server.relay import Answer
from toolexec_remote.wire import GatewayAddress

_CODEC: Final = JSONCodec()
_MAX_CONNECTIONS: Final = 256


class Gateways:
    """Makes routes to gateways on hosts that may be reached: some of *hosts* (empty: all), and those with private
    addresses only with *allow_private*. Belongs to one event loop; close it at the end.

    Raises ConfigurationError for an entry of *hosts* that is not one.
    """

    def __init__(self, hosts: Sequence[str], *, allow_private: bool) -> None:
        self._rules: list[HostRule] = [read_rule(host) for host in hosts]
        self._allow_private = allow_private
        self._session: aiohttp.ClientSession | None = None

    def route_to(self, address: GatewayAddress) -> HttpRoute:
        """Return the route; raises InvalidRequestError for an address that must not be reached."""
        parts = urlsplit(address.url)
        try:
            host, port = plain_host(parts.hostname or ""), parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise InvalidRequestError(f"gateway.url is invalid: {error}") from error
        if parts.scheme not in ("http", "https") or not host or parts.username:
            raise InvalidRequestError("gateway.url must be http://host[:port]/path, or https")
        if self._rules and not any(rule.matches(host, port) for rule in self._rules):
            raise InvalidRequestError(f"the gateway {host}:{port} is not one of gateway_hosts of this server")
        if is_address(host) and (why := refusal(host, allow_private=self._allow_private)):
            raise InvalidRequestError(f"the gateway {host} must not be reached: {why}")
        return HttpRoute(self._opened(), address)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            resolver = _Checked(allow_private=self._allow_private)
            connector = aiohttp.TCPConnector(resolver=resolver, limit=_MAX_CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._session

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


class HttpRoute:
    """The route of one run; see `Route`."""

    def __init__(self, session: aiohttp.ClientSession, address: GatewayAddress) -> None:
        self._session = session
        self._address = address
        self._last = 0
        self._notes: set[asyncio.Task[Answer]] = set()

    async def ask(self, kind: str, payload: str) -> Answer:
        """Implement `Route.ask`. A call that was sent is never repeated: it may have been done."""
        self._last += 1
        name = str(self._last)
        headers = {"Content-Type": "application/json"}
        if self._address.token:
            headers["Authorization"] = f"Bearer {self._address.token}"
        try:
            async with self._session.post(
                self._address.url,
                data=encode_message(kind, name, payload).encode(),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            ) as response:
                return await _answer(response, name)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ConnectionClosedError(f"the gateway of this run cannot be reached: {error}") from error

    def note(self, kind: str, payload: str) -> None:
        """Implement `Route.note`."""
        task = asyncio.create_task(self.ask(kind, payload))
        self._notes.add(task)
        task.add_done_callback(self._noted)

    def _noted(self, task: asyncio.Task[Answer]) -> None:
        self._notes.discard(task)
        if not task.cancelled():
            task.exception()  # it has no caller


async def _answer(response: aiohttp.ClientResponse, name: str) -> Answer:
    """Return the answer in a response; raises ConnectionClosedError and ProtocolError."""
    if response.status == 401:
        raise ConnectionClosedError("the gateway refuses the token of this run; it has expired, or is not its own")
    if response.status != 200:
        raise ConnectionClosedError(f"the gateway answered with status {response.status}")
    body = await response.content.read(MAX_FRAME_BYTES + 1)
    while len(body) <= MAX_FRAME_BYTES and (more := await response.content.read(MAX_FRAME_BYTES + 1 - len(body))):
        body += more
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"an answer of the gateway has more than {MAX_FRAME_BYTES} bytes")
    messages = _CODEC.decode(body)
    if len(messages) != 1 or messages[0].id != name:
        raise ProtocolError("the gateway answered something else than what was asked")
    kind = "error" if messages[0].type == "error" else "response"
    return Answer(kind, json.dumps(dict(messages[0].payload)))


class _Checked(AbstractResolver):
    """Gives the addresses of a host, unless one of them must not be connected to."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses; raises OSError."""
        found: list[ResolveResult] = []
        for address in await look_up(host, port):
            if why := refusal(address, allow_private=self._allow_private):
                raise OSError(errno.EACCES, f"{host} must not be reached: {why}")
            kind = socket.AF_INET6 if ":" in address else socket.AF_INET
            made: Any = {"hostname": host, "host": address, "port": port, "family": kind, "proto": 0, "flags": 0}
            found.append(made)
        return found

    async def close(self) -> None:
        """Do nothing: it holds nothing."""
