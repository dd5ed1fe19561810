"""Who a client is at an authorization server: registered before, described by a document, or registered now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from toolexec.errors import LoginError
from toolexec.model.json_value import JSONDict
from toolexec.net.oauth.metadata import AuthorizationServer
from toolexec.net.oauth.reach import Reach, is_loopback, json_object
from toolexec.net.oauth.settings import OAuthSettings
from toolexec.net.oauth.tokens import EITHER, TokenClient, refusal_of

_BY_DEFAULT: Final = ("client_secret_basic",)
"""How clients prove who they are where metadata do not say (RFC 8414)."""
_DYNAMIC: Final = ("none", "client_secret_basic", "client_secret_post")
_DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"


def is_registered(settings: OAuthSettings, server: AuthorizationServer) -> bool:
    """Return whether the client has an ID already, and with it the places that browsers may come back to."""
    return bool(settings.client_id) or bool(settings.client_metadata_url and server.takes_documents)


async def client_of(
    reach: Reach, server: AuthorizationServer, settings: OAuthSettings, *, redirects: Sequence[str], scope: str
) -> TokenClient:
    """Return the client of *settings* at *server*; one without an ID is registered, with *redirects* and *scope*.

    Raises LoginError where it cannot be.
    """
    if settings.client_id:
        return _known(server, settings)
    if settings.client_metadata_url and server.takes_documents:
        return TokenClient(client_id=settings.client_metadata_url)
    if not server.registration_endpoint:
        raise LoginError(f"{server.issuer} registers no clients by itself: set client_id in auth, as it gave it to you")
    return await _register(reach, server, redirects, scope)


def _known(server: AuthorizationServer, settings: OAuthSettings) -> TokenClient:
    methods = server.auth_methods or _BY_DEFAULT
    if settings.private_key:
        return TokenClient(client_id=settings.client_id, method="private_key_jwt", private_key=settings.private_key)
    if not settings.client_secret:
        return TokenClient(client_id=settings.client_id)
    if EITHER in methods:
        return TokenClient(client_id=settings.client_id, method=EITHER, secret=settings.client_secret)
    in_body = "client_secret_basic" not in methods and "client_secret_post" in methods
    method = "client_secret_post" if in_body else "client_secret_basic"
    return TokenClient(client_id=settings.client_id, method=method, secret=settings.client_secret)


def _is_near(redirect: str) -> bool:
    """Return whether a browser comes back to its own machine."""
    return is_loopback(urlsplit(redirect).hostname or "")


async def _register(reach: Reach, server: AuthorizationServer, redirects: Sequence[str], scope: str) -> TokenClient:
    """Register a client (RFC 7591). What the server makes of it counts, if it can be used."""
    methods = server.auth_methods or _BY_DEFAULT
    method = next((each for each in _DYNAMIC if each in methods), "none")
    grants = ["authorization_code", "refresh_token"] if redirects else [_DEVICE, "refresh_token"]
    asked: JSONDict = {
        "client_name": "toolexec",
        "redirect_uris": list(redirects),
        "grant_types": grants,
        "response_types": ["code"] if redirects else [],
        "token_endpoint_auth_method": method,
        "application_type": "native" if all(map(_is_near, redirects)) else "web",
    }
    if scope:
        asked["scope"] = scope
    response = await reach.post_json(server.registration_endpoint, asked, f"the registration at {server.issuer}")
    data = json_object(response) if response.status in (200, 201) else None
    identity = data.get("client_id") if data is not None else None
    if data is None or not isinstance(identity, str) or not identity:
        why = refusal_of(response.body)
        raise LoginError(
            f"{server.issuer} registered no client: HTTP {response.status}{f', {why}' if why else ''}; set client_id "
            "in auth if it gives one in another way"
        )
    secret, given = data.get("client_secret"), data.get("token_endpoint_auth_method")
    secret = secret if isinstance(secret, str) else ""
    given = given if isinstance(given, str) and given else method
    if given not in _DYNAMIC or (given != "none" and not secret):
        raise LoginError(f"{server.issuer} registered the client for {given[:60]!r}, which it cannot use")
    return TokenClient(client_id=identity, method=given, secret=secret if given != "none" else "")
