"""Credentials in requests: API keys, bearer tokens, basic authentication and tokens of OAuth2."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from toolexec.backend.providers.openapi.request import Draft
from toolexec.backend.providers.openapi.security import Credential, Schemes
from toolexec.backend.providers.openapi.tokens import Client, TokenKey, Tokens
from toolexec.backend.secrets.origins import CredentialOrigins

__all__ = ["Auth", "Used"]


@dataclass(slots=True)
class Used:
    """What the requests of one call were sent with: each token that was asked for by what it belongs to, and all of
    them, which are `secrets`."""

    tokens: dict[TokenKey, str] = field(default_factory=dict[TokenKey, str])
    secrets: set[str] = field(default_factory=set[str])


class Auth:
    """Adds the credentials of *schemes* to requests, and *headers* to all of them; both only where *origins* lets them
    go, and what *tokens* are asked for with only where *token_origins* does.
    """

    def __init__(
        self,
        schemes: Schemes,
        headers: Mapping[str, str],
        client: Client,
        tokens: Tokens,
        *,
        origins: CredentialOrigins,
        token_origins: CredentialOrigins,
    ) -> None:
        self._schemes = schemes
        self._headers = list(headers.items())
        self._client = client
        self._tokens = tokens
        self._origins = origins
        self._token_origins = token_origins

    async def apply(self, security: tuple[tuple[str, ...], ...], draft: Draft, used: Used) -> None:
        """Add what the first alternative of *security* asks for that there are credentials for; note it in *used*.

        Raises BackendUnavailableError when a token cannot be had, and where credentials may not go to the request's
        origin.
        """
        ready = next((each for each in security if each and all(name in self._schemes.auth for name in each)), ())
        if ready or self._headers:
            self._origins.check(draft.url, f"auth.{ready[0]}" if ready else f"headers.{self._headers[0][0]}")
        for name, value in self._headers:
            _put(name, value, draft)
        used.tokens.clear()
        for name in ready:
            await self._add(name, draft, used)

    def refused(self, used: Used) -> bool:
        """Drop the tokens of a request that was refused; return whether it had any, so that others may be accepted.

        A token that another call has got since then stays, and is the one to try.
        """
        for key, value in used.tokens.items():
            self._tokens.refuse(key, value)
        return bool(used.tokens)

    async def _add(self, name: str, draft: Draft, used: Used) -> None:
        scheme, credential = self._schemes.known[name], self._schemes.auth[name]
        if scheme.get("type") == "apiKey":
            _add_key(str(scheme["in"]), str(scheme["name"]), str(credential), draft)
        elif str(scheme.get("scheme", "")).lower() == "basic":
            _put("Authorization", f"Basic {_basic(credential)}", draft)
        else:
            token = credential if isinstance(credential, str) else await self._token(name, credential, used)
            _put("Authorization", f"Bearer {token}", draft)

    async def _token(self, name: str, credential: Mapping[str, str], used: Used) -> str:
        url = self._schemes.token_url(name)
        if not self._schemes.given_token_url(name):
            secret = "refresh token" if "refresh_token" in credential else "client secret"
            self._token_origins.check(url, f"the {secret} of auth.{name}")
        key = name, url, frozenset(credential.items())
        token = used.tokens[key] = await self._tokens.get(key, self._client)
        used.secrets.add(token)
        return token


def _put(name: str, value: str, draft: Draft) -> None:
    """Set a header; one of that name that is there already is replaced."""
    draft.headers = [each for each in draft.headers if each[0].lower() != name.lower()]
    draft.headers.append((name, value))


def _add_key(place: str, name: str, key: str, draft: Draft) -> None:
    if place == "header":
        _put(name, key, draft)
    elif place == "query":
        draft.query.append((quote(name, safe=""), quote(key, safe="")))
    else:
        draft.cookies.append((name, quote(key, safe="")))


def _basic(credential: Credential) -> str:
    if not isinstance(credential, str):
        credential = f"{credential['username']}:{credential['password']}"
    return base64.b64encode(credential.encode()).decode()
