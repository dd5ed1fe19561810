"""The login to one server: its token for each request, renewed once for all who need it, and what is missing."""

from __future__ import annotations

import asyncio
import copy
import shlex
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    LoginError,
    LoginRequiredError,
    SecretError,
    ToolExecError,
)
from toolexec.model.redaction import redactor
from toolexec.net.hosts import origin_of
from toolexec.net.oauth.caller_store import CallerStore
from toolexec.net.oauth.challenge import Challenge, read_challenge
from toolexec.net.oauth.clients import client_of
from toolexec.net.oauth.exchange import request_token
from toolexec.net.oauth.metadata import Found, canonical, discover, discover_named, named_server, same_issuer
from toolexec.net.oauth.reach import Reach
from toolexec.net.oauth.settings import OAuthSettings
from toolexec.net.oauth.store import Login, LoginStore, Store
from toolexec.net.oauth.tokens import TokenClient, TokenReply

_EARLY: Final = 30.0
_MOST_SCOPES: Final = 100
"""How many scopes a client asks for by itself: a server may name others with each refusal."""
_SPENT: Final = ("invalid_grant", "invalid_client", "unauthorized_client")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginStatus:
    """A login as it may be shown: never its tokens. `until` is when its token ends, in seconds since 1970, None where
    that is unknown; `renews` says whether it is renewed then without a person."""

    issuer: str
    scopes: tuple[str, ...]
    until: float | None
    renews: bool


