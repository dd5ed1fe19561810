"""Requests for tokens: how a client proves who it is, and what may come back. All flows and providers use this."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote_plus

from toolexec.errors import LoginError
from toolexec.errors.extras import extra_needed
from toolexec.model.json_value import JSONDict

_MAX_TOKEN: Final = 16_384
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS: Final = 120
_EVER: Final = 1e9
EITHER: Final = "client_secret"
"""Stands for a secret in a header and, where that is refused, in the body: for servers that do not say which."""


@dataclass(frozen=True, slots=True)
class TokenReply:
    """A token, and what came with it: `seconds` is how long it lasts, None where that is unknown."""

    access_token: str = field(repr=False)
    seconds: float | None = None
    refresh_token: str = field(default="", repr=False)
    scope: str | None = None
    id_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClient:
    """A client as its authorization server knows it. `method` is how it proves who it is: `none`,
    `client_secret_basic`, `client_secret_post`, `private_key_jwt` with `private_key` (PEM), or `EITHER`."""

    client_id: str
    method: str = "none"
    secret: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)

    def ways(self) -> Sequence[TokenClient]:
        """Return the client with each method to try, one after the other."""
        if self.method != EITHER:
            return [self]
        return [self, replace(self, method="client_secret_post")]

    def prove(self, fields: Mapping[str, str], issuer: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the fields and the headers of a request for a token that this client makes at *issuer*.

        Raises LoginError for a method that it cannot use, and MissingExtraError where a key needs the `serve` extra.
        """
        sent = {**fields, "client_id": self.client_id}  # beside a header, too: some servers look for it only here
        if self.method == EITHER and self.secret:
            sent = dict(fields)
        if self.method in ("client_secret_basic", EITHER) and self.secret:
            return sent, {"Authorization": f"Basic {basic_credentials(self.client_id, self.secret)}"}
        if self.method == "client_secret_post" and self.secret:
            sent["client_secret"] = self.secret
        elif self.method == "private_key_jwt" and self.private_key:
            sent |= {"client_assertion_type": _ASSERTION, "client_assertion": self._assertion(issuer)}
        elif self.method != "none":
            raise LoginError(
                f"the authorization server wants {self.method[:60]!r} of this client, which has no such proof"
            )
        return sent, {}

    def _assertion(self, issuer: str) -> str:
        """Return a signed short-lived statement of this client, for *issuer* alone (RFC 7523)."""
        with extra_needed("serve", "a private key in auth"):
            import jwt
            from cryptography.hazmat.primitives.asymmetric import ec, ed25519
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        now = int(time.time())
        claims: dict[str, Any] = {"iss": self.client_id, "sub": self.client_id, "aud": issuer}
        claims |= {"iat": now, "exp": now + _ASSERTION_SECONDS, "jti": secrets.token_urlsafe(24)}
        try:
            key = load_pem_private_key(self.private_key.encode(), None)
        except (ValueError, TypeError) as error:
            raise LoginError(f"the private_key of auth cannot be read ({type(error).__name__})") from None
        if isinstance(key, ec.EllipticCurvePrivateKey):
            algorithm = {"secp384r1": "ES384", "secp521r1": "ES512"}.get(key.curve.name, "ES256")
        else:
            algorithm = "EdDSA" if isinstance(key, ed25519.Ed25519PrivateKey) else "RS256"
        return jwt.encode(claims, self.private_key, algorithm=algorithm)


def basic_credentials(identity: str, secret: str) -> str:
    """Return a client's credentials as RFC 6749 has them in a header: encoded as in a form, then as basic ones."""
    return base64.b64encode(f"{quote_plus(identity)}:{quote_plus(secret)}".encode()).decode()


def read_token(status: int, body: bytes) -> TokenReply | None:
    """Return the token in the answer of a token endpoint; None where there is none that can be used."""
    data = _object(body) if status == 200 else None
    value = data.get("access_token") if data is not None else None
    if data is None or not isinstance(value, str) or not value or len(value) > _MAX_TOKEN:
        return None
    if not value.isascii() or not value.isprintable() or " " in value:
        return None
    if str(data.get("token_type") or "bearer").lower() != "bearer":
        return None
    seconds = data.get("expires_in")
    if isinstance(seconds, str) and seconds.isdecimal():
        seconds = int(seconds[:12])
    is_time = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < _EVER
    scope = data.get("scope")
    return TokenReply(
        value,
        float(seconds) if is_time and isinstance(seconds, int | float) else None,
        _text(data, "refresh_token"),
        scope if isinstance(scope, str) else None,
        _text(data, "id_token"),
    )


def refusal_of(body: bytes) -> str:
    """Return the error code in the answer of an authorization server, `invalid_grant` for example; empty for none."""
    data = _object(body)
    code = data.get("error") if data is not None else None
    return code[:60] if isinstance(code, str) and code.isascii() and code.isprintable() else ""


def _object(body: bytes) -> JSONDict | None:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _text(data: JSONDict, name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) and len(value) <= _MAX_TOKEN else ""
