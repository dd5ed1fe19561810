"""Credentials in requests: API keys, bearer tokens, basic authentication and tokens of OAuth2."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from toolexec.backend.providers.logins import is_renewed, login_of
from toolexec.backend.providers.openapi.request import Draft
from toolexec.backend.providers.openapi.security import Credential, Schemes, given_token_url
from toolexec.backend.providers.openapi.tokens import TokenKey, Tokens
from toolexec.backend.providers.signing import Signers, is_sigv4
from toolexec.backend.secrets.callers import CallerCredentials, no_credentials
from toolexec.backend.secrets.credentials import secrets_of_pair, secrets_of_url
from toolexec.backend.secrets.origins import CredentialOrigins
from toolexec.model.origin import Origin
from toolexec.net.auth import RequestAuth
from toolexec.net.http import HTTPResponse, OpenResponse
from toolexec.net.oauth.callers import CallerLogins
from toolexec.net.oauth.reach import Client
from toolexec.net.oauth.session import OAuthSession
from toolexec.net.oauth.settings import OAuthSettings

_SECRET: Final = ("refresh_token", "secret_access_key", "session_token")


@dataclass(slots=True)
class UsedSecrets:
    """What the requests of one call were sent with: each token that was asked for by what it belongs to, the `token` of
    the `login`, what authenticates each request by itself, and `secrets` that are not those of the settings."""

    tokens: dict[TokenKey, str] = field(default_factory=dict[TokenKey, str])
    token: str = ""
    login: OAuthSession | None = None
    signer: RequestAuth | None = None
    secrets: set[str] = field(default_factory=set[str])


class Auth:
    """Adds the credentials of *schemes*, or with *callers* those of the caller, to requests of *provider*, and
    *headers* to all of them, with the token of one of *logins* where a scheme has that; all only where *origins* lets
    them go, and what *tokens* are asked for with only where *token_origins* does.
    """

    def __init__(
        self,
        provider: str,
        schemes: Schemes,
        headers: Mapping[str, str],
        client: Client,
        tokens: Tokens,
        callers: CallerCredentials | None = None,
        *,
        origins: CredentialOrigins,
        token_origins: CredentialOrigins,
        logins: CallerLogins | None = None,
    ) -> None:
        self._provider = provider
        self._schemes = schemes
        self._headers = list(headers.items())
        self._client = client
        self._tokens = tokens
        self._callers = callers
        self._signers = Signers()
        self._origins = origins
        self._token_origins = token_origins
        self._logins = logins

    @property
    def is_shared(self) -> bool:
        """Whether all callers have the same credentials."""
        return self._callers is None and (self._logins is None or self._logins.is_shared)

    async def apply(
        self, security: tuple[tuple[str, ...], ...], draft: Draft, used: UsedSecrets, origin: Origin
    ) -> None:
        """Add what the first alternative of *security* asks for that a call of *origin* has credentials for; note it in
        *used*.

        Raises BackendUnavailableError when a token cannot be had, and where credentials may not go to the request's
        origin; LoginRequiredError where a person has to log in; PolicyError for a caller that has no credentials,
        unless the operation needs none.
        """
        auth = self._schemes.auth if self._callers is None else await self._of_caller(self._callers, security, origin)
        ready = next((each for each in security if each and all(name in auth for name in each)), ())
        if self._callers is not None:
            if security and not ready and () not in security:
                raise no_credentials(self._provider, origin.caller, " or ".join("+".join(each) for each in security))
            used.secrets |= secrets_of_auth(auth)
        if ready or self._headers:
            what = "auth" if self._callers is None else "credentials"
            self._origins.check(draft.url, f"{what}.{ready[0]}" if ready else f"headers.{self._headers[0][0]}")
        for name, value in self._headers:
            _put(name, value, draft)
        used.tokens.clear()
        used.token, used.login = "", None
        used.signer = None
        for name in ready:
            await self._add(name, auth[name], draft, used, origin)

    async def _of_caller(
        self, callers: CallerCredentials, security: tuple[tuple[str, ...], ...], origin: Origin
    ) -> Mapping[str, Credential]:
        """Return the credentials of a caller; one that has none is refused, unless nothing asks for them."""
        return await callers.of(origin) if any(security) else {}

    async def is_renewed(self, used: UsedSecrets, response: HTTPResponse | OpenResponse, *, is_last: bool) -> bool:
        """Return whether the request that got *response* is to be made once more, as others of its tokens may be
        accepted; it never is if it *is_last*. A token that another call has got since then stays, and is the one to
        try.

        Raises LoginRequiredError where the token of the login was refused, and a person has to log in.
        """
        if (
            used.token
            and used.login is not None
            and await is_renewed(used.login, used.token, response, is_last=is_last)
        ):
            return True
        return response.status == 401 and not is_last and self._refused(used)

    def _refused(self, used: UsedSecrets) -> bool:
        """Drop the tokens of a request that was refused; return whether it had any."""
        for key, value in used.tokens.items():
            self._tokens.refuse(key, value)
        return bool(used.tokens)

    async def _add(self, name: str, credential: Credential, draft: Draft, used: UsedSecrets, origin: Origin) -> None:
        scheme = self._schemes.known[name]
        kind = str(scheme.get("scheme", "")).lower()
        if isinstance(credential, Mapping) and is_sigv4(credential):
            used.signer = self._signers.of(draft.url, credential)
        elif scheme.get("type") == "apiKey":
            _add_key(str(scheme["in"]), str(scheme["name"]), str(credential), draft)
        elif kind == "digest":
            used.signer = self._signers.of(draft.url, _pair(credential))
        elif kind == "basic":
            _put("Authorization", f"Basic {_basic(credential)}", draft)
        elif isinstance(credential, OAuthSettings):
            assert self._logins is not None
            login = used.login = login_of(self._logins, origin)
            token = used.token = await login.needed_token()
            used.secrets |= login.secrets
            _put("Authorization", f"Bearer {token}", draft)
        else:
            token = credential if isinstance(credential, str) else await self._token(name, credential, used)
            _put("Authorization", f"Bearer {token}", draft)

    async def _token(self, name: str, credential: Mapping[str, str], used: UsedSecrets) -> str:
        url = self._schemes.token_url(name, credential)
        if not given_token_url(credential):
            secret = "refresh token" if "refresh_token" in credential else "client secret"
            self._token_origins.check(url, f"the {secret} of auth.{name}")
        key = name, url, frozenset(credential.items())
        token = used.tokens[key] = await self._tokens.get(key, self._client)
        used.secrets.add(token)
        return token


def secrets_of_auth(auth: Mapping[str, Credential]) -> set[str]:
    """Return what must not be shown of credentials."""
    found: set[str] = set()
    for credential in auth.values():
        if isinstance(credential, str):
            user, colon, password = credential.partition(":")
            found |= {credential, *credential.split(":"), *(secrets_of_pair(user, password) if colon else ())}
        elif isinstance(credential, OAuthSettings):
            found |= credential.secrets
        else:
            users = credential.get("username", ""), credential.get("client_id", "")
            parts = credential.get("password", ""), credential.get("client_secret", "")
            found |= {credential[name] for name in _SECRET if name in credential}
            for user, password in zip(users, parts, strict=True):
                found |= secrets_of_pair(user, password) if password else set()
            found |= secrets_of_url(given_token_url(credential))
    return found


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


def _pair(credential: Credential) -> Mapping[str, str]:
    if isinstance(credential, OAuthSettings):
        raise TypeError("a login is not a pair")  # schemes take none for one
    if not isinstance(credential, str):
        return credential
    user, _, password = credential.partition(":")
    return {"username": user, "password": password}


def _basic(credential: Credential) -> str:
    pair = _pair(credential)
    return base64.b64encode(f"{pair['username']}:{pair['password']}".encode()).decode()
