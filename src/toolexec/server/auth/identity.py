"""Who somebody proved to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolexec.model.origin import Caller

if TYPE_CHECKING:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

__all__ = ["CALLER", "BadCredentialError", "Identity", "UncheckableError"]

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

    `issuer`, `subject` and `client` together tell two callers apart; sessions belong to these three.
    """

    caller: Caller
    expires: float
    client: str
    issuer: str = ""
    subject: str = ""

    def user(self) -> AuthenticatedUser:
        """The identity as the MCP SDK wants it. It never has the credential itself in it."""
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
