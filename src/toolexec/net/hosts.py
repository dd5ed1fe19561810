"""Names of hosts as they are compared, and lists of hosts that may be reached. Values only; no I/O."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from toolexec.errors import ConfigurationError

DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_PORT: Final = re.compile(r"[0-9]{1,5}")


class HostRule(NamedTuple):
    """An entry of a list of hosts: the `host` itself, or with `below` the names below it (all names for "").

    `port` 0 stands for the usual ports of HTTP, 80 and 443.
    """

    host: str
    below: bool
    port: int

    def matches(self, host: str, port: int) -> bool:
        """Return whether the entry has this host, in the form of `plain_host`, with this port."""
        if port not in ((self.port,) if self.port else DEFAULT_PORTS.values()):
            return False
        if not self.below:
            return host == self.host
        return not is_address(host) and (not self.host or host.endswith(f".{self.host}"))


def read_rule(text: str) -> HostRule:
    """Return an entry of a list of hosts: `host`, `*.host` or `*`, each also with `:PORT`.

    Raises ConfigurationError for any other text.
    """
    star, name = (True, text[1:]) if text.startswith("*") else (False, text)
    if star and (not name or name.startswith(":")):
        port = read_authority(f"x{name}", 0)
        if port is not None:
            return HostRule("", below=True, port=port[1])
    elif not star or name.startswith("."):
        found = read_authority(name.removeprefix("."), 0)
        if found is not None and not (star and is_address(found[0])):
            return HostRule(found[0], below=star, port=found[1])
    raise ConfigurationError(
        f"{text!r} is not a host that can be allowed; use api.example.com, *.example.com or one with :PORT"
    )


def read_authority(text: str, default_port: int) -> tuple[str, int] | None:
    """Return host and port of `host`, `host:port` or `[address]:port`; None for any other form."""
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in inside or (rest and not rest.startswith(":")):
            return None
        name, port = inside, rest[1:] if rest else None
    else:
        name, colon, after = text.partition(":")
        port = after if colon else None
    host = plain_host(name)
    if host is None or (":" in host) != text.startswith("["):
        return None
    if port is None:
        return host, default_port
    if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        return None
    return host, int(port)


def written_authority(scheme: str, host: str, port: int) -> str:
    """Return what a Host header says: without the port where that is the usual one of *scheme*."""
    host = f"[{host}]" if ":" in host else host
    return host if port == DEFAULT_PORTS[scheme] else f"{host}:{port}"


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL of HTTP as they are compared, such as `https://api.example.com`: without
    user, path and the usual port. Empty for any other string."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if parts.scheme not in DEFAULT_PORTS:
        return ""
    found = read_authority(parts.netloc.rpartition("@")[2], DEFAULT_PORTS[parts.scheme])
    return f"{parts.scheme}://{written_authority(parts.scheme, *found)}" if found is not None else ""


def plain_host(name: str) -> str | None:
    """Return a host as it is compared: in lower case, ASCII, without a dot at its end; None if it is invalid."""
    if ":" in name:
        return str(ipaddress.IPv6Address(name)) if is_address(name) and "%" not in name else None
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    name = name.lower().removesuffix(".")
    return name if _NAME.fullmatch(name) else None


def is_address(host: str) -> bool:
    """Return whether *host* is an IP address, and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_local_name(host: str) -> bool:
    """Return whether *host* is a name that always means this machine."""
    return host == "localhost" or host.endswith(".localhost")
