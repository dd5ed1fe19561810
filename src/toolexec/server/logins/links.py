"""The logins that callers are about to make: a link for each, used once, and by the one whom it was made for."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import quote

from toolexec.backend.base import LoginBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.backend.secrets.callers import caller_key
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Caller
from toolexec.net.oauth.login import CodeLogin, begin_code_login, end_code_login
from toolexec.net.oauth.session import OAuthSession
from toolexec.run.audit.log import AuditLog
from toolexec.run.audit.record import inside

logger: logging.Logger = logging.getLogger(__name__)
LOGIN_PATH: Final = "/login/"
CALLBACK: Final = f"{LOGIN_PATH}callback/"
SIGN_IN: Final = f"{LOGIN_PATH}sign-in"
_SECONDS: Final = 600.0
"""How long a link can be opened, and how long the login may take after that."""
_MOST: Final = 10_000
_WHAT: Final = "a login at the login page"
_Key: TypeAlias = tuple[str, str, str, str]


class NoLoginError(Exception):
    """The request belongs to no login that is waited for, or is not that of its caller; the text may be shown."""


@dataclass(slots=True, eq=False)
class PendingLogin:
    """A login that a call has asked for. `id` names it to clients; `nonce` is the secret part of its link. `done` is
    set once the caller has come back from the authorization server, whatever came of that."""

    caller: Caller
    backend: str
    scopes: tuple[str, ...]
    ends: float
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    done: asyncio.Event = field(default_factory=asyncio.Event)
    listeners: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]], repr=False)

    @property
    def key(self) -> _Key:
        """Whose login to what it is."""
        return (self.caller.method, self.caller.realm, self.caller.id, self.backend)


@dataclass(frozen=True, slots=True, eq=False)
class BegunLogin:
    """A login whose caller has proved who it is in a browser, which alone knows what `browser` is the digest of."""

    pending: PendingLogin
    session: OAuthSession
    login: CodeLogin
    browser: bytes
    ends: float


class LoginLinks:
    """Sends callers to the login page at *base*, the origin of this server as they know it (empty: there is no page),
    and takes them back.

    There are at most *most* links, and as many logins under way; the oldest give way. *clock* gives seconds.
    """

    def __init__(
        self,
        backends: BackendRegistry,
        base: str,
        *,
        most: int = _MOST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base = base
        self._backends = backends
        self._most = most
        self._clock = clock
        self._links: OrderedDict[str, PendingLogin] = OrderedDict()
        self._latest: dict[_Key, PendingLogin] = {}
        self._begun: OrderedDict[str, BegunLogin] = OrderedDict()
        self.audit: AuditLog | None = None
        """Where it is written down how each login ended, and who opened a link of another caller; never a secret."""

    def ask(self, caller: Caller, backend: str, scopes: tuple[str, ...]) -> PendingLogin | None:
        """Return the login that *caller* is to make: the one that is waited for already, if there is one. None for a
        caller that is not known, and where there is no page."""
        if not (self.base and caller_key(caller)):
            return None
        now = self._clock()
        made = PendingLogin(caller, backend, scopes, now + _SECONDS)
        known = self._latest.get(made.key)
        if known is not None and known.ends > now and set(scopes) <= set(known.scopes):
            return known
        if known is not None:
            self._drop(known)
        self._links[made.nonce] = self._latest[made.key] = made
        while len(self._links) > self._most:
            self._drop(next(iter(self._links.values())))
        return made

    def link(self, pending: PendingLogin) -> str:
        """Return what the caller opens in a browser."""
        return f"{self.base}{LOGIN_PATH}{pending.nonce}"

    def find(self, nonce: str) -> PendingLogin:
        """Return the login of a link. Raises NoLoginError for one that is unknown, was used, or is too old."""
        found = self._links.get(nonce)
        if found is not None and found.ends > self._clock():
            return found
        if found is not None:
            self._drop(found)
        raise NoLoginError("This link is not valid (any more). Make the call again to get another one.")

    async def begin(self, nonce: str, caller: Caller) -> tuple[str, str, str]:
        """Begin the login of a link for *caller*, who has proved who that is; the link is used up then.

        Returns where the browser goes on to, the name of its cookie, and the cookie. Raises NoLoginError for a link of
        another caller, LoginError where the authorization server cannot be used, and what `login_of` does.
        """
        pending = self.find(nonce)
        whose = (caller.method, caller.realm, caller.id)
        if whose != pending.key[:3]:
            logger.warning("a login link of one caller was opened by another, %s", caller.id[:100])
            self.note("another_caller", pending, by=caller)
            raise NoLoginError("This link was made for another caller. Do not go on: ask who sent it to you.")
        self._drop(pending)
        backend = self._backends.get(pending.backend)
        if not isinstance(backend, LoginBackend):
            raise ConfigurationError(f"{pending.backend} takes no login")
        session = await backend.login_of(caller_key(pending.caller))
        redirect = f"{self.base}{CALLBACK}{quote(pending.backend, safe='')}"
        login = await begin_code_login(session, redirect, pending.scopes)
        cookie, state = secrets.token_urlsafe(32), login.request.state
        self._begun[state] = BegunLogin(pending, session, login, _digest(cookie), self._clock() + _SECONDS)
        while len(self._begun) > self._most:
            self._begun.popitem(last=False)
        return login.request.link, cookie_of(state), cookie

    async def end(self, backend: str, answer: Mapping[str, str], cookies: Mapping[str, str]) -> PendingLogin:
        """Take a browser back from the authorization server of *backend*, with its *answer*; return the login, which is
        kept by then.

        Raises NoLoginError for an answer to no login, and from another browser than the one whose caller was proven,
        LoginError for one that cannot be trusted, or a refusal, and what the store does.
        """
        state = answer.get("state", "")
        found = self._begun.get(state)
        if found is None or found.ends <= self._clock() or found.pending.backend != backend:
            raise NoLoginError("This is not the answer to a login that is waited for.")
        if not hmac.compare_digest(found.browser, _digest(cookies.get(cookie_of(state), ""))):
            logger.warning("the answer to the login of %s came from another browser", found.pending.caller.id[:100])
            self.note("another_browser", found.pending)
            raise NoLoginError("This login was begun in another browser. Do not go on: ask who sent you the link.")
        del self._begun[state]  # before anything is awaited: an answer counts once
        pending = found.pending
        outcome = "unknown"  # broken off: it may be kept, or not
        try:
            await end_code_login(found.session, found.login, answer)
            outcome = "ok"
            logger.info("caller %s has logged in to %s", pending.caller.id[:100], pending.backend)
        except ToolExecError as error:
            outcome = error.code
            raise
        finally:
            self.note(outcome, pending)
            pending.done.set()
            for listener in pending.listeners:
                listener()
        return pending

    def note(self, outcome: str, pending: PendingLogin, *, by: Caller | None = None, what: str = _WHAT) -> None:
        """Write down what became of a login: where that cannot be, no call is made until it can."""
        if self.audit is None:
            return
        facts = {
            "kind": "note",
            "note": what,
            "caller": _named(pending.caller),
            "backend": pending.backend,
            "outcome": outcome,
            "by": _named(by) if by is not None else None,
        }
        self.audit.write_late(inside(facts))

    def _drop(self, pending: PendingLogin) -> None:
        self._links.pop(pending.nonce, None)
        if self._latest.get(pending.key) is pending:
            del self._latest[pending.key]


def _named(caller: Caller) -> JSONDict:
    """Return who a caller is, by name."""
    named = {"id": caller.id, "method": caller.method, "realm": caller.realm, "endpoint": caller.endpoint}
    return {key: value for key, value in named.items() if value}


def without_link(path: str) -> str:
    """Return the path of a request as it may be logged: without the secret part of a link."""
    is_link = path.startswith(LOGIN_PATH) and path != SIGN_IN and not path.startswith(CALLBACK)
    return f"{LOGIN_PATH}[REDACTED]" if is_link else path


def cookie_of(state: str) -> str:
    """Return the name of the cookie that marks the browser of a login."""
    return f"toolexec_login_{hashlib.sha256(state.encode()).hexdigest()[:16]}"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
