"""Nothing gets past here without saying who it is from."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from toolexec.model.origin import ANYONE
from toolexec.server.auth.credentials import CALLER, ApiKeys, BadCredentialError, Identity, UncheckableError
from toolexec.server.auth.failures import Failures
from toolexec.server.auth.jwt import Tokens
from toolexec.server.auth.metadata import metadata_address
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.replies import is_stream, peer_of, refuse

__all__ = ["Authentication"]

logger: logging.Logger = logging.getLogger(__name__)

_NOBODY = Identity(caller=ANYONE, expires=math.inf, client="")


class Authentication:
    """Lets requests in whose sender is known, with their `Caller` in `scope["toolexec.caller"]`.

    A key or token comes as `Authorization: Bearer …`, a key also as `X-API-Key: …`. Answers 401 for none and for a
    wrong one, 403 when a required scope is missing, 429 after too many wrong ones, 503 when tokens cannot be checked.
    A stream ends when what proved its caller expires. *on_refusal* receives the reason in one word.

    Raises what `Tokens` raises.
    """

    def __init__(
        self,
        app: ASGIApp,
        auth: AuthSettings,
        *,
        on_refusal: Callable[[str], None],
        failures: Failures | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self._app = app
        self._auth = auth
        self._on = auth.on
        self._keys = ApiKeys(auth.api_keys)
        self._failures = failures if failures is not None else Failures(auth.max_failures)
        if tokens is None and auth.jwt is not None:
            reserved = frozenset(key.id for key in auth.api_keys)
            tokens = Tokens(auth.jwt, auth.audience, reserved=reserved)
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
        scope[CALLER] = identity.caller
        if identity is not _NOBODY:
            scope["user"] = identity.user()  # the SDK ties sessions to it
        seconds = max(identity.expires - time.time(), 0) if is_stream(scope) else math.inf
        with anyio.move_on_after(seconds):  # no stream outlives the proof of its caller
            await self._app(scope, receive, send)

    async def _admit(self, scope: Scope, send: Send) -> Identity | None:
        """Who sent the request; None when it was answered already."""
        if not self._on:
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
            wait = self._failures.failed(peer)
            if wait:
                self._tell("too_many_failures")
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

    async def _identify(self, scheme: str, credential: str) -> Identity:
        if self._tokens is not None and scheme == "bearer" and credential.count(".") == 2:
            return await self._tokens.identify(credential)
        if not self._auth.api_keys:
            raise BadCredentialError("this is no token")
        return self._keys.identify(credential)

    async def _refuse(self, send: Send, status: int, reason: str, message: str, error: str = "") -> None:
        self._tell(reason)
        parts = [f'error="{error}"', f'error_description="{message}"'] if error else []
        challenge = " ".join(("Bearer", ", ".join([*parts, *self._hint]))).strip()
        await refuse(send, status, message, [("www-authenticate", challenge)], error=error or "unauthorized")


def _credential(scope: Scope) -> tuple[str, str]:
    """How the credential came (`bearer` or `key`), and the credential; empty when there is none.

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
