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

from toolexec.errors import BackendUnavailableError, ConfigurationError
from toolexec.errors.outcome import Outcome
from toolexec.net.address import MOST_ADDRESSES, LookUp, NotAllowedAddressError, refusal
from toolexec.net.hosts import is_address, is_local_name
from toolexec.net.proxy import ProxyServer

_IDLE_SECONDS: Final = 5.0
"""How long an unused connection is kept: many servers close theirs after little more than this."""
_NEXT_ADDRESS: Final = 5.0
"""How many seconds one address has to answer while there are others."""


FAILURES: Final = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
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
    layers: int = 0
    """How many layers of TLS there are on a connection before anything of the request is: what is written earlier is
    for a proxy."""
    greets: bool = False
    """Whether a proxy of SOCKS is greeted before that, which no text of HTTP looks like."""
    opened: httpcore2.AsyncNetworkStream | None = None
    """The connection that was made for it."""

    async def drop(self) -> None:
        """Close the connection to a proxy of SOCKS after a failure: the pool forgets one that it was greeted on."""
        if self.greets and self.opened is not None:
            await self.opened.aclose()

    @property
    def sent(self) -> bool:
        """Whether any of it was sent."""
        return self.outcome is not Outcome.NOT_SENT


_GREETINGS: Final = (b"\x05", b"\x01")
"""How messages of SOCKS 5 begin, and those of its passwords."""

ATTEMPT: Final[ContextVar[Attempt]] = ContextVar("toolexec_http_attempt")
"""The request that the current task makes. The pool does not pass requests on to streams, and tasks are theirs."""


def make_pool(
    find: LookUp,
    *,
    allow_private: bool,
    max_connections: int,
    context: ssl.SSLContext,
    proxy: ProxyServer | None = None,
    proxy_context: ssl.SSLContext | None = None,
) -> httpcore2.AsyncConnectionPool:
    """Return a pool of connections to any host, through *proxy* if there is one; *context* verifies certificates.

    Nothing of it is taken from the environment: no proxies, no credentials. A proxy may have a private address.
    """
    return httpcore2.AsyncConnectionPool(
        ssl_context=context,
        proxy=_proxy(proxy, proxy_context) if proxy is not None else None,
        max_connections=max_connections,
        keepalive_expiry=_IDLE_SECONDS,
        network_backend=_JudgedNetwork(find, allow_private=allow_private or proxy is not None),
    )


def _proxy(proxy: ProxyServer, context: ssl.SSLContext | None) -> httpcore2.Proxy:
    auth = tuple(part.encode() for part in proxy.auth) if proxy.auth is not None else None
    is_secure = proxy.scheme == "https"
    return httpcore2.Proxy(proxy.url, auth=cast("Any", auth), ssl_context=context if is_secure else None)


@lru_cache(maxsize=8)
def trusted(ca_file: str) -> ssl.SSLContext:
    """Return a context that trusts what the system does, and the certificates of *ca_file*; it takes 10 ms to make."""
    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    return context


def identified(ca_file: str, cert_file: str, key_file: str, password: str) -> ssl.SSLContext:
    """Return a context as `trusted` does, which also shows a certificate. Raises ConfigurationError for files that
    cannot be used."""
    context = trusted.__wrapped__(ca_file)
    try:
        context.load_cert_chain(cert_file, key_file or None, lambda: password)  # without one it would ask a terminal
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        files = f"{cert_file} and {key_file}" if key_file else cert_file
        hint = "the key's password is not right" if password else "set key_password if the key has one"
        raise ConfigurationError(f"the certificate in {files} cannot be used: {reason}; {hint}") from None
    return context


async def allowed_addresses(find: LookUp, host: str, port: int, *, allow_private: bool) -> Sequence[str]:
    """Return the addresses of *host*, a name, that may be connected to, at least one.

    Raises BackendUnavailableError where it has none, and NotAllowedAddressError where all of them are refused.
    """
    try:
        found = [*dict.fromkeys(await find(host, port))][:MOST_ADDRESSES]
    except OSError as error:
        raise BackendUnavailableError(f"{host} has no address: {error.strerror or error}") from error
    local = is_local_name(host)
    refusals = {address: _refusal(address, local=local, allow_private=allow_private) for address in found}
    allowed = [address for address in found if not refusals[address]]
    if not allowed:
        raise NotAllowedAddressError(refusals[found[0]] if found else "it has no address")
    return allowed


def _refusal(address: str, *, local: bool, allow_private: bool) -> str:
    reason = refusal(address, allow_private=local or allow_private)
    if not reason and local and not ipaddress.ip_address(address).is_loopback:
        return "its address is not one of this machine"
    return reason


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
                stream = _Stream(await self._inner.connect_tcp(address, port, _NEXT_ADDRESS))
                break
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        else:
            stream = _Stream(await self._inner.connect_tcp(addresses[-1], port, timeout))
        ATTEMPT.get().opened = stream
        return stream

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of *host* that may be connected to, at least one."""
        if is_address(host):
            return [host]  # it was judged when the request was
        return await allowed_addresses(self._find, host, port, allow_private=self._allow_private)


class _Stream(httpcore2.AsyncNetworkStream):
    """Notes when anything of a request is sent: from then on what became of it is unknown."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, layers: int = 0) -> None:
        self._inner = inner
        self._layers = layers

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        attempt = ATTEMPT.get()
        is_greeting = attempt.greets and not self._layers and buffer[:1] in _GREETINGS
        if self._layers >= attempt.layers and not is_greeting:
            attempt.outcome = Outcome.UNKNOWN
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self._layers + 1)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
