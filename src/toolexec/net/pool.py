"""Pooled connections whose addresses were judged, over httpcore2."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import httpcore2

from toolexec.errors import BackendUnavailableError
from toolexec.errors.outcome import Outcome
from toolexec.net.address import MOST_ADDRESSES, LookUp, NotAllowedAddressError, refusal
from toolexec.net.hosts import is_address, is_local_name

__all__ = ["ATTEMPT", "FAILURES", "Attempt", "make_pool"]

_IDLE_SECONDS: Final = 5.0
"""How long an unused connection is kept: many servers close theirs after little more than this."""
_NEXT_ADDRESS: Final = 5.0
"""How many seconds one address has to answer while there are others."""


FAILURES: Final = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    OSError,
    NotAllowedAddressError,
)
"""What a connection raises when it cannot be made or is lost."""


@dataclass(slots=True)
class Attempt:
    """How far a request has come: whether a connection is being made for it, and what became of it until now.

    It is not sent until the first byte is written, unknown from then on, and known again once the status line is there.
    A redirect that is followed begins with what its own status line says.
    """

    connecting: bool = False
    outcome: Outcome = Outcome.NOT_SENT

    @property
    def sent(self) -> bool:
        """Whether any of it was sent."""
        return self.outcome is not Outcome.NOT_SENT


ATTEMPT: Final[ContextVar[Attempt]] = ContextVar("toolexec_http_attempt")
"""The request that the current task makes. The pool does not pass requests on to streams, and tasks are theirs."""


def make_pool(
    find: LookUp, *, allow_private: bool, max_connections: int, ca_file: str
) -> httpcore2.AsyncConnectionPool:
    """Return a pool of connections to any host, which verifies certificates.

    Nothing of it is taken from the environment: no proxies, no credentials. Raises ConfigurationError for a file of
    certificates that cannot be used.
    """
    return httpcore2.AsyncConnectionPool(
        ssl_context=_context(ca_file),
        max_connections=max_connections,
        keepalive_expiry=_IDLE_SECONDS,
        network_backend=_JudgedNetwork(find, allow_private=allow_private),
    )


@lru_cache(maxsize=8)
def _context(ca_file: str) -> ssl.SSLContext:
    """Return a context that trusts what the system does, and the certificates of *ca_file*; it takes 10 ms to make."""
    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    return context


class _JudgedNetwork(httpcore2.AsyncNetworkBackend):
    """Makes connections to addresses that were looked at: a name that means something else a moment later is not
    asked again."""

    def __init__(self, find: LookUp, *, allow_private: bool) -> None:
        self._find = find
        self._allow_private = allow_private
        self._inner = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        ATTEMPT.get().connecting = True
        addresses = await self._addresses(host, port)
        for address in addresses[:-1]:
            try:
                return _Stream(await self._inner.connect_tcp(address, port, _NEXT_ADDRESS))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return _Stream(await self._inner.connect_tcp(addresses[-1], port, timeout))

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of *host* that may be connected to, at least one."""
        if is_address(host):
            return [host]  # it was judged when the request was
        try:
            found = [*dict.fromkeys(await self._find(host, port))][:MOST_ADDRESSES]
        except OSError as error:
            raise BackendUnavailableError(f"{host} has no address: {error.strerror or error}") from error
        local = is_local_name(host)
        allowed = [address for address in found if not self._refusal(address, local=local)]
        if not allowed:
            reason = self._refusal(found[0], local=local) if found else "it has no address"
            raise NotAllowedAddressError(reason)
        return allowed

    def _refusal(self, address: str, *, local: bool) -> str:
        reason = refusal(address, allow_private=local or self._allow_private)
        if not reason and local and not ipaddress.ip_address(address).is_loopback:
            return "its address is not one of this machine"
        return reason


class _Stream(httpcore2.AsyncNetworkStream):
    """Notes when anything of a request is sent: from then on what became of it is unknown."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        ATTEMPT.get().outcome = Outcome.UNKNOWN
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
