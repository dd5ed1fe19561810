"""Logins of providers: how their settings have one, and what becomes of a request that its token was refused for."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, runtime_checkable

from toolexec.backend.secrets.callers import known_caller
from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Origin
from toolexec.net.http import HTTPResponse, OpenResponse
from toolexec.net.oauth.callers import CallerLogins
from toolexec.net.oauth.challenge import read_challenge
from toolexec.net.oauth.metadata import canonical
from toolexec.net.oauth.reach import Reach
from toolexec.net.oauth.session import OAuthSession
from toolexec.net.oauth.settings import OAuthSettings, read_oauth

_PROOFS: Final = ("client_id", "client_secret", "private_key")


@runtime_checkable
class LoginSource(Protocol):
    """A source of tools that a person may have to log in to."""

    async def find_logins(self) -> CallerLogins | None:
        """Return the logins that its calls are made with; None where its settings have none. Raises as `load` does."""
        ...


def read_login(where: str, auth: object) -> OAuthSettings | None:
    """Return the login that a credential of the settings stands for: `"oauth"`, or a mapping of kind `oauth`; None for
    any other. Raises ConfigurationError, which begins with *where*, for settings that cannot work."""
    if isinstance(auth, OAuthSettings):
        return auth
    if auth != "oauth" and not (isinstance(auth, Mapping) and "kind" in auth):
        return None
    try:
        return read_oauth(auth)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error.message.removeprefix('auth: ')}") from error


def login_strings(label: str, login: OAuthSettings) -> dict[str, str]:
    """Return the strings that may hold references to secrets, by label."""
    return {f"{label}.{name}": getattr(login, name) for name in _PROOFS}


def with_login_strings(label: str, login: OAuthSettings, found: Mapping[str, str]) -> OAuthSettings:
    """Return a login with the strings of `login_strings` filled in."""
    return replace(login, **{name: found[f"{label}.{name}"] for name in _PROOFS})


def made_logins(
    known: CallerLogins | None, name: str, url: str, settings: OAuthSettings, client: Mapping[str, Any]
) -> CallerLogins:
    """Return the logins of provider *name* at *url*: the *known* ones, where these have the same settings.

    *client* has settings of the `HTTPClient` that its requests go through, such as a proxy.
    """
    reach = Reach(url, allow_private=settings.allow_private, client=client)

    def make(caller: str) -> OAuthSession:
        return OAuthSession(name, url, settings, plain=True, caller=caller, reach=reach)

    if known is None or (known.of_all.server, known.of_all.settings) != (canonical(url), settings):
        return CallerLogins(make)
    known.use(reach)
    return known


def login_of(logins: CallerLogins, origin: Origin) -> OAuthSession:
    """Return the login that calls of *origin* are made with: the one of all or, with `per = "caller"`, its caller's.

    Raises PolicyError for a caller that is not known, where each has a login of its own.
    """
    session = logins.of_all
    return session if logins.is_shared else logins.of(known_caller(f"provider {session.name}", origin.caller))


def login_words(logins: CallerLogins | None) -> JSONDict:
    """Return what a status says of the logins; empty where there is none to speak of."""
    if logins is None or not (logins.is_shared or len(logins)):
        return {}
    words = logins.of_all.in_short() if logins.is_shared else f"one per caller, {len(logins)} in use"
    return {"login": words} if words else {}


async def is_renewed(login: OAuthSession, token: str, response: HTTPResponse | OpenResponse, *, is_last: bool) -> bool:
    """Return whether the request that was sent with *token* and got *response* is to be made once more, because there
    is another token now; it never is if it *is_last*.

    Raises LoginRequiredError where the token was refused, and a person has to log in.
    """
    status, challenges = response.status, [response.headers.get("www-authenticate", "")]
    if status != 401 and not (status == 403 and read_challenge(challenges).error == "insufficient_scope"):
        if response.status < 300:
            login.accepted()
        return False
    if status == 401 and is_last:
        login.refused_again()
    elif await login.refused(login.server, token, status, challenges) and not is_last:
        return True
    if login.needed is not None:
        raise copy.copy(login.needed)
    return False
