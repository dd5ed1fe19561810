"""Signatures of requests: who sends this, to which server process, now, for the first time.

A signature is the Base64 of HMAC-SHA256, with the secret of a key, over lines: the name of the protocol, the
incarnation that it is for, the method, the path, the run, the last event, the time, and the SHA-256 of the body. The
bearer token says which key is meant, or the header `X-Toolruntime-Key` does: with several keys at the same time, keys
can be changed without a pause.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from toolexec.errors import ConfigurationError, SandboxDeniedError
from toolexec.remote import SKEW, SigningKey
from toolexec_remote.incarnation import INCARNATION_HEADER

__all__ = [
    "KEY_HEADER",
    "SIGNATURE_HEADER",
    "TIMESTAMP_HEADER",
    "Credentials",
    "KeyRing",
    "ReplayCache",
    "Target",
    "read_timestamp",
    "sign",
    "signed_headers",
    "timestamp",
]

TIMESTAMP_HEADER: Final = "X-Toolruntime-Timestamp"
"""The header with the time of the request."""
SIGNATURE_HEADER: Final = "X-Toolruntime-Signature"
"""The header with the signature."""
KEY_HEADER: Final = "X-Toolruntime-Key"
"""The header with the ID of the key."""

_PROTOCOL: Final = "toolexec.runtime.v2"
_BILLION: Final = 1_000_000_000
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII)
_MAX_TEXT: Final = 200
_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class Target:
    """What a signature is for, beside the body: the `incarnation` of the server, `method` and `path` as they are sent,
    and where they matter the `run` and the `last_event` that was received."""

    incarnation: str
    method: str
    path: str
    run: str = ""
    last_event: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a request says of its sender, as it came."""

    authorization: str = ""
    timestamp: str = ""
    signature: str = ""
    key: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Credentials:
        """Return those in *headers*, whose names may be in any case if the mapping allows that."""
        return cls(
            authorization=headers.get("Authorization", ""),
            timestamp=headers.get(TIMESTAMP_HEADER, ""),
            signature=headers.get(SIGNATURE_HEADER, ""),
            key=headers.get(KEY_HEADER, ""),
        )


