"""Access tokens of OAuth2: how they are asked for, kept, and replaced once they are refused."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias
from urllib.parse import urlencode

from toolexec.errors import BackendUnavailableError, ExecutionError, InputValidationError
from toolexec.net.http import HTTPRequest, HTTPResponse
from toolexec.net.oauth.tokens import TokenReply, basic_credentials, read_token

__all__ = ["Client", "TokenKey", "Tokens"]

_EARLY_SECONDS: Final = 30.0
_DEFAULT_SECONDS: Final = 300.0
_MAX_KEPT: Final = 10_000

TokenKey: TypeAlias = tuple[str, str, frozenset[tuple[str, str]]]
"""What a token belongs to: its scheme, where it is asked for, and the whole credential that it is asked for with."""


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


@dataclass(slots=True)
class _Entry:
    """The token of one credential. `asked` counts the requests for it that have ended, `error` is how the last one
    failed, `refresh` the refresh token that replaced the one of the settings."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    token: _Token | None = None
    asked: int = 0
    error: BackendUnavailableError | None = None
    refresh: str = ""


class Tokens:
    """Gets tokens at their first use, and keeps them until shortly before they expire. *clock* gives seconds.

    Each belongs to the credential that it was asked for with, so that callers with credentials of their own never get
    another's. Those of the credentials that were not used for the longest time go when there are more than 10,000.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: OrderedDict[TokenKey, _Entry] = OrderedDict()

    async def get(self, key: TokenKey, client: Client) -> str:
        """Return the token of a credential; all who need it at the same time share one request, and its failure.

        Raises BackendUnavailableError when it cannot be had.
        """
        entry = self._entry(key)
        asked = entry.asked
        async with entry.lock:
            if entry.token is not None and entry.token.until > self._clock():
                return entry.token.value
            if entry.asked != asked and entry.error is not None:
                raise copy.copy(entry.error) from entry.error.__cause__
            entry.token = entry.error = None
            try:
                entry.token = await self._ask(key, entry, client)
            except BackendUnavailableError as error:
                entry.error = error
                raise
            finally:
                entry.asked += 1
            return entry.token.value

    def refuse(self, key: TokenKey, value: str) -> None:
        """Drop a token that was refused; one that has taken its place since then stays."""
        entry = self._entries.get(key)
        if entry is not None and entry.token is not None and entry.token.value == value:
            entry.token = None

    def _entry(self, key: TokenKey) -> _Entry:
        entry = self._entries.setdefault(key, _Entry())
        self._entries.move_to_end(key)
        if len(self._entries) > _MAX_KEPT:
            self._entries.popitem(last=False)
        return entry

    async def _ask(self, key: TokenKey, entry: _Entry, client: Client) -> _Token:
        """Return a new token. Raises BackendUnavailableError: whatever becomes of the request, no call was sent."""
        try:
            return await self._request(key, entry, client)
        except (ExecutionError, InputValidationError) as error:
            raise _no_token(key[0], error.message, retryable=error.retryable) from error

    async def _request(self, key: TokenKey, entry: _Entry, client: Client) -> _Token:
        """Ask for a token, with the client's secret in a header as the standard prefers, or else in the body."""
        name, url, pairs = key
        credential = dict(pairs)
        asked = _grant(credential, entry.refresh)
        identity, secret = credential["client_id"], credential.get("client_secret", "")
        body = {**asked, "client_id": identity}
        if secret:
            response = await _post(
                client, url, asked, {"Authorization": f"Basic {basic_credentials(identity, secret)}"}
            )
            if response.status in (400, 401):
                response = await _post(client, url, {**body, "client_secret": secret}, {})
        else:
            response = await _post(client, url, body, {})
        reply = _read(name, response, is_refresh="refresh_token" in credential)
        if "refresh_token" in credential:
            entry.refresh = reply.refresh_token or entry.refresh
        life = reply.seconds if reply.seconds is not None else _DEFAULT_SECONDS
        return _Token(reply.access_token, self._clock() + max(life - _EARLY_SECONDS, life / 2))


async def _post(client: Client, url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> HTTPResponse:
    form = ("Content-Type", "application/x-www-form-urlencoded")
    head = (form, ("Accept", "application/json"), *headers.items())
    return await client.send(HTTPRequest("POST", url, head, urlencode(fields).encode()))


def _grant(credential: Mapping[str, str], refresh: str) -> dict[str, str]:
    """Return what a token is asked for with, beside the client: its refresh token, or nothing more."""
    if "refresh_token" in credential:
        asked = {"grant_type": "refresh_token", "refresh_token": refresh or credential["refresh_token"]}
    else:
        asked = {"grant_type": "client_credentials"}
    return asked | {name: credential[name] for name in ("scope", "audience") if credential.get(name)}


def _read(name: str, response: HTTPResponse, *, is_refresh: bool) -> TokenReply:
    """Return what a server answered that gave a token. Raises BackendUnavailableError for any other answer."""
    if response.status != 200:
        why = f"its server answered {response.status}"
        if is_refresh and response.status in (400, 401):
            why += "; the refresh token may have been used or revoked: log in again and set a new one"
        raise _no_token(name, why, retryable=response.status >= 500)
    reply = read_token(response.status, response.body)
    if reply is None:
        raise _no_token(name, "its server gave none", retryable=False)
    return reply


def _no_token(name: str, why: str, *, retryable: bool) -> BackendUnavailableError:
    return BackendUnavailableError(f"there is no token for auth.{name}: {why}", retryable=retryable)
