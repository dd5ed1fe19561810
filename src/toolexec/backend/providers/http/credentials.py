"""What goes along with the requests of an HTTP provider: its headers and query, and the credential of the call."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolexec.backend.providers.http.config import HTTPProvider, check_auth
from toolexec.backend.providers.logins import is_renewed, login_of
from toolexec.backend.providers.signing import Signers, is_sigv4
from toolexec.backend.secrets import Scrubber, SecretResolver
from toolexec.backend.secrets.callers import CallerCredentials
from toolexec.backend.secrets.credentials import secrets_of_pair
from toolexec.model.origin import Origin
from toolexec.net.auth import RequestAuth
from toolexec.net.http import HTTPResponse, OpenResponse
from toolexec.net.oauth.callers import CallerLogins
from toolexec.net.oauth.session import OAuthSession

_MAX_KEPT: Final = 256
_SECRET: Final = ("bearer", "value", "secret_access_key", "session_token")


@dataclass(frozen=True, slots=True)
class Sent:
    """What is added to the requests of a call, and what takes it out of their answers."""

    headers: Mapping[str, str]
    query: Mapping[str, str]
    hide: Scrubber
    hidden: frozenset[str]
    signing: Mapping[str, str] | None = None
    """The credential that authenticates each request by itself."""
    token: str = ""
    """The token of the login."""
    login: OAuthSession | None = None
    """The login that the token is of."""


class Credentials:
    """Gives what is sent with each call: the same for all, or where the provider has `credentials`, the caller's.

    *provider* has its references filled in, but for those of callers, which *secrets* fills in at each call. *hidden*
    are its other secrets, and *logins* are those of the provider, if it has any.
    """

    def __init__(
        self,
        provider: HTTPProvider,
        hidden: frozenset[str],
        secrets: SecretResolver | None,
        logins: CallerLogins | None = None,
    ) -> None:
        self._provider = provider
        self._hidden = hidden
        self._signers = Signers()
        self._logins = logins
        self._shared = self._sent(provider.shared)
        self._kept: dict[tuple[str, frozenset[tuple[str, str]]], Sent] = {}
        given = provider.credentials
        self._callers = CallerCredentials(provider.name, given, secrets, check_auth) if given is not None else None

    @property
    def is_shared(self) -> bool:
        """Whether all callers have the same."""
        return self._callers is None and (self._logins is None or self._logins.is_shared)

    async def of(self, origin: Origin) -> Sent:
        """Return what is sent with a call of *origin*; see `CallerCredentials.of` for what it raises, and
        `login_of` and
        `OAuthSession.needed_token` where there is a login."""
        if self._logins is not None:
            login = login_of(self._logins, origin)
            return self._kept_of({"bearer": await login.needed_token()}, login)
        if self._callers is None:
            return self._shared
        return self._kept_of(await self._callers.of(origin))

    async def is_renewed(self, sent: Sent, response: HTTPResponse | OpenResponse, *, is_last: bool) -> bool:
        """Return whether a call is to be sent once more, with another token; see `logins.is_renewed`."""
        return sent.login is not None and await is_renewed(sent.login, sent.token, response, is_last=is_last)

    def _kept_of(self, auth: Mapping[str, str], login: OAuthSession | None = None) -> Sent:
        key = (
            login.caller if login is not None else "",
            frozenset(auth.items()),
        )  # what is kept belongs to the credential: two callers never share by accident
        found = self._kept.get(key)
        if found is None or found.login is not login:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            found = self._kept[key] = self._sent(auth, login)
        return found

    def _sent(self, auth: Mapping[str, str], login: OAuthSession | None = None) -> Sent:
        headers, query = _parts(auth)
        hidden = self._hidden | secrets_of_auth(auth) | (login.secrets if login is not None else set())
        signing = auth if is_sigv4(auth) or auth.get("scheme") == "digest" else None
        headers, query = {**self._provider.headers, **headers}, {**self._provider.query, **query}
        token = auth.get("bearer", "") if login is not None else ""
        return Sent(headers, query, Scrubber(hidden), hidden, signing, token, login)

    def signer(self, sent: Sent, url: str) -> RequestAuth | None:
        """Return what authenticates the request to *url* by itself; None where nothing has to."""
        return self._signers.of(url, sent.signing) if sent.signing is not None else None


def secrets_of_auth(auth: Mapping[str, str]) -> set[str]:
    """Return what must not be shown of a credential."""
    found = {value for name, value in auth.items() if name in _SECRET}
    return found | (secrets_of_pair(auth["username"], auth["password"]) if "username" in auth else set())


def _parts(auth: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers and the query parameters that a credential stands for."""
    if "bearer" in auth:
        return {"Authorization": f"Bearer {auth['bearer']}"}, {}
    if "username" in auth and auth.get("scheme") != "digest":
        pair = f"{auth['username']}:{auth['password']}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}, {}
    if "header" in auth:
        return {auth["header"]: auth["value"]}, {}
    return ({}, {auth["query"]: auth["value"]}) if "query" in auth else ({}, {})
