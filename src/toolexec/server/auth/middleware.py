"""Nothing gets past here without saying who it is from."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from toolexec.model.origin import ANYONE, Caller
from toolexec.server.auth.credentials import CALLER, BadCredentialError, Identity, UncheckableError
from toolexec.server.auth.failures import Failures, TooManyFailuresError
from toolexec.server.auth.jwks import IssuerKeys
from toolexec.server.auth.jwt import Tokens
from toolexec.server.auth.live_keys import LiveKeys
from toolexec.server.auth.metadata import metadata_address
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.auth.sign_in import SignIn
from toolexec.server.http.replies import is_stream, peer_of, refuse

logger: logging.Logger = logging.getLogger(__name__)

_NOBODY = Identity(caller=ANYONE, expires=math.inf, client="")


class Authentication:
    """Lets requests in whose sender is known, with their `Caller` in `scope["toolexec.caller"]`.

    A key or token comes as `Authorization: Bearer …`, a key also as `X-API-Key: …`. Answers 401 for none and for a
    wrong one, 403 when a required scope is missing, 429 after too many wrong ones, 503 when tokens cannot be checked.
    A stream ends when what proved its caller expires. *on_refusal* receives the reason in one word. *endpoint* is the
    one that callers have come to; see `Caller.endpoint`.

    Raises what `Tokens` and `SignIn` raise.
    """

    def __init__(
        self,
        app: ASGIApp,
        auth: AuthSettings,
        *,
        on_refusal: Callable[[str], None],
        failures: Failures | None = None,
        tokens: Tokens | None = None,
        keys: LiveKeys | None = None,
        endpoint: str = "",
    ) -> None:
        self._app = app
        self._endpoint = endpoint
        self._auth = auth
        self._is_on = auth.on
        self._keys = keys if keys is not None else LiveKeys(auth)
        self._keys.on_removed(self._end_streams)
        self._streams: dict[str, set[anyio.CancelScope]] = {}  # by the ID of the API key
        self._failures = failures if failures is not None else Failures(auth.max_failures)
        self.sign_in: SignIn | None = None
        """Where people sign in, at the login page."""
        if auth.jwt is not None:
            of_issuer = IssuerKeys(auth.jwt)
            if tokens is None:
                tokens = Tokens(auth.jwt, auth.audience, reserved=self._keys, keys=of_issuer)
            if auth.sign_in is not None:
                for_us = Tokens(auth.jwt, auth.sign_in.client_id, reserved=self._keys, keys=of_issuer)
                self.sign_in = SignIn(auth.sign_in, auth.jwt.issuer, for_us)
        self._tokens = tokens
        self._tell = on_refusal
        address = metadata_address(auth)
        self._hint = [f'resource_metadata="{address}"'] if address else []
        if auth.required_scopes:
            self._hint.append(f'scope="{" ".join(auth.required_scopes)}"')

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in, or refuse it."""
        identity = await self._admit(scope, send)
        if identity is None:
            return
        caller = identity.caller
        scope[CALLER] = replace(caller, endpoint=self._endpoint) if self._endpoint else caller
        if identity is not _NOBODY:
            scope["user"] = identity.user()  # the SDK ties sessions to it
        if not is_stream(scope):
            await self._app(scope, receive, send)
            return
        seconds = max(identity.expires - time.time(), 0)
        with anyio.move_on_after(seconds) as limit, self._known_stream(identity, limit):
            await self._app(scope, receive, send)  # no stream outlives the proof of its caller

    @contextmanager
    def _known_stream(self, identity: Identity, limit: anyio.CancelScope) -> Generator[None, None, None]:
        """Let a stream be ended when the key of its caller is taken out."""
        if identity.caller.method != "api_key":
            yield
            return
        streams = self._streams.setdefault(identity.caller.id, set())
        streams.add(limit)
        try:
            yield
        finally:
            streams.discard(limit)
            if not streams and self._streams.get(identity.caller.id) is streams:
                del self._streams[identity.caller.id]

    def _end_streams(self, gone: frozenset[str]) -> None:
        for caller_id in gone:
            for limit in [*self._streams.get(caller_id, ())]:
                limit.cancel()

    async def _admit(self, scope: Scope, send: Send) -> Identity | None:
        """Who sent the request; None when it was answered already."""
        if not self._is_on and not len(self._keys):  # with keys once, never without
            return _NOBODY
        peer = peer_of(scope)
        try:
            scheme, credential = _credential(scope)
            if not credential:
                if self._auth.allow_anonymous:
                    return _NOBODY
                await self._refuse(send, 401, "unauthenticated", "a key or a token is needed")
                return None
            identity = await self._identify(scheme, credential)
        except BadCredentialError as error:
            if wait := self._failed(peer):
                await refuse(send, 429, "too many wrong keys or tokens; wait", [("retry-after", str(math.ceil(wait)))])
                return None
            logger.warning("refused a request from %s: %s", peer, error)
            await self._refuse(send, 401, "bad_credential", str(error), "invalid_token")
            return None
        except UncheckableError as error:
            self._tell("uncheckable")
            await refuse(send, 503, str(error), [("retry-after", "60")])
            return None
        missing = [name for name in self._auth.required_scopes if name not in identity.caller.scopes]
        if missing:
            await self._refuse(
                send, 403, "insufficient_scope", f"the scope {missing[0]} is needed", "insufficient_scope"
            )
            return None
        return identity

    async def prove(self, peer: str, credential: str) -> Caller:
        """Return whose the key or token is that *peer* has sent in a form, as the caller of this endpoint.

        Raises BadCredentialError for a wrong one, TooManyFailuresError after too many of these, and UncheckableError.
        """
        try:
            caller = (await self._identify("bearer", credential)).caller
        except BadCredentialError as error:
            logger.warning("refused a login from %s: %s", peer, error)
            if wait := self._failed(peer):
                raise TooManyFailuresError(wait) from None
            raise
        return replace(caller, endpoint=self._endpoint) if self._endpoint else caller

    def _failed(self, peer: str) -> float:
        """Count a wrong credential; return for how many seconds *peer* should send no more, 0 where it may go on."""
        wait = self._failures.failed(peer)
        if wait:
            self._tell("too_many_failures")
        return wait

    async def _identify(self, scheme: str, credential: str) -> Identity:
        if self._tokens is not None and scheme == "bearer" and credential.count(".") == 2:
            identity = await self._tokens.identify(credential)
            self._keys.tokens.note(identity.caller)
            return identity
        if self._tokens is not None and not len(self._keys):
            raise BadCredentialError("this is no token")
        return self._keys.identify(credential)

    async def _refuse(self, send: Send, status: int, reason: str, message: str, error: str = "") -> None:
        self._tell(reason)
        parts = [f'error="{error}"', f'error_description="{message}"'] if error else []
        challenge = " ".join(("Bearer", ", ".join([*parts, *self._hint]))).strip()
        await refuse(send, status, message, [("www-authenticate", challenge)], error=error or "unauthorized")


def _credential(scope: Scope) -> tuple[str, str]:
    """Return how the credential came (`bearer` or `key`), and the credential; empty when there is none.

    Raises BadCredentialError for more than one, and for one that comes in another way.
    """
    bearer = [value for name, value in scope["headers"] if name == b"authorization"]
    keys = [value for name, value in scope["headers"] if name == b"x-api-key"]
    if len(bearer) + len(keys) > 1:
        raise BadCredentialError("more than one credential was sent")
    if keys:
        return "key", keys[0].decode("latin-1").strip()
    if not bearer:
        return "", ""
    scheme, _, credential = bearer[0].decode("latin-1").strip().partition(" ")
    if scheme.lower() != "bearer" or not credential.strip():
        raise BadCredentialError("Authorization must be: Bearer, and then the key or token")
    return "bearer", credential.strip()
