"""Who a caller proved to be, and the simplest proof: API keys."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolexec.model.origin import Caller
from toolexec.server.auth.settings import ApiKey

if TYPE_CHECKING:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

API_KEY = "api_key"
"""The `method` of a `Caller` that an API key has proven."""

JWT = "jwt"
"""The `method` of one that a token has proven."""

CALLER = "toolexec.caller"
"""Where an accepted request's ASGI scope has its `Caller`."""


class BadCredentialError(Exception):
    """The key or the token proves nothing. The text says why and holds nothing of the credential: it goes into logs
    and to the client."""


class UncheckableError(Exception):
    """The token cannot be checked just now, as its issuer's keys are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A caller, and until when the proof holds (`expires`, in seconds since 1970).

    `issuer`, `subject` and `client` together identify a caller; sessions belong to these three.
    """

    caller: Caller
    expires: float
    client: str
    issuer: str = ""
    subject: str = ""

    def user(self) -> AuthenticatedUser:
        """Return the identity as the MCP SDK wants it. It never has the credential itself in it."""
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        token = AccessToken(
            token="",
            client_id=self.client,
            scopes=[*self.caller.scopes],
            subject=self.subject or None,
            claims={"iss": self.issuer} if self.issuer else None,
        )
        return AuthenticatedUser(token)


def new_key() -> str:
    """Return a key that cannot be guessed (256 bits); its prefix lets scanners for leaked secrets find it."""
    return f"txk_{secrets.token_urlsafe(32)}"


def hash_key(key: str) -> str:
    """Return what a configuration has of a key. A key is as random as the hash is long, so a plain hash is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


def caller_of(key: ApiKey) -> Caller:
    """Return who has the key, at the main endpoint."""
    return Caller(id=key.id, roles=tuple(key.roles), scopes=tuple(key.scopes), tenant=key.tenant, method=API_KEY)


class ApiKeys:
    """The keys that are accepted; *clock* gives the seconds since 1970."""

    def __init__(self, keys: Sequence[ApiKey], clock: Callable[[], float] = time.time) -> None:
        self._known = [(bytes.fromhex(key.sha256), key.id) for key in keys]
        self._callers = {key.id: (caller_of(key), key.expires_at()) for key in keys}
        self._clock = clock

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._callers

    def caller(self, key_id: str) -> Caller | None:
        """Return who has the key of this ID now; None once it has expired. Raises KeyError for an unknown one."""
        caller, expires = self._callers[key_id]
        return caller if self._clock() < expires else None

    def identify(self, key: str) -> Identity:
        """Return who has the key. Every entry is compared, so that the time says nothing about which one it was.

        Raises BadCredentialError for a key that is unknown or has expired.
        """
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        found: str | None = None
        for known, key_id in self._known:
            if hmac.compare_digest(known, digest):
                found = key_id
        if found is None:
            raise BadCredentialError("the API key is unknown")
        caller = self.caller(found)
        if caller is None:
            raise BadCredentialError("the API key has expired")
        _, expires = self._callers[found]
        return Identity(caller=caller, expires=expires, client=f"api_key:{found}", subject=found)
