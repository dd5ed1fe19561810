"""Which proxy a request goes through: one that is set, those of the environment where that is asked for, or none."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Final
from urllib.parse import unquote, urlsplit

from toolexec.errors import ConfigurationError
from toolexec.errors.extras import extra_needed
from toolexec.net.hosts import DEFAULT_PORTS, read_authority, written_authority

ENVIRONMENT: Final = "environment"
"""Stands for the proxies of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."""

_SOCKS: Final = ("socks5", "socks5h")
_PORTS: Final = {**DEFAULT_PORTS, **dict.fromkeys(_SOCKS, 1080)}


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """A proxy of HTTP or SOCKS 5, with the user and the password that it asks for, if it does."""

    scheme: str
    host: str
    port: int
    auth: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Where it is, without user and password."""
        if self.is_socks:
            host = f"[{self.host}]" if ":" in self.host else self.host
            return f"{self.scheme}://{host}:{self.port}"
        return f"{self.scheme}://{written_authority(self.scheme, self.host, self.port)}"

    @property
    def is_socks(self) -> bool:
        """Whether it speaks SOCKS 5; the name of the host is then looked up by the proxy, too."""
        return self.scheme in _SOCKS


class Proxies:
    """Chooses the proxy for a host: *fixed*, or by *variables*, as `urllib` reads them from the environment."""

    def __init__(self, fixed: ProxyServer | None, variables: dict[str, str] | None = None) -> None:
        self._fixed = fixed
        self._variables = variables or {}
        self._found = {
            name: read_proxy(url if "://" in url else f"http://{url}", where=f"the variable {name.upper()}_PROXY")
            for name, url in self._variables.items()
            if name in ("http", "https", "all") and url
        }

    def of(self, scheme: str, host: str, port: int) -> ProxyServer | None:
        """Return the proxy for a request; None for none."""
        if not self._found:
            return self._fixed
        from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined] # not in the stubs

        authority = written_authority(scheme, host, port)
        if proxy_bypass_environment(authority, self._variables):
            return None
        return self._found.get(scheme) or self._found.get("all")


def read_proxies(text: str, auth: tuple[str, str] | None) -> Proxies:
    """Return what chooses the proxy: *text* is its URL, `environment`, or empty for none.

    Raises ConfigurationError for anything else, also in the environment where that is asked for.
    """
    if text == ENVIRONMENT:
        from urllib.request import getproxies_environment  # takes 10 ms to import

        return Proxies(None, getproxies_environment())
    return Proxies(read_proxy(text, auth) if text else None)


def read_proxy(url: str, auth: tuple[str, str] | None = None, *, where: str = "proxy") -> ProxyServer:
    """Return the proxy at *url*, with the credentials in it unless there is *auth*. Raises ConfigurationError, which
    does not repeat the URL: it may have a password; and MissingExtraError for one of SOCKS without the extra for it."""
    try:
        parts = urlsplit(url)
        user, _, place = parts.netloc.rpartition("@")
        found = read_authority(place, _PORTS.get(parts.scheme, 0))
    except ValueError:
        raise ConfigurationError(f"{where} is not a valid URL") from None
    if parts.scheme not in _PORTS or found is None or parts.path not in ("", "/") or parts.query:
        raise ConfigurationError(
            f'{where} must be http://host:port, https://host:port, socks5://host:port or, in a setting, "{ENVIRONMENT}"'
        )
    if parts.scheme in _SOCKS:
        with extra_needed("socks", "a SOCKS proxy"):
            import_module("socksio")  # the pool needs it at its first connection
    if auth is None and user:
        name, _, password = user.partition(":")
        auth = unquote(name), unquote(password)
    return ProxyServer(parts.scheme, *found, auth)
