"""Credentials in requests: API keys, bearer tokens, basic authentication and OAuth2 client credentials."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote, quote_plus, urlencode

from toolexec.backend.providers.openapi.request import Draft
from toolexec.backend.providers.openapi.security import Credential, Schemes
from toolexec.backend.secrets.origins import CredentialOrigins
from toolexec.errors import BackendUnavailableError, ExecutionError, InputValidationError
from toolexec.model.json_value import JSONValue
from toolexec.net.http import HTTPRequest, HTTPResponse

__all__ = ["Auth", "Client"]

_EARLY_SECONDS: Final = 30.0
_DEFAULT_SECONDS: Final = 300.0
_MAX_TOKEN: Final = 16_384


class Client(Protocol):
    """What is needed of an `HTTPClient`."""

    async def send(self, request: HTTPRequest) -> HTTPResponse:
        """Send a request and return its response."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


@dataclass(slots=True)
class _Token:
    value: str
    until: float


class Auth:
    """Adds the credentials of *schemes* to requests, and *headers* to all of them; both only where *origins* lets them
    go, and what tokens are asked for with only where *token_origins* does.

    Tokens of OAuth2 are asked for at their first use with *client*, and kept until shortly before they expire.
    """

    def __init__(
        self,
        schemes: Schemes,
        headers: Mapping[str, str],
        client: Client,
        *,
        origins: CredentialOrigins,
        token_origins: CredentialOrigins,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schemes = schemes
        self._headers = list(headers.items())
        self._client = client
        self._origins = origins
        self._token_origins = token_origins
        self._clock = clock
        self._tokens: dict[str, _Token] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def apply(self, security: tuple[tuple[str, ...], ...], draft: Draft) -> tuple[str, ...]:
        """Add what the first alternative of *security* asks for that there are credentials for; return its schemes.

        Raises BackendUnavailableError when a token cannot be had, and where credentials may not go to the request's
        origin.
        """
        ready = next((each for each in security if each and all(name in self._schemes.auth for name in each)), ())
        if ready or self._headers:
            self._origins.check(draft.url, f"auth.{ready[0]}" if ready else f"headers.{self._headers[0][0]}")
        for name, value in self._headers:
            _put(name, value, draft)
        for name in ready:
            await self._add(name, draft)
        return ready

    def forget(self, names: tuple[str, ...]) -> bool:
        """Drop the tokens of schemes whose credentials were refused; return whether there were any."""
        dropped = [self._tokens.pop(name, None) for name in names]
        return any(token is not None for token in dropped)

    async def _add(self, name: str, draft: Draft) -> None:
        scheme, credential = self._schemes.known[name], self._schemes.auth[name]
        if scheme.get("type") == "apiKey":
            _add_key(str(scheme["in"]), str(scheme["name"]), str(credential), draft)
        elif str(scheme.get("scheme", "")).lower() == "basic":
            _put("Authorization", f"Basic {_basic(credential)}", draft)
        else:
            token = credential if isinstance(credential, str) else await self._token(name, credential)
            _put("Authorization", f"Bearer {token}", draft)

    async def _token(self, name: str, credential: Mapping[str, str]) -> str:
        async with self._asking.setdefault(name, asyncio.Lock()):  # one request for all who need it at the same time
            kept = self._tokens.get(name)
            if kept is None or kept.until <= self._clock():
                kept = self._tokens[name] = await self._ask(name, credential)
            return kept.value

    async def _ask(self, name: str, credential: Mapping[str, str]) -> _Token:
        """Return a new token. Raises BackendUnavailableError: whatever becomes of the question, no call was sent."""
        try:
            return await self._request(name, credential)
        except (ExecutionError, InputValidationError) as error:
            raise _no_token(name, error.message, retryable=error.retryable) from error

    async def _request(self, name: str, credential: Mapping[str, str]) -> _Token:
        """Ask for a token, with the client's secret in a header as the standard prefers, or else in the body."""
        url = self._schemes.token_url(name)
        if not self._schemes.given_token_url(name):
            self._token_origins.check(url, f"the client secret of auth.{name}")
        asked = {"grant_type": "client_credentials"}
        asked |= {key: credential[key] for key in ("scope", "audience") if credential.get(key)}
        client = credential["client_id"], credential["client_secret"]
        response = await self._post(url, asked, {"Authorization": f"Basic {_client_basic(*client)}"})
        if response.status in (400, 401):
            response = await self._post(url, {**asked, "client_id": client[0], "client_secret": client[1]}, {})
        return self._read(name, response)

    async def _post(self, url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> HTTPResponse:
        form = ("Content-Type", "application/x-www-form-urlencoded")
        head = (form, ("Accept", "application/json"), *headers.items())
        return await self._client.send(HTTPRequest("POST", url, head, urlencode(fields).encode()))

    def _read(self, name: str, response: HTTPResponse) -> _Token:
        if response.status != 200:
            raise _no_token(name, f"its server answered {response.status}", retryable=response.status >= 500)
        try:
            data: JSONValue = json.loads(response.body)
        except (ValueError, RecursionError):
            data = None
        value = data.get("access_token") if isinstance(data, dict) else None
        if not isinstance(value, str) or not value or len(value) > _MAX_TOKEN or not value.isascii():
            raise _no_token(name, "its server gave none", retryable=False)
        seconds = data.get("expires_in")
        life = float(seconds) if isinstance(seconds, int | float) and 0 < seconds < 1e9 else _DEFAULT_SECONDS
        return _Token(value, self._clock() + max(life - _EARLY_SECONDS, life / 2))

    def secrets(self) -> frozenset[str]:
        """Return the tokens that are in use."""
        return frozenset(token.value for token in self._tokens.values())


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


def _client_basic(identity: str, secret: str) -> str:
    """Return a client's credentials as RFC 6749 has them in a header: encoded as in a form, then as basic ones."""
    return base64.b64encode(f"{quote_plus(identity)}:{quote_plus(secret)}".encode()).decode()


def _no_token(name: str, why: str, *, retryable: bool) -> BackendUnavailableError:
    return BackendUnavailableError(f"there is no token for auth.{name}: {why}", retryable=retryable)
