"""How the requests of a provider get to their hosts: with which certificate, and through which proxy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, TypedDict
from urllib.parse import urlsplit

from toolexec.backend.secrets import has_reference
from toolexec.backend.secrets.credentials import secrets_of_pair, secrets_of_url
from toolexec.errors import ConfigurationError
from toolexec.net.proxy import ENVIRONMENT, read_proxy

_PAIR = frozenset(("username", "password"))


class TransportSettings(TypedDict, total=False):
    """The settings by keyword; for type checkers."""

    cert_file: str | Path
    key_file: str | Path
    key_password: str
    proxy: str
    proxy_auth: Mapping[str, str]


class Transport(Protocol):
    """A provider with these settings."""

    @property
    def cert_file(self) -> str | Path:
        """A certificate that is shown to its servers, PEM."""
        ...

    @property
    def key_file(self) -> str | Path:
        """The key of the certificate; in the same file if it is empty."""
        ...

    @property
    def key_password(self) -> str:
        """What decrypts the key."""
        ...

    @property
    def proxy(self) -> str:
        """The URL of a proxy, `environment`, or empty for none."""
        ...

    @property
    def proxy_auth(self) -> Mapping[str, str]:
        """The `username` and `password` for the proxy."""
        ...


def check_transport(where: str, provider: Transport) -> None:
    """Raise ConfigurationError, which begins with *where*, for settings that cannot work."""
    proxy = provider.proxy
    if (provider.key_file or provider.key_password) and not provider.cert_file:
        raise ConfigurationError(f"{where}: key_file and key_password are those of a certificate; set cert_file")
    if provider.proxy_auth and (frozenset(provider.proxy_auth) != _PAIR or proxy in ("", ENVIRONMENT)):
        raise ConfigurationError(f"{where}: proxy_auth must be {{username, password}}, beside the URL of a proxy")
    if proxy in ("", ENVIRONMENT) or has_reference(proxy):
        return
    if "@" in urlsplit(proxy).netloc:
        raise ConfigurationError(f"{where}: proxy has a user or a password in it; send these with proxy_auth")
    read_proxy(proxy, where=f"{where}: proxy")


def client_settings(provider: Transport, origins: Collection[str]) -> dict[str, Any]:
    """Return the settings of an `HTTPClient`, whose certificate is shown to *origins* alone."""
    auth = provider.proxy_auth
    return {
        "cert_file": provider.cert_file,
        "key_file": provider.key_file,
        "key_password": provider.key_password,
        "cert_origins": tuple(sorted(origins)),
        "proxy": provider.proxy,
        "proxy_auth": (auth["username"], auth["password"]) if auth else None,
    }


def transport_strings(provider: Transport) -> dict[str, str]:
    """Return the strings that may hold references to secrets, by label."""
    found = {"key_password": provider.key_password, "proxy": provider.proxy}
    return found | {f"proxy_auth.{name}": value for name, value in provider.proxy_auth.items()}


def with_transport_strings(provider: Transport, found: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a provider with the strings of `transport_strings` filled in."""
    auth = {name: found[f"proxy_auth.{name}"] for name in provider.proxy_auth}
    return {"key_password": found["key_password"], "proxy": found["proxy"], "proxy_auth": auth}


def transport_secrets(provider: Transport) -> set[str]:
    """Return what must not be shown of the settings."""
    found = {provider.key_password} | secrets_of_url(provider.proxy)
    auth = provider.proxy_auth
    return found | (secrets_of_pair(auth.get("username", ""), auth.get("password", "")) if auth else set())
