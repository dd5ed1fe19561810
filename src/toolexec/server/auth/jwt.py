"""Tokens of an authorization server: checked, and read."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from toolexec.errors import MissingExtraError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Caller
from toolexec.server.auth.credentials import JWT, BadCredentialError, Identity
from toolexec.server.auth.jwks import IssuerKeys
from toolexec.server.auth.live_tokens import expires_at
from toolexec.server.auth.settings import JwtSettings

_LONGEST = 16_384


class Tokens:
    """Accepts the tokens (JWT) of one issuer that are meant for *audience*.

    *reserved* are IDs that no token may claim, as they belong to callers with API keys. *keys* finds the issuer's
    keys. Raises MissingExtraError without PyJWT, ConfigurationError as `IssuerKeys` does.
    """

    def __init__(
        self,
        settings: JwtSettings,
        audience: str,
        *,
        reserved: Container[str] = frozenset(),
        keys: IssuerKeys | None = None,
    ) -> None:
        try:
            import jwt
            from jwt.algorithms import has_crypto
        except ModuleNotFoundError as error:
            raise MissingExtraError("serve", needed_for="checking tokens") from error
        if not has_crypto:
            raise MissingExtraError("serve", needed_for="checking the signatures of tokens")
        self._jwt = jwt
        self._settings = settings
        self._audience = audience
        self._reserved = reserved
        self._keys = keys if keys is not None else IssuerKeys(settings)

    async def identify(self, token: str) -> Identity:
        """Return who the token is about.

        Raises BadCredentialError for one that is malformed, forged, expired, not yet valid, of another issuer, for
        another audience or without an ID; UncheckableError when the keys are not there.
        """
        claims = await self._verified(token)
        settings = self._settings
        subject = _text(claims.get("sub"))
        client = _text(claims.get("client_id")) or _text(claims.get("azp"))
        name = _text(_lookup(claims, settings.id_claim)) or (client if settings.id_claim == "sub" else "")
        if not name:
            raise BadCredentialError(f"the token has no {settings.id_claim}: it does not say who it is about")
        if name in self._reserved:
            raise BadCredentialError("the token claims the ID of a caller who has an API key")
        scopes = _lookup(claims, settings.scopes_claim)
        caller = Caller(
            id=name,
            roles=_words(_lookup(claims, settings.roles_claim)),
            scopes=_words(scopes if scopes is not None else claims.get("scp")),
            tenant=_text(_lookup(claims, settings.tenant_claim)),
            method=JWT,
            claims=claims,
        )
        expires = expires_at(claims, settings.leeway)
        return Identity(
            caller=caller, expires=expires, client=client or name, issuer=settings.issuer, subject=subject or name
        )

    async def _verified(self, token: str) -> JSONDict:
        jwt, settings = self._jwt, self._settings
        if len(token) > _LONGEST:
            raise BadCredentialError("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise BadCredentialError("the token is malformed") from error
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in settings.algorithms:
            raise BadCredentialError("the token is signed in a way that is not accepted")
        data = await self._keys.find(kid if isinstance(kid, str) else None, algorithm)
        try:
            return jwt.decode(
                token,
                jwt.PyJWK({**data}, algorithm=algorithm),
                algorithms=[algorithm],
                audience=self._audience,
                issuer=settings.issuer,
                leeway=settings.leeway,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
        except jwt.ExpiredSignatureError as error:
            raise BadCredentialError("the token has expired") from error
        except jwt.InvalidAudienceError as error:
            raise BadCredentialError("the token is not meant for this server") from error
        except jwt.InvalidIssuerError as error:
            raise BadCredentialError("the token is of another issuer") from error
        except jwt.MissingRequiredClaimError as error:
            raise BadCredentialError("the token lacks exp, iss or aud") from error
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise BadCredentialError("the token is not valid") from error


def _lookup(claims: JSONObject, path: str) -> Any:
    """Return the claim of this name, or what a path with dots leads to."""
    if not path or path in claims:
        return claims.get(path)
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else ""


def _words(value: Any) -> tuple[str, ...]:
    """Return a list of strings, or the words of one text."""
    items: Any = value.split() if isinstance(value, str) else value
    return tuple(item for item in items if isinstance(item, str)) if isinstance(items, list) else ()
