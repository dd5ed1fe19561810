"""What a request asks for, and whether it is well said. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from toolexec.net.hosts import DEFAULT_PORTS, read_authority
from toolexec.runtime.egress.policy import Origin, Scheme

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_OURS: Final = frozenset({b"connection", b"host", b"content-length", b"transfer-encoding"})
"""What a Connection header cannot take away: it says where a message goes, or where it ends."""


class RefusedError(Exception):
    """A request that is not passed on. `status` is what the code gets, the text why; it may be shown to code."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ParsedRequest(NamedTuple):
    """Where a request goes, and what it asks for there."""

    origin: Origin
    target: str

    @property
    def path(self) -> str:
        """Without the query, for records."""
        return self.target.partition("?")[0]


def tunnel_to(target: bytes, headers: Headers) -> tuple[str, int]:
    """Return host and port of a CONNECT; raises RefusedError."""
    text = target.decode("ascii", "replace")
    found = read_authority(text, 0)
    if found is None or not found[1]:
        raise RefusedError(400, "CONNECT needs host:port")
    _check_host(headers, found, found[1])
    return found


def asked_of_proxy(target: bytes, headers: Headers) -> ParsedRequest:
    """Return what a request to a proxy asks for: its target is a whole URL; raises RefusedError."""
    scheme, host, port, rest = _split(target)
    if scheme != "http":
        raise RefusedError(400, "for https use CONNECT")
    _check_host(headers, (host, port), 80)
    return ParsedRequest(Origin("http", host, port), rest)


def asked_of_origin(target: bytes, headers: Headers, origin: Origin) -> ParsedRequest:
    """Return what a request inside of a tunnel to *origin* asks for; raises RefusedError."""
    _check_host(headers, (origin.host, origin.port), DEFAULT_PORTS[origin.scheme])
    if target == b"*":
        raise RefusedError(400, "a request for * is not passed on")
    if target.startswith(b"/"):
        if b"#" in target:
            raise RefusedError(400, "the target of a request has no fragment")
        return ParsedRequest(origin, target.decode("ascii", "replace"))
    scheme, host, port, rest = _split(target)
    if (scheme, host, port) != origin:
        raise RefusedError(403, f"this connection is to {origin.authority}, and the request for another host")
    return ParsedRequest(origin, rest)


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers that are not only for the next hop; of those that say where a message ends, only its
    length.
    """
    headers = [*headers]
    connection = b",".join(values(headers, b"connection")).lower()
    named = {token.strip() for token in connection.split(b",")}
    dropped = _HOP_BY_HOP | (named - _NOT_OURS)
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def values(headers: Headers, name: bytes) -> list[bytes]:
    """Return all values of one header."""
    return [value for other, value in headers if other.lower() == name]


def _split(target: bytes) -> tuple[Scheme, str, int, str]:
    """Scheme, host, port, and path with query of a URL."""
    text = target.decode("ascii", "replace")
    scheme, mark, rest = text.partition("://")
    scheme = scheme.lower()
    if not mark or (scheme not in ("http", "https")):
        raise RefusedError(400, "the target of a request to a proxy is a URL with http")
    end = min((at for at in (rest.find(sign) for sign in "/?#") if at >= 0), default=len(rest))
    authority, path = rest[:end], rest[end:]
    if "@" in authority or "#" in path:
        raise RefusedError(400, "the target of a request has neither a user name nor a fragment")
    found = read_authority(authority, DEFAULT_PORTS[scheme])
    if found is None:
        raise RefusedError(400, "the target of the request has no valid host")
    return scheme, *found, path if path.startswith("/") else f"/{path}"


def _check_host(headers: Headers, asked: tuple[str, int], default_port: int) -> None:
    """The Host header and the target must agree: a server may believe either."""
    for value in values(headers, b"host"):
        if read_authority(value.decode("ascii", "replace"), default_port) != asked:
            raise RefusedError(403, "the Host header names another host than the target of the request")