def timestamp(nanoseconds: int | None = None) -> str:
    """Return a time (default: now) as it is signed: UTC, RFC 3339, with up to nine digits of the second's fraction, and
    none that are zero at its end."""
    nanoseconds = time.time_ns() if nanoseconds is None else nanoseconds
    seconds, rest = divmod(nanoseconds, _BILLION)
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def read_timestamp(text: str) -> float | None:
    """Return the Unix time that *text* says; None when it is not a timestamp."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    zone = "+00:00" if found[3] == "Z" else found[3]
    try:
        whole = datetime.fromisoformat(found[1] + zone).timestamp()
    except (ValueError, OverflowError):
        return None
    return whole + int((found[2] or "0").ljust(9, "0")) / _BILLION


def sign(secret: str, stamp: str, target: Target, body: bytes) -> str:
    """Return the signature of a request that is sent at the time *stamp*. Raises ValueError for a part of several
    lines: it would be unclear what was signed."""
    parts = (target.incarnation, target.method, target.path, target.run, target.last_event, stamp)
    lines = "\n".join((_PROTOCOL, *parts, hashlib.sha256(body).hexdigest()))
    if lines.count("\n") != len(parts) + 1:
        raise ValueError("no part of what is signed has line breaks")
    made = hmac.new(secret.encode(), lines.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return base64.b64encode(made.digest()).decode()


def signed_headers(
    key: SigningKey, target: Target, body: bytes = b"", nanoseconds: int | None = None
) -> dict[str, str]:
    """Return the headers that a request needs; each attempt needs new ones."""
    stamp = timestamp(nanoseconds)
    return {
        "Authorization": f"Bearer {key.token}",
        INCARNATION_HEADER: target.incarnation,
        TIMESTAMP_HEADER: stamp,
        SIGNATURE_HEADER: sign(key.signing_secret, stamp, target, body),
        KEY_HEADER: key.id,
    }


class ReplayCache:
    """Remembers signatures until they are too old to be sent again. At most *most*, and of a tenant four times as many
    as there is room for; when there are more at the same time, it refuses new ones rather than forget old ones."""

    def __init__(self, most: int = 1_000_000) -> None:
        self._most = most
        self._seen: set[str] = set()
        self._order: deque[tuple[float, str, str]] = deque()
        self._of: Counter[str] = Counter()

    def claim(self, signature: str, until: float, now: float, account: str = "") -> bool:
        """Return whether *signature* of a tenant, which counts until the time *until*, is new; it is not from now
        on."""
        while self._order and self._order[0][0] < now:
            _, old, owner = self._order.popleft()
            self._seen.discard(old)
            self._of[owner] -= 1
        free = self._most - len(self._seen)
        if signature in self._seen or not free or self._of[account] >= _SHARE * free:
            return False
        self._seen.add(signature)
        self._of[account] += 1
        self._order.append((until, signature, account))
        return True


class KeyRing:
    """The keys that a server takes. Raises ConfigurationError for two keys with one ID, or one token."""

    def __init__(self, keys: Iterable[SigningKey], *, skew: float = SKEW) -> None:
        self.skew = skew
        self.replace(keys)

    def replace(self, keys: Iterable[SigningKey]) -> None:
        """Take these keys from now on, and no others. Raises ConfigurationError as the constructor does, and then
        changes nothing."""
        wanted = tuple(keys)
        by_id = {key.id: key for key in wanted}
        by_token = {_digest(key.token): key for key in wanted}
        if len(by_id) < len(wanted) or len(by_token) < len(wanted):
            raise ConfigurationError("each key needs an ID and a token of its own")
        self._by_id = by_id
        self._by_token = by_token
        self._tenants = len({key.account for key in wanted})

    @property
    def tenants(self) -> int:
        """How many tenants have keys."""
        return self._tenants

    def get(self, key_id: str) -> SigningKey | None:
        """Return the key with this ID."""
        return self._by_id.get(key_id)

    def identify(self, sent: Credentials, now: float) -> SigningKey:
        """Return the key whose token a request has; raises SandboxDeniedError (`unauthenticated`)."""
        kind, _, token = sent.authorization.partition(" ")
        key = self._by_token.get(_digest(token.strip())) if kind.lower() == "bearer" else None
        if key is None or (sent.key and sent.key != key.id):
            raise _denied("unauthenticated", "the token of this request is not known here")
        _check_expiry(key, now)
        return key

    def verify(self, sent: Credentials, target: Target, body: bytes, now: float, cache: ReplayCache) -> SigningKey:
        """Return the key that has signed a request to *target*, which counts as seen from now on.

        Raises SandboxDeniedError with one of the codes `unauthenticated`, `signature_invalid`, `signature_stale` (it
        says by how much the clocks differ) and `signature_replayed`. Nothing was run.
        """
        key = self.identify(sent, now)
        self.check(key, sent.timestamp, sent.signature, target, body, now, cache)
        return key

    def check(
        self, key: SigningKey, stamp: str, signature: str, target: Target, body: bytes, now: float, cache: ReplayCache
    ) -> None:
        """Raise as `verify` does, unless *key* has signed this at the time *stamp*, now, and for the first time."""
        _check_expiry(key, now)
        try:
            expected = sign(key.signing_secret, stamp[:_MAX_TEXT], target, body)
        except ValueError as error:
            raise _denied("signature_invalid", f"the signature is wrong: {error}") from None
        if not hmac.compare_digest(expected.encode(), signature[:_MAX_TEXT].encode("utf-8", "replace")):
            raise _denied(
                "signature_invalid",
                f"the signature is wrong: it must be that of {key.id}, over incarnation, method, path, run, last "
                "event, time and body",
            )
        made = read_timestamp(stamp)
        if made is None:
            raise _denied("signature_invalid", f"{TIMESTAMP_HEADER} must be a time such as 2026-01-31T09:30:00Z")
        if abs(now - made) > self.skew:
            how = "behind" if made < now else "ahead of"
            raise _denied(
                "signature_stale",
                f"the signature was made {abs(now - made):.0f} s {how} the clock of this server, more than "
                f"{self.skew:g} s; set the clocks, or sign again",
                skew=round(made - now, 3),
            )
        if not cache.claim(signature, made + self.skew, now, key.account):
            raise _denied("signature_replayed", "this very request was here before; sign each attempt again")


def _check_expiry(key: SigningKey, now: float) -> None:
    if key.has_expired(now):
        raise _denied("unauthenticated", f"the key {key.id} has expired; use a newer one")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _denied(code: str, message: str, **details: float) -> SandboxDeniedError:
    return SandboxDeniedError(message, code=code, op="authenticate", details=details)
