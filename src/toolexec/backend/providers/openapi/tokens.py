"""Access tokens of OAuth2 for credentials of the settings: each has the session of a login of its own."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeAlias

from toolexec.errors import BackendUnavailableError, ConfigurationError, LoginError, LoginRequiredError
from toolexec.net.oauth.reach import Client, ClientReach
from toolexec.net.oauth.session import OAuthSession
from toolexec.net.oauth.settings import OAuthSettings
from toolexec.net.oauth.store import Login, MemoryStore
from toolexec.net.oauth.tokens import EITHER

_MAX_KEPT: Final = 10_000
_LOG_IN_AGAIN: Final = "the refresh token may have been used or revoked: log in again and set a new one"

TokenKey: TypeAlias = tuple[str, str, frozenset[tuple[str, str]]]
"""What a token belongs to: its scheme, where it is asked for, and the whole credential that it is asked for with."""


class Tokens:
    """Has a session for each credential, which gets its token at its first use and renews it; see `OAuthSession`.

    So callers with credentials of their own never get another's token. Nothing is stored. The sessions of the
    credentials that were not used for the longest time go when there are more than 10,000.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[TokenKey, tuple[OAuthSession, ClientReach]] = OrderedDict()

    async def get(self, key: TokenKey, client: Client) -> str:
        """Return the token of a credential; all who need it at the same time share one request, and its failure.

        Raises BackendUnavailableError when it cannot be had: whatever becomes of that request, no call was sent.
        """
        name = key[0]
        session = self._session(key, client)
        try:
            return await session.needed_token()
        except LoginRequiredError as error:
            raise _no_token(name, _LOG_IN_AGAIN, retryable=False) from error
        except BackendUnavailableError as error:
            cause = error.__cause__
            why = _reason(cause, is_refresh=session.settings.flow != "client") if isinstance(cause, LoginError) else ""
            raise _no_token(name, why or error.message, retryable=error.retryable) from error

    def refuse(self, key: TokenKey, value: str) -> None:
        """Drop a token that was refused; one that has taken its place since then stays."""
        found = self._sessions.get(key)
        if found is not None:
            found[0].drop(value)

    def _session(self, key: TokenKey, client: Client) -> OAuthSession:
        found = self._sessions.get(key)
        if found is None:
            reach = ClientReach(client, key[1])
            found = self._sessions[key] = _made(key, reach), reach
        self._sessions.move_to_end(key)
        if len(self._sessions) > _MAX_KEPT:
            self._sessions.popitem(last=False)
        session, reach = found
        reach.client = client  # that of the last reading of the document
        return session


def _made(key: TokenKey, reach: ClientReach) -> OAuthSession:
    """Return the session of a credential: of a person, where there is a refresh token, else of the client itself."""
    name, url, pairs = key
    credential = dict(pairs)
    refresh, scope = credential.get("refresh_token"), credential.get("scope", "")
    try:
        settings = OAuthSettings(
            flow="client" if refresh is None else "code",
            client_id=credential["client_id"],
            client_secret=credential.get("client_secret", ""),
            token_url=url,
            audience=credential.get("audience", ""),
            scopes=tuple(scope.split()),
        )
    except ConfigurationError as error:
        raise _no_token(name, error.message, retryable=False) from error
    store = MemoryStore()
    session = OAuthSession(f"auth.{name}", url, settings, store, plain=True, reach=reach)
    if refresh is not None:
        store.login = Login(
            server=session.server,
            issuer=url,
            token_endpoint=url,
            client_id=settings.client_id,
            method=EITHER if settings.client_secret else "none",
            refresh_token=refresh,
            asked=scope,
        )
    return session


def _reason(error: LoginError, *, is_refresh: bool) -> str:
    """Return why there is no token; empty where the server has not said so."""
    status = error.details.get("status")
    if not isinstance(status, int):
        return ""
    if status == 200:
        return "its server gave none"
    return f"its server answered {status}{f'; {_LOG_IN_AGAIN}' if is_refresh and status in (400, 401) else ''}"


def _no_token(name: str, why: str, *, retryable: bool) -> BackendUnavailableError:
    return BackendUnavailableError(f"there is no token for auth.{name}: {why}", retryable=retryable)
