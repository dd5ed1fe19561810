"""People who say who they are at an identity provider (OpenID Connect)."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast
from urllib.parse import urlsplit

from toolexec.errors import LoginError
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import Caller
from toolexec.net.oauth.clients import client_of
from toolexec.net.oauth.code_flow import CodeRequest
from toolexec.net.oauth.exchange import request_token
from toolexec.net.oauth.metadata import AuthorizationServer, discover_named
from toolexec.net.oauth.reach import Reach
from toolexec.net.oauth.settings import OAuthSettings
from toolexec.server.auth.credentials import BadCredentialError
from toolexec.server.auth.jwt import Tokens
from toolexec.server.auth.sign_in_settings import SignInSettings

_HOUR: Final = 3600.0


class NotAllowedError(Exception):
    """The account is known, and may not sign in here; the text may be shown."""


class SignIn:
    """Has people sign in at *issuer*; *tokens* checks its ID tokens, which are for the client of *settings*.

    What the issuer says of itself is read again every hour. Raises SecretError where a reference to the client's
    secret cannot be looked up.
    """

    def __init__(
        self, settings: SignInSettings, issuer: str, tokens: Tokens, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from toolexec.backend.secrets import SecretResolver

        self.issuer = issuer
        self.host: str = urlsplit(issuer).netloc
        self._settings = settings
        self._tokens = tokens
        self._reach = Reach(issuer)
        self._clock = clock
        self._server: AuthorizationServer | None = None
        self._read_at = 0.0
        secret = settings.client_secret
        if secret.startswith("secretref:"):
            secret = SecretResolver().resolve(secret, "auth.sign_in.client_secret")
        self._client = OAuthSettings(client_id=settings.client_id, client_secret=secret, issuer=issuer)

    async def begin(self, redirect: str) -> CodeRequest:
        """Return what to ask the identity provider for a person who comes back to *redirect*. Raises LoginError where
        it cannot be used."""
        scope = " ".join(self._settings.scopes)
        now = self._clock()
        known = self._server if now - self._read_at < _HOUR else None
        server = known if known is not None else await self._described()
        request = CodeRequest(server=server, client_id=self._settings.client_id, redirect=redirect, scope=scope)
        if known is None:  # what cannot be used is not kept
            self._server, self._read_at = server, now
        return request

    async def end(self, request: CodeRequest, answer: Mapping[str, str]) -> Caller:
        """Return who came back with *answer* to *request*.

        Raises LoginError for an answer with another state or issuer, a refusal, a token endpoint that gives no ID token
        or leads elsewhere, and an ID token that is forged, expired, of another issuer, or for another client or nonce;
        NotAllowedError for an account that is not to sign in here, and UncheckableError where the issuer's keys cannot
        be read now.
        """
        code, server = request.code(answer), request.server
        client = await client_of(self._reach, server, self._client, redirects=[request.redirect], scope=request.scope)
        fields = request.fields(code)
        reply = await request_token(self._reach, server.token_endpoint, client, fields, self.issuer)
        if not reply.id_token:
            raise LoginError(f"{self.issuer} gave no ID token: it does not say who signed in")
        try:
            caller = (await self._tokens.identify(reply.id_token)).caller
        except BadCredentialError as error:
            raise LoginError(f"the ID token of {self.issuer} is refused: {error}") from None
        claims = caller.claims
        self._check(request, claims)
        self._allow(caller, claims)
        return caller

    def _check(self, request: CodeRequest, claims: JSONObject) -> None:
        """Raise LoginError unless an ID token answers this request, which its signature alone does not say."""
        nonce = str(claims.get("nonce", "")).encode(errors="surrogatepass")
        if not hmac.compare_digest(nonce, request.nonce.encode()):
            raise LoginError(f"the ID token of {self.issuer} is not for this sign-in: another nonce")
        audience, client = claims.get("aud"), claims.get("azp")
        is_shared = isinstance(audience, list) and len(cast("list[object]", audience)) > 1
        if client != self._settings.client_id if (client is not None or is_shared) else False:
            raise LoginError(f"the ID token of {self.issuer} is not for this sign-in: another client")
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise LoginError(f"the ID token of {self.issuer} does not say who signed in")

    def _allow(self, caller: Caller, claims: JSONObject) -> None:
        settings = self._settings
        mail = claims.get("email")
        domain = mail.rpartition("@")[2].lower() if isinstance(mail, str) else ""
        if settings.domains and not (domain in settings.domains and claims.get("email_verified") is True):
            raise NotAllowedError("This account has no verified mail address of a domain that may sign in here.")
        if settings.groups and not set(settings.groups) & set(caller.roles):
            raise NotAllowedError("This account is in none of the groups that may sign in here.")

    async def _described(self) -> AuthorizationServer:
        server = (await discover_named(self._reach, self.issuer)).server
        if server.challenge_methods is not None:
            return server
        # Large ones take PKCE and do not say so. Where one ignores it, the nonce still ties the answer to us.
        return replace(server, challenge_methods=("S256",))
