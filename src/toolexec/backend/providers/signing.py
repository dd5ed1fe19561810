"""Credentials that authenticate each request by itself: digest authentication, and signatures for AWS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from toolexec.net.auth import Digest, RequestAuth
from toolexec.net.hosts import origin_of

SIGV4_NEEDED: Final = frozenset(("access_key_id", "secret_access_key", "region", "service"))
SIGV4_OPTIONAL: Final = frozenset(("session_token",))
_HASH: Final = re.compile(r"[0-9a-f]{32,}")
_MAX_KEPT: Final = 1024


def is_sigv4(credential: Mapping[str, str]) -> bool:
    """Return whether a credential is one of AWS."""
    return "access_key_id" in credential


class Signers:
    """Keeps what authenticates with a credential at an origin: a server's challenge for a digest is good for many
    requests, of that credential alone."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, frozenset[tuple[str, str]]], RequestAuth] = {}

    def of(self, url: str, credential: Mapping[str, str]) -> RequestAuth:
        """Return what authenticates requests to the origin of *url*: a signer for a credential of AWS, else a digest of
        `username` and `password`."""
        key = origin_of(url), frozenset(credential.items())
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            found = self._kept[key] = _made(credential)
        return found


def _made(credential: Mapping[str, str]) -> RequestAuth:
    if not is_sigv4(credential):
        return Digest(credential["username"], credential["password"])
    from toolexec.net.sigv4 import SigV4

    return SigV4(
        access_key_id=credential["access_key_id"],
        secret_access_key=credential["secret_access_key"],
        region=credential["region"],
        service=credential["service"],
        session_token=credential.get("session_token", ""),
    )


def written_secrets(written: Iterable[str]) -> set[str]:
    """Return what must not be shown of what authenticated a request: a signature can be used once more for some
    minutes, and a digest shows a password to who can guess it."""
    return {part for value in written for part in (value, *_HASH.findall(value))}
