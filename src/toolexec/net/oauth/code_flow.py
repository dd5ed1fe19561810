"""A login in a browser: the link, what comes back to this machine, and the code that is changed for a token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from toolexec.errors import LoginError
from toolexec.net.oauth.metadata import AuthorizationServer
from toolexec.net.oauth.tokens import TokenReply

_OPENID = "openid"


def _random() -> str:
    return secrets.token_urlsafe(48)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRequest:
    """One request for a code, with a state, a nonce and a verifier (PKCE) that are its own.

    Raises LoginError where the authorization server has no such flow, or does not support PKCE with S256.
    """

    server: AuthorizationServer
    client_id: str
    redirect: str
    scope: str = ""
    resource: str = ""
    audience: str = ""
    state: str = field(default_factory=_random, repr=False)
    nonce: str = field(default_factory=_random, repr=False)
    verifier: str = field(default_factory=_random, repr=False)

    def __post_init__(self) -> None:
        if not self.server.authorization_endpoint or not self.server.token_endpoint:
            raise LoginError(f"{self.server.issuer} has no login in a browser; set flow in auth to device or client")
        if "S256" not in (self.server.challenge_methods or ()):
            raise LoginError(
                f"{self.server.issuer} does not say that it supports PKCE with S256: codes could be stolen"
            )

    @property
    def link(self) -> str:
        """Where a person logs in."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        asked |= {"scope": self.scope} if self.scope else {}
        asked |= {"resource": self.resource} if self.resource else {}
        asked |= {"audience": self.audience} if self.audience else {}
        words = self.scope.split()
        asked |= {"nonce": self.nonce} if _OPENID in words else {}
        asked |= {"prompt": "consent"} if "offline_access" in words else {}
        place = urlsplit(self.server.authorization_endpoint)
        query = "&".join(filter(None, (place.query, urlencode(asked))))
        return place._replace(query=query, fragment="").geturl()

    def is_ours(self, answer: Mapping[str, str]) -> bool:
        """Return whether an answer has the state of this request."""
        return hmac.compare_digest(answer.get("state", "").encode(), self.state.encode())

    def code(self, answer: Mapping[str, str]) -> str:
        """Return the code in what the browser came back with.

        Raises LoginError for another state, another or a missing issuer (RFC 9207), and for an error.
        """
        if not self.is_ours(answer):
            raise LoginError("what the browser came back with has another state: it is not the answer to this login")
        issuer = answer.get("iss")
        if issuer is not None and issuer != self.server.issuer:
            raise LoginError(f"the answer to the login names the issuer {issuer[:200]!r}, not {self.server.issuer}")
        if issuer is None and self.server.sends_issuer:
            raise LoginError(f"the answer to the login names no issuer, and {self.server.issuer} says that it does")
        if "error" in answer:
            raise LoginError(f"{self.server.issuer} refused the login: {printable(answer['error'])}")
        if not answer.get("code"):
            raise LoginError("the answer to the login has no code")
        return answer["code"]

    def fields(self, code: str) -> dict[str, str]:
        """Return what a code is changed for a token with."""
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect,
            "code_verifier": self.verifier,
        }
        return fields | ({"resource": self.resource} if self.resource else {})

    def check(self, reply: TokenReply, now: float) -> None:
        """Raise LoginError where the login was asked who the person is, and its answer is not one to this request."""
        if _OPENID in self.scope.split():
            check_id_token(reply.id_token, self.server.issuer, self.client_id, self.nonce, now)


def check_id_token(token: str, issuer: str, client_id: str, nonce: str, now: float) -> None:
    """Raise LoginError unless an ID token is *issuer*'s, for *client_id* and *nonce*, and has not expired.

    It comes from the token endpoint itself, whose certificate stands for its signature (OpenID Connect, 3.1.3.7).
    """
    if not token:
        return  # the scope was not granted
    try:
        _, body, _ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(f"{body}{'=' * (-len(body) % 4)}"))
        audience, until = claims.get("aud"), float(claims.get("exp", 0))
        audience = audience if isinstance(audience, list) else [audience]
        wrong = [
            ("issuer", claims.get("iss") != issuer),
            ("client", client_id not in audience),
            ("nonce", not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode())),
            ("time", until < now - 60),
        ]
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise LoginError(f"the ID token of {issuer} cannot be read") from None
    for name, is_wrong in wrong:
        if is_wrong:
            raise LoginError(f"the ID token of {issuer} is not for this login: another {name}")


def printable(text: str) -> str:
    """Return a short text of a server as it may be shown."""
    return "".join(each if each.isprintable() else "?" for each in text[:100])
