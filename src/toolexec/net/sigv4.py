"""Signatures of requests to AWS, version 4: of exactly what is sent."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from toolexec.net.auth import Received

_UNSIGNED: Final = frozenset(
    (
        *("accept", "accept-encoding", "authorization", "connection", "content-length", "expect", "te"),
        *("transfer-encoding", "upgrade", "user-agent", "x-amzn-trace-id"),
    )
)
"""Headers that proxies on the way may change."""
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_PLAIN_PATHS: Final = frozenset(["s3", "s3-object-lambda", "s3-outposts", "s3express"])
"""The services that take a path as it is sent; all others encode it once more, and without `.`, `..` and `//`."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SigV4:
    """Computes signatures for requests to a *service* of AWS in a *region*; *session_token* goes with temporary keys.
    *now* gives the time.

    The method, the path, the query, the body and all headers are signed, but those that proxies may change.
    """

    access_key_id: str
    secret_access_key: str
    region: str
    service: str
    session_token: str = ""
    now: Callable[[], datetime] = _now

    def flow(
        self, method: str, url: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> Generator[list[tuple[str, str]], Received, None]:
        """Implement `RequestAuth.flow`."""
        time = self.now().strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        added = [("X-Amz-Date", time)]
        if self.session_token:
            added.append(("X-Amz-Security-Token", self.session_token))
        if self.service in _PLAIN_PATHS:
            added.append(("X-Amz-Content-Sha256", digest))
        own = {name.lower() for name, _ in added}
        lines = _canonical_headers([*(each for each in headers if each[0].lower() not in own), *added])
        names = ";".join(lines)
        parts = urlsplit(url)
        path = parts.path or "/"
        if self.service not in _PLAIN_PATHS:
            path = quote(_normalized(path), safe="/~")
        canonical = [method, path, _canonical_query(parts.query)]
        canonical += [*(f"{name}:{value}" for name, value in lines.items()), "", names, digest]
        scope = f"{time[:8]}/{self.region}/{self.service}/aws4_request"
        hashed = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
        signature = _hmac(self._key(time[:8]), f"{_ALGORITHM}\n{time}\n{scope}\n{hashed}").hex()
        credential = f"{self.access_key_id}/{scope}"
        value = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
        yield [*added, ("Authorization", value)]

    def _key(self, day: str) -> bytes:
        key = f"AWS4{self.secret_access_key}".encode()
        for part in (day, self.region, self.service, "aws4_request"):
            key = _hmac(key, part)
        return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _canonical_headers(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the headers that are signed, by lower-case name in order, those of one name joined."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        if name.lower() not in _UNSIGNED:
            found.setdefault(name.lower(), []).append(re.sub(" +", " ", value.strip()))
    return {name: ",".join(found[name]) for name in sorted(found)}


def _canonical_query(query: str) -> str:
    """Return the parameters of a query, each encoded once, in the order of their names and values."""
    pairs = (part.partition("=") for part in query.split("&") if part)
    encoded = sorted((quote(unquote(name), safe="~"), quote(unquote(value), safe="~")) for name, _, value in pairs)
    return "&".join(f"{name}={value}" for name, value in encoded)


def _normalized(path: str) -> str:
    """Return a path without `.`, `..` and empty segments."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    end = "/" if segments and path.endswith(("/", "/.", "/..")) else ""
    return f"/{'/'.join(segments)}{end}"
