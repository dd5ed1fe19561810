"""What a server and its authorization server say of themselves (RFC 9728, RFC 8414, OpenID Connect Discovery)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlsplit

from toolexec.errors import LoginError
from toolexec.model.json_value import JSONDict
from toolexec.net.hosts import origin_of
from toolexec.net.oauth.challenge import Challenge
from toolexec.net.oauth.reach import Reach, json_object
from toolexec.net.oauth.settings import OAuthSettings
from toolexec.net.oauth.tokens import EITHER

_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_SERVER: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"
_TOO_BUSY: Final = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationServer:
    """Where an authorization server is asked for what, and what it supports; a list is None where it does not say.

    An endpoint is empty where there is none.
    """

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    device_endpoint: str = ""
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    scopes: tuple[str, ...] | None = None
    auth_methods: tuple[str, ...] | None = None
    challenge_methods: tuple[str, ...] | None = None
    takes_documents: bool = False
    sends_issuer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a server leads to: its authorization server, the `resource` that tokens are to be for (empty where it does
    not describe itself), and the scopes that it knows (None where it does not say)."""

    server: AuthorizationServer
    resource: str = ""
    scopes: tuple[str, ...] | None = None


def named_server(settings: OAuthSettings) -> AuthorizationServer | None:
    """Return the authorization server whose places are in the settings; None where it describes itself."""
    if not settings.token_url:
        return None
    return AuthorizationServer(
        issuer=settings.issuer or settings.token_url,
        authorization_endpoint=settings.authorization_url,
        token_endpoint=settings.token_url,
        device_endpoint=settings.device_url,
        auth_methods=(EITHER, "private_key_jwt"),
        challenge_methods=("S256",),
    )


def canonical(url: str) -> str:
    """Return the URL of a server as the resource of its tokens: without fragment, its host in lower case."""
    parts = urlsplit(url)
    return parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower(), fragment="").geturl()


def same_issuer(one: str, other: str) -> bool:
    """Return whether two issuers are the same text; a slash at the end of one without a path does not count."""
    short, long = sorted((one, other), key=len)
    return short == long or (long == f"{short}/" and not urlsplit(short).path)


async def discover_named(reach: Reach, issuer: str) -> Found:
    """Return what the authorization server *issuer* says of itself, whatever the server says that tokens are for.

    Raises LoginError as `discover` does.
    """
    server = await _server(reach, issuer, legacy=False)
    if server is None:
        raise LoginError(
            f"the authorization server {issuer[:200]} has no metadata that can be used: set token_url in auth, and "
            "authorization_url for people"
        )
    return Found(server=server)


async def discover(reach: Reach, url: str, challenge: Challenge, *, issuer: str = "", plain: bool = False) -> Found:
    """Return what leads from the server at *url* to its tokens; with an *issuer* no other is accepted.

    A server that describes neither itself nor an authorization server is its own, at `/authorize`, `/token` and
    `/register`, as the first version of MCP's rules had it; not a *plain* one, which has other rules. Raises LoginError
    for descriptions of another resource or issuer, for places that must not be reached, for a plain server that does
    not say where to log in, and for servers that cannot answer.
    """
    described = await _resource(reach, url, challenge)
    origin = origin_of(url)
    if described is None and plain:
        raise LoginError(f"{origin} does not say where to log in: set issuer in its auth, or token_url")
    if described is None:
        expected, resource, scopes = origin, "", None
    else:
        named = _strings(described.get("authorization_servers")) or ()
        if not named:
            raise LoginError(f"{origin} names no authorization server in its metadata")
        expected = next((each for each in named if issuer and same_issuer(each, issuer)), named[0])
        resource, scopes = str(described["resource"]), _strings(described.get("scopes_supported"))
    if issuer and not same_issuer(expected, issuer):
        raise LoginError(f"{origin} leads to the authorization server {expected[:200]}, and auth has {issuer}")
    server = await _server(reach, expected, legacy=described is None)
    if server is None:
        if described is not None:
            raise LoginError(f"the authorization server {expected[:200]} has no metadata that can be used")
        server = AuthorizationServer(
            issuer=origin,
            authorization_endpoint=f"{origin}/authorize",
            token_endpoint=f"{origin}/token",
            registration_endpoint=f"{origin}/register",
            challenge_methods=("S256",),
        )
    return Found(server=server, resource=resource, scopes=scopes)


