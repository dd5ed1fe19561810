"""The pools of an HTTP client: by the proxy that a request goes through, and by whether a certificate is shown."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.errors import BackendUnavailableError, ConfigurationError
from toolexec.net.address import LookUp
from toolexec.net.hosts import is_address, written_authority
from toolexec.net.proxy import ProxyServer, read_proxies

if TYPE_CHECKING:
    import ssl

    import httpcore2

    from toolexec.net.pool import Attempt


class Connections:
    """Makes the connections of an `HTTPClient`, whose settings these are; none before the first request.

    Raises ConfigurationError for files and proxies that cannot be used.
    """

    def __init__(
        self,
        *,
        allow_private: bool,
        max_connections: int,
        ca_file: str | Path,
        cert_file: str | Path,
        key_file: str | Path,
        key_password: str,
        cert_origins: Collection[str] | None,
        proxy: str,
        proxy_auth: tuple[str, str] | None,
        look_up: LookUp,
    ) -> None:
        for file in filter(None, (ca_file, cert_file, key_file)):
            if not Path(file).is_file():
                raise ConfigurationError(f"there is no file of certificates {file}")
        if (key_file or key_password) and not cert_file:
            raise ConfigurationError("key_file and key_password are those of a certificate; set cert_file")
        from toolexec.net.pool import identified

        self._allow_private = allow_private
        self._max_connections = max_connections
        self._ca_file = str(ca_file)
        self._look_up = look_up
        self._proxies = read_proxies(proxy, proxy_auth)
        self._cert_origins = frozenset(cert_origins) if cert_origins is not None else None
        self._identity: ssl.SSLContext | None = None
        if cert_file:
            self._identity = identified(self._ca_file, str(cert_file), str(key_file), key_password)
        self._pools: dict[tuple[ProxyServer | None, bool], httpcore2.AsyncConnectionPool] = {}

    async def to(self, scheme: str, host: str, port: int, attempt: Attempt) -> httpcore2.AsyncConnectionPool:
        """Return the pool for requests to a host, and note in *attempt* how they will be made.

        Where a proxy is going to look the host up, its addresses are judged first: raises NotAllowedAddressError where
        none may be reached, and BackendUnavailableError where they are not known here.
        """
        proxy = self._proxies.of(scheme, host, port)
        attempt.layers = 0
        attempt.greets = proxy is not None and proxy.is_socks
        if proxy is not None:
            await self._judge(host, port)
            if scheme == "https":
                attempt.layers = 2 if proxy.scheme == "https" else 1
        origin = f"{scheme}://{written_authority(scheme, host, port)}"
        shows = self._identity is not None and (self._cert_origins is None or origin in self._cert_origins)
        found = self._pools.get((proxy, shows))
        if found is None:
            found = self._pools[proxy, shows] = self._pool(proxy, self._identity if shows else None)
        return found

    async def aclose(self) -> None:
        """Close all connections."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()

    def _pool(self, proxy: ProxyServer | None, identity: ssl.SSLContext | None) -> httpcore2.AsyncConnectionPool:
        from toolexec.net.pool import make_pool, trusted

        return make_pool(
            self._look_up,
            allow_private=self._allow_private,
            max_connections=self._max_connections,
            context=identity or trusted(self._ca_file),
            proxy=proxy,
            proxy_context=trusted(self._ca_file),
        )

    async def _judge(self, host: str, port: int) -> None:
        """Raise unless the addresses of a host that a proxy connects to may be reached, as they are known here."""
        from toolexec.net.pool import allowed_addresses

        if is_address(host):
            return  # it was judged when the request was
        try:
            await allowed_addresses(self._look_up, host, port, allow_private=self._allow_private)
        except BackendUnavailableError as error:
            if not self._allow_private:
                message = f"{error.message} that is known here; `allow_private` leaves that to the proxy"
                raise BackendUnavailableError(message, retryable=error.retryable) from error
