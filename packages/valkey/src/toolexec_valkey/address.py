"""The address of a Valkey or Redis server, with what it says of the connection."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

from toolexec.errors import ConfigurationError

_PLAIN: Final = ("redis", "valkey")
_WITH_TLS: Final = ("rediss", "valkeys")
_FOR_TLS: Final = ("ca", "cert", "key")
_KEYS: Final = frozenset({*_FOR_TLS, "insecure", "prefix"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ValkeyAddress:
    """Where a server is, and how it is spoken to.

    `ca` is a file of the certificates that its own is checked with, in place of those of the system; `cert` and `key`
    are the files, PEM, of a certificate that this client shows and of its key (None: it is in the same file). `prefix`
    is what the names of all keys begin with. The password is not in the `repr`.
    """

    host: str
    port: int = 6379
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    prefix: str = "toolexec:"

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read `valkeys://user:password@host:port/database?prefix=...&ca=FILE&cert=FILE&key=FILE`.

        `valkey://` is without TLS: then only a server of this machine is spoken to, unless the address has
        `insecure=1`. Raises ConfigurationError, which quotes nothing of the address.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
            query = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
            database = int(parts.path.removeprefix("/") or 0)
        except ValueError:
            raise _wrong("it is not a URL with a port and the number of a database") from None
        if parts.scheme not in (*_PLAIN, *_WITH_TLS):
            raise _wrong("it begins with valkey:// or valkeys://")
        if not host:
            raise _wrong("it names no host")
        if unknown := sorted(query.keys() - _KEYS) or [key for key, values in query.items() if len(values) > 1]:
            raise _wrong(f"it has {len(unknown)} parameters that are unknown or there twice; it may have {_listed()}")
        if database < 0 or parts.fragment:
            raise _wrong("it ends with the number of a database")
        tls = parts.scheme in _WITH_TLS
        files = {name: query[name][0] for name in _FOR_TLS if name in query}
        if files and (not tls or not all(files.values())):
            raise _wrong("ca, cert and key are names of files, for an address with TLS: valkeys://")
        if "key" in files and "cert" not in files:
            raise _wrong("it has a key without the cert that it belongs to")
        if not tls and not _is_here(host) and query.get("insecure") != ["1"]:
            raise _wrong("passwords and records would cross the network in the clear; use valkeys://, or insecure=1")
        return cls(
            host=host,
            port=port or 6379,
            database=database,
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            tls=tls,
            ca=files.get("ca"),
            cert=files.get("cert"),
            key=files.get("key"),
            prefix=query["prefix"][0] if "prefix" in query else "toolexec:",
        )


def _listed() -> str:
    return ", ".join(sorted(_KEYS))


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _wrong(why: str) -> ConfigurationError:
    return ConfigurationError(f"state_url cannot be used: {why}", details={"setting": "server.state_url"})