class OAuthSession:
    """The login to the server *name* at *url*, as *settings* say, kept in *store*. *clock* gives seconds since 1970.
    With *lazy* the store is not asked before the server has refused a request. A *plain* server is not one of MCP: it
    has a token for each request, no resource is named to an authorization server for it that it does not name itself,
    and one that the settings name is asked whatever the server says.

    It is the login of *caller*, empty for one of all; see `CallerStore` for where theirs are kept.

    A token goes to the origin of *url* and to no other, and what renews it to the issuer that it is from, over *reach*.
    """

    def __init__(
        self,
        name: str,
        url: str,
        settings: OAuthSettings,
        store: Store | None = None,
        *,
        lazy: bool = False,
        plain: bool = False,
        caller: str = "",
        clock: Callable[[], float] = time.time,
        reach: Reach | None = None,
    ) -> None:
        self.name = name
        self.caller = caller
        self._lazy = lazy
        self._plain = plain
        self.server: str = canonical(url)
        self.settings = settings
        self.store: Store = store or (CallerStore(caller) if caller else LoginStore())
        self.reach: Reach = reach or Reach(url, allow_private=settings.allow_private)
        self.needed: LoginRequiredError | None = None
        """What a caller has to do, once the server has refused a request for want of a login."""
        self.challenge = Challenge()
        """What the server has asked for last."""
        self.clock = clock
        self._origin = origin_of(url)
        self._login: Login | None = None
        self._earlier: frozenset[str] = frozenset()
        self._loaded = False
        self._mark = 0
        self._found: Found | None = None
        self._spent = ""
        self._dropped = ""
        self._early = _EARLY
        self._asked_for = ""
        self._renewals = 0
        self._failure: ToolExecError | None = None
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def secrets(self) -> frozenset[str]:
        """What must not be shown: the tokens before the last ones, too, as answers to them may still come."""
        return self._earlier | self.settings.secrets | (self._login.secrets if self._login is not None else set())

    async def token(self, url: str) -> str:
        """Return the token for a request to *url*; empty where there is none, and for another origin.

        A token that ends soon is renewed first. Raises what `LoginStore` does.
        """
        if origin_of(url) != self._origin or (self._lazy and not self._loaded):
            return ""
        self._look_again()
        if self._login is None or self._is_over(self._login):
            if self._loaded and self._login is None and self.settings.flow != "client":
                return ""
            await self._renew(self._login.access_token if self._login is not None else "", forced=False)
        return self._login.access_token if self._login is not None else ""

    async def needed_token(self) -> str:
        """Return the token; for servers that no request goes to without one.

        Raises LoginRequiredError where there is none that can be had without a person, and BackendUnavailableError
        where it cannot be renewed now, or the store cannot be used.
        """
        self._look_again()
        login = self._login
        if login is None or self._is_over(login) or login.access_token == self._dropped:
            try:
                await self._renew(login.access_token if login is not None else "", forced=True)
            except (LoginError, SecretError, ConfigurationError) as error:
                raise BackendUnavailableError(
                    f"there is no token for {self.name}: {error.message}", backend=self.name, retryable=error.retryable
                ) from error
            login = self._login
        if login is None or login.access_token == self._dropped or self._is_over(login):
            raise self._required("it needs a login" if login is None else "its login has ended")
        return login.access_token

    def drop(self, token: str) -> None:
        """Have `needed_token` give another than *token*, which was refused; one that has taken its place stays."""
        if self._login is not None and self._login.access_token == token:
            self._dropped = token

    async def refused(self, url: str, token: str, status: int, challenges: Sequence[str]) -> bool:
        """Take note that a request to *url* with *token* (or none) was refused with *status* and the values of its
        `WWW-Authenticate`; return whether another token is there now, to try once more.

        Where it is not, `needed` says what to do. Raises nothing but cancellation.
        """
        if origin_of(url) != self._origin:
            return False
        challenge = read_challenge(challenges)
        if status == 403 and challenge.error != "insufficient_scope":
            return False
        self.challenge = challenge
        try:
            if status == 403:
                return await self._step_up(token)
            await self._renew(token, forced=True)
        except ToolExecError as error:
            self.needed = self._required(f"it cannot log in: {error.message}")
            return False
        if self._login is not None and self._login.access_token != token:
            return True
        self.needed = self._required("it needs a login" if not token else "its login has ended")
        return False

    def refused_again(self) -> None:
        """Take note that the server refuses a token that is new: a person has to log in, perhaps elsewhere."""
        self.needed = self._required("the server does not take the token of its login")

    def in_short(self) -> str:
        """Return in a few words what login is in use; empty for none."""
        login = self._login
        if login is None:
            return ""
        until = "" if login.until is None else f" until {datetime.fromtimestamp(login.until, UTC):%Y-%m-%d %H:%M} UTC"
        renewed = ", renewed by itself" if login.refresh_token or self.settings.flow == "client" else ""
        return f"logged in{until}{renewed}{f', scopes: {login.scope}' if login.scope else ''}"

    def accepted(self) -> None:
        """Take note that the server accepts what it gets."""
        self.needed = None

    async def status(self) -> LoginStatus | None:
        """Return the login that is kept; None where there is none."""
        login = await self.store.load(self.name, self.server)
        if login is None:
            return None
        renews = bool(login.refresh_token) or self.settings.flow == "client"
        return LoginStatus(issuer=login.issuer, scopes=tuple(login.scope.split()), until=login.until, renews=renews)

    async def logout(self) -> bool:
        """Forget the login, and have its issuer end the tokens, where it takes that; return
        whether there was a login."""
        async with self._alone():
            login = None
            with suppress(SecretError):  # what cannot be read any more can be forgotten
                login = await self.store.load(self.name, self.server)
            deleted = await self.store.delete(self.name, self.server)
            self._mark = self.store.mark(self.name, self.server)
            self._take(None)
            self._spent = ""
        if login is not None and login.revocation_endpoint:
            client = self._client(login)
            for kind in ("refresh_token", "access_token"):
                value = getattr(login, kind)
                if value:
                    fields, headers = client.prove({"token": value, "token_type_hint": kind}, login.issuer)
                    try:
                        await self.reach.post(login.revocation_endpoint, fields, "the end of a login", headers)
                    except LoginError:
                        break
        return deleted

    async def probe(self) -> None:
        """Have a server of MCP say what it wants of requests without a login, unless that is known."""
        if self._plain or self.challenge != Challenge():
            return
        try:
            response = await self.reach.post_json(self.server, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, self.name)
        except LoginError:
            return
        self.challenge = read_challenge([response.headers.get("www-authenticate", "")])

    async def discover(self) -> Found:
        """Return what the server leads to, asked for again; raises LoginError."""
        named, issuer = named_server(self.settings), self.settings.issuer
        if named is not None:
            for place in (named.authorization_endpoint, named.token_endpoint, named.device_endpoint):
                if place:
                    self.reach.check(place, f"the login to {self.name}")
            found = Found(server=named)
        elif self._plain and issuer:
            found = await discover_named(self.reach, issuer)
        else:
            found = await discover(self.reach, self.server, self.challenge, issuer=issuer, plain=self._plain)
        self._found = found if found.resource or self._plain else replace(found, resource=self.server)
        return self._found

    async def request(self, endpoint: str, client: TokenClient, fields: Mapping[str, str], issuer: str) -> TokenReply:
        """Return the token that *fields* are changed for; raises LoginError with the error of the server."""
        return await request_token(self.reach, endpoint, client, fields, issuer)

    async def keep(self, found: Found, client: TokenClient, reply: TokenReply, asked: str) -> Login:
        """Keep a new login, in place of the one before."""
        login = self._login_of(found, client, reply, asked)
        async with self._alone():
            await self._store(login)
        self.needed = None
        return login

    async def request_as_client(self, found: Found, scope: str) -> None:
        """Log in as the client itself, whether or not there is a login; raises LoginError."""
        async with self._alone():
            await self._store(await self._of_client(found, scope))
        self.needed = None

    def _login_of(self, found: Found, client: TokenClient, reply: TokenReply, asked: str) -> Login:
        return Login(
            server=self.server,
            issuer=found.server.issuer,
            token_endpoint=found.server.token_endpoint,
            client_id=client.client_id,
            method=client.method,
            client_secret="" if self.settings.client_secret else client.secret,
            access_token=reply.access_token,
            refresh_token=reply.refresh_token,
            until=self._until(reply),
            scope=reply.scope if reply.scope is not None else asked,
            asked=asked,
            resource=found.resource,
            revocation_endpoint=found.server.revocation_endpoint,
        )

    # -- renewing -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Hold the login alone, in this process and among all."""
        async with self._own_lock(), self.store.exclusively(self.name, self.server):
            yield

    def _own_lock(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the loop before has ended: a lock belongs to one
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock

    async def _renew(self, refused: str, *, forced: bool) -> None:
        """Have a token other than *refused*, if there is a way to without a person: one that another process has
        stored, or a new one. All who ask at the same time share one request, and its failure."""
        before = self._renewals
        async with self._own_lock():
            if self._renewals != before and self._failure is not None:
                raise copy.copy(self._failure) from self._failure.__cause__
            if self._login is not None and self._login.access_token != refused and not self._is_over(self._login):
                return
            self._mark = self.store.mark(self.name, self.server)
            stored = await self.store.load(self.name, self.server)
            self._take(stored)
            if stored is None and self.settings.flow != "client":
                return
            if stored is not None and stored.access_token != refused and not self._is_over(stored):
                return
            if not forced and stored is None and self._found is None and not self.challenge.error:
                return  # the server has not asked for a login yet, and may need none
            async with self.store.exclusively(self.name, self.server):
                self._mark = self.store.mark(self.name, self.server)
                stored = await self.store.load(self.name, self.server)
                self._take(stored)
                if stored is not None and stored.access_token != refused and not self._is_over(stored):
                    return
                self._failure = None
                try:
                    await self._renew_alone(stored)
                except ToolExecError as error:
                    self._failure = error
                    raise
                finally:
                    self._renewals += 1

    async def _renew_alone(self, stored: Login | None) -> None:
        if stored is not None and stored.refresh_token and stored.refresh_token != self._spent:
            await self._refresh(stored)
        elif self.settings.flow == "client":
            await self._as_client(self._asked_for)

    async def _refresh(self, stored: Login) -> None:
        """Renew a login at the issuer that it is from."""
        issuer = self.settings.issuer or self.settings.token_url
        if issuer and not same_issuer(issuer, stored.issuer):
            raise LoginError(f"the login is from {stored.issuer}, and auth has {issuer}: log in again")
        fields = {"grant_type": "refresh_token", "refresh_token": stored.refresh_token}
        fields |= self._fields(stored.resource, stored.asked if self._plain else "")
        try:
            reply = await self.request(stored.token_endpoint, self._client(stored), fields, stored.issuer)
        except LoginError as error:
            if error.details.get("error") not in _SPENT:
                raise
            self._spent = stored.refresh_token  # it was used or revoked: a person has to log in
            return
        await self._store(
            replace(
                stored,
                access_token=reply.access_token,
                refresh_token=reply.refresh_token or stored.refresh_token,
                until=self._until(reply),
                scope=reply.scope if reply.scope is not None else stored.scope,
            )
        )

    async def _as_client(self, more: str) -> None:
        """Log in as the client itself."""
        found = await self.discover()
        scope = wanted_scopes(self.settings, self.challenge, found, more=more, offline=False)
        await self._store(await self._of_client(found, scope))

    async def _of_client(self, found: Found, scope: str) -> Login:
        client = await client_of(self.reach, found.server, self.settings, redirects=(), scope=scope)
        fields = {"grant_type": "client_credentials", **self._fields(found.resource, scope)}
        reply = await self.request(found.server.token_endpoint, client, fields, found.server.issuer)
        return self._login_of(found, client, reply, scope)

    def _fields(self, resource: str, scope: str) -> dict[str, str]:
        """Return what a token is asked for with; what is empty is left out."""
        fields = {"resource": resource, "scope": scope, "audience": self.settings.audience}
        return {name: value for name, value in fields.items() if value}

    def _until(self, reply: TokenReply) -> float | None:
        """Return when a token ends; one that lasts less than a minute is renewed at half of its time."""
        if reply.seconds is None:
            return None
        self._early = min(_EARLY, reply.seconds / 2)
        return self.clock() + reply.seconds

    async def _step_up(self, token: str) -> bool:
        """Ask for the scopes that the server wants beside those that are there; a client itself does so once."""
        wanted = self.challenge.scopes or ()
        known = self._login
        if known is not None and known.access_token != token:
            return True
        have = known.asked.split() if known is not None else []
        more = " ".join(dict.fromkeys((*have, *wanted)))
        if self.settings.flow == "client" and len(have) < len(more.split()) <= _MOST_SCOPES:
            async with self._alone():
                if self._login is None or self._login.access_token == token:  # else another call has just done it
                    self._asked_for = more
                    await self._as_client(more)
            return self._login is not None and self._login.access_token != token
        self.needed = self._required("the call needs scopes that its login does not have", wanted)
        return False

    def _required(self, why: str, scopes: Sequence[str] = ()) -> LoginRequiredError:
        plain = [each for each in scopes if all(c.isalnum() or c in "-._:/+~" for c in each)]
        whose = [f"--caller {shlex.quote(self.caller)}"] if self.caller else []
        command = " ".join(["toolexec login", self.name, *whose, *(f"--scope {each}" for each in plain)])
        details: dict[str, object] = {"command": command, **({"scopes": list(scopes)} if scopes else {})}
        if self.caller:
            details |= {"caller": self.caller, "flow": self.settings.flow}
            why = f"caller {self.caller[:200]!r} has to log in: {why}"
        if self.settings.flow == "client":
            return LoginRequiredError(why, backend=self.name, op="execute", details=details)
        return LoginRequiredError(f"{why}: {command}", backend=self.name, op="execute", details=details)

    def _client(self, login: Login) -> TokenClient:
        """Return the client that a login belongs to."""
        secret = login.client_secret or (
            self.settings.client_secret if self.settings.client_id == login.client_id else ""
        )
        key = self.settings.private_key if self.settings.client_id == login.client_id else ""
        return TokenClient(client_id=login.client_id, method=login.method, secret=secret, private_key=key)

    async def _store(self, login: Login) -> None:
        await self.store.save(self.name, login)
        self._mark = self.store.mark(self.name, self.server)
        self._take(login)

    def _look_again(self) -> None:
        """Have the store asked for the login where it has another one now, or none: a person logs in and out in any
        process, and from then on no call is made with the token before."""
        if self._loaded and self.store.mark(self.name, self.server) != self._mark:
            self._take(None)
            self._loaded = False

    def _take(self, login: Login | None) -> None:
        if self._login is not None and self._login != login:
            self._earlier = frozenset(self._login.secrets)
        self._login, self._loaded = login, True
        if login is not None and self.store.lasts:
            redactor.add_renewed((self.name, id(self)), *login.secrets)

    def forget(self) -> None:
        """Have its tokens no longer looked for in strings; for a session that is not used any more."""
        redactor.forget_renewed((self.name, id(self)))

    def _is_over(self, login: Login) -> bool:
        return not login.access_token or (login.until is not None and login.until - self._early < self.clock())


def wanted_scopes(
    settings: OAuthSettings, challenge: Challenge, found: Found, *, more: str = "", offline: bool = True
) -> str:
    """Return the scopes to ask for: those of the settings, else those that the server has asked for, else those that it
    knows; with *more*, and *offline* with the one that makes logins last, where the authorization server has it."""
    if settings.scopes:
        chosen = tuple(settings.scopes)
    elif challenge.scopes is not None:
        chosen = challenge.scopes
    else:
        chosen = found.scopes or ()
    words = [*chosen, *more.split()]
    if offline and words and "offline_access" in (found.server.scopes or ()):
        words.append("offline_access")
    return " ".join(dict.fromkeys(words))