async def _resource(reach: Reach, url: str, challenge: Challenge) -> JSONDict | None:
    """Return what the server says of itself; None where it says nothing."""
    origin, path = origin_of(url), urlsplit(url).path.rstrip("/")
    places = [challenge.resource_metadata, f"{origin}{_RESOURCE}{path}", f"{origin}{_RESOURCE}"]
    busy = 0
    for place in dict.fromkeys(filter(None, places)):
        response = await reach.get(place, f"the metadata of {origin}")
        if response.status >= 500 or response.status == _TOO_BUSY:
            busy = response.status
        data = json_object(response) if response.status == 200 else None
        if data is None:
            continue
        resource = data.get("resource")
        if not isinstance(resource, str) or not _covers(resource, url):
            raise LoginError(f"the metadata of {origin} is that of another resource, {str(resource)[:200]!r}")
        return data
    if busy:  # which says nothing about whether there is any
        raise LoginError(f"the metadata of {origin} cannot be read: HTTP {busy}", retryable=True)
    return None


def _covers(resource: str, url: str) -> bool:
    """Return whether a token for *resource* is one for *url*: the same origin, and a path at or above it."""
    if not origin_of(resource) or origin_of(resource) != origin_of(url):
        return False
    above, path = urlsplit(resource).path.rstrip("/"), urlsplit(url).path.rstrip("/")
    return f"{path}/".startswith(f"{above}/")


async def _server(reach: Reach, issuer: str, *, legacy: bool) -> AuthorizationServer | None:
    """Return what the authorization server says of itself; None where it says nothing."""
    for place in _server_places(issuer, legacy=legacy):
        response = await reach.get(place, f"the metadata of the authorization server {issuer[:200]}")
        if response.status >= 500 or response.status == _TOO_BUSY:
            raise LoginError(
                f"the metadata of the authorization server {issuer[:200]} cannot be read: HTTP {response.status}",
                retryable=True,
            )
        data = json_object(response) if response.status == 200 else None
        if data is not None:
            return _read_server(reach, data, issuer)
    return None


def _server_places(issuer: str, *, legacy: bool) -> Sequence[str]:
    origin, path = origin_of(issuer), urlsplit(issuer).path.rstrip("/")
    if not origin:
        raise LoginError(f"the authorization server {issuer[:200]!r} is not an http(s) URL")
    if legacy:
        return [f"{origin}{_SERVER}"]
    if not path:
        return [f"{origin}{_SERVER}", f"{origin}{_OPENID}"]
    return [f"{origin}{_SERVER}{path}", f"{origin}{_OPENID}{path}", f"{origin}{path}{_OPENID}"]


def _read_server(reach: Reach, data: JSONDict, issuer: str) -> AuthorizationServer:
    """Return the metadata, of this issuer and no other, and with places that may be reached."""
    named = data.get("issuer")
    if not isinstance(named, str) or not same_issuer(named, issuer):
        raise LoginError(f"the metadata of the authorization server {issuer[:200]} is that of {str(named)[:200]!r}")
    endpoints: dict[str, str] = {}
    for name in ("authorization", "token", "registration", "revocation", "device_authorization"):
        place = data.get(f"{name}_endpoint")
        if isinstance(place, str) and place:
            reach.check(place, f"the {name}_endpoint of {issuer[:200]}")
            endpoints[name] = place
    return AuthorizationServer(
        issuer=named,
        authorization_endpoint=endpoints.get("authorization", ""),
        token_endpoint=endpoints.get("token", ""),
        device_endpoint=endpoints.get("device_authorization", ""),
        registration_endpoint=endpoints.get("registration", ""),
        revocation_endpoint=endpoints.get("revocation", ""),
        scopes=_strings(data.get("scopes_supported")),
        auth_methods=_strings(data.get("token_endpoint_auth_methods_supported")),
        challenge_methods=_strings(data.get("code_challenge_methods_supported")),
        takes_documents=data.get("client_id_metadata_document_supported") is True,
        sends_issuer=data.get("authorization_response_iss_parameter_supported") is True,
    )


def _strings(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(each for each in cast("list[object]", value) if isinstance(each, str))
