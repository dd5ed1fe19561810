"""The security schemes of a document, and which of them each operation is called with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, cast

from toolexec.backend.providers.openapi.document import (
    Document,
    InvalidPartError,
    items_of,
    mapping_of,
    string_of,
)
from toolexec.backend.providers.signing import SIGV4_NEEDED, SIGV4_OPTIONAL, is_sigv4
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.net.hosts import origin_of
from toolexec.net.oauth.settings import Flow, OAuthSettings

Credential: TypeAlias = str | Mapping[str, str] | OAuthSettings
"""What `auth` has for a scheme: a key or token, or a mapping with `username` and `password`, or with `client_id`,
`client_secret` or a `refresh_token` or both, and also `scope`, `audience` and `token_url`, or the keys of AWS; or how
to log in."""

_PARTS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "basic": (frozenset(("username", "password")), frozenset()),
    "digest": (frozenset(("username", "password")), frozenset()),
    "sigv4": (SIGV4_NEEDED, SIGV4_OPTIONAL),
    "oauth2": (
        frozenset(("client_id",)),
        frozenset(("client_secret", "refresh_token", "scope", "token_url", "audience")),
    ),
}
"""The members of a credential that is a mapping: those that it needs, and those that it may have."""


_OPENID: Final = "/.well-known/openid-configuration"
_LOGINS: Final[Mapping[Flow, tuple[str, Mapping[str, str]]]] = {
    "code": ("authorizationCode", {"authorization_url": "authorizationUrl", "token_url": "tokenUrl"}),
    "device": ("deviceAuthorization", {"device_url": "deviceAuthorizationUrl", "token_url": "tokenUrl"}),
    "client": ("clientCredentials", {"token_url": "tokenUrl"}),
}
"""The flow of a document for each flow of a login, and the settings that its places are."""
ANY_CALLER: Final[Mapping[str, Mapping[str, Credential]]] = MappingProxyType({})
"""Stands for callers whose credentials only a call shows."""
_UNKNOWN: Final[tuple[Mapping[str, str], ...]] = ({}, {"refresh_token": ""})


def given_token_url(credential: Credential) -> str:
    """Return where a credential, and not the document, says that tokens are asked for; empty where it does not."""
    return credential.get("token_url", "") if isinstance(credential, Mapping) else ""


class Schemes:
    """The security schemes of *document* that there are credentials for: those in *auth*, or with *callers* those that
    any caller has, for all schemes where only a call shows what its caller has (`ANY_CALLER`). *headers* are sent with
    all requests anyway; with a *certificate* nothing more is needed for mutual TLS.

    Raises ConfigurationError for a scheme that the document does not have, and for a credential of the wrong form.
    """

    def __init__(
        self,
        document: Document,
        auth: Mapping[str, Credential],
        headers: Iterable[str] = (),
        callers: Mapping[str, Mapping[str, Credential]] | None = None,
        *,
        certificate: bool = False,
    ) -> None:
        self._headers = [("header", name.lower()) for name in headers]
        self.known: dict[str, JSONDict] = {}
        components = mapping_of(document.root.get("components"))
        for name, node in mapping_of(components.get("securitySchemes")).items():
            try:
                self.known[name] = document.follow(node)
            except InvalidPartError:
                continue
        self.auth: dict[str, Credential] = dict(auth)
        is_shown = certificate and {name for name, each in self.known.items() if each.get("type") == "mutualTLS"}
        self._shown: frozenset[str] = frozenset(is_shown or ())
        self._default = document.root.get("security")
        self.check("auth", auth)
        for caller, credentials in (callers or {}).items():
            self.check(f"credentials.{caller}", credentials)
        sets = [auth] if callers is None else [*callers.values()]
        self._sets = [dict.fromkeys(self.known, each) for each in _UNKNOWN] if callers is ANY_CALLER else sets
        self._is_open = callers is ANY_CALLER
        self.names: frozenset[str] = frozenset(name for each in self._sets for name in each)

    def check(self, where: str, auth: object) -> None:
        """Raise ConfigurationError, which begins with *where*, unless *auth* has credentials for known schemes."""
        if not isinstance(auth, Mapping):
            raise ConfigurationError(f"{where} must be a mapping of security schemes to credentials")
        for name, credential in cast("Mapping[str, Credential]", auth).items():
            if name not in self.known:
                hint = did_you_mean(name, self.known) if self.known else "it has none: use headers"
                raise ConfigurationError(f"{where}: the document has no security scheme {name!r}; {hint}")
            if isinstance(credential, OAuthSettings) and where != "auth":
                raise ConfigurationError(f"{where}.{name}: a login is for all callers; set it in auth")
            _check(f"{where}.{name}", self.known[name], credential)

    def of(self, operation: JSONDict) -> tuple[tuple[str, ...], ...]:
        """Return the alternatives of an operation, each with the names of the schemes that are needed together.

        Where neither the operation nor the document says what is needed, all that there are credentials for are sent.
        """
        given = operation.get("security", self._default)
        if not isinstance(given, list):
            if self._is_open:
                return tuple((name,) for name in self.known)
            sets = dict.fromkeys(tuple(each) for each in self._sets if each)
            return tuple(sorted(sets, key=len, reverse=True))
        needed = (tuple(mapping_of(each)) for each in items_of(given))
        return tuple(tuple(name for name in each if name not in self._shown) for each in needed)

    def withheld(self) -> list[tuple[str, str]]:
        """Return the places and lower-case names of parameters that are filled in by the settings."""
        keys = [self.known[name] for name in sorted(self.names) if self.known[name].get("type") == "apiKey"]
        return [*self._headers, *((str(key.get("in")), str(key.get("name")).lower()) for key in keys)]

    def token_urls(self, security: tuple[tuple[str, ...], ...]) -> list[str]:
        """Return where the tokens for an operation may be asked for."""
        names = dict.fromkeys(name for each in security for name in each)
        return [*dict.fromkeys(url for name in names for each, url, _ in self.token_places() if each == name)]

    def token_places(self) -> list[tuple[str, str, bool]]:
        """Return for each credential of OAuth2 its scheme, where tokens are asked for with it, and whether the settings
        say so, and not the document."""
        pairs = [(name, credential) for each in self._sets for name, credential in each.items()]
        found = [(name, self.token_url(name, each), bool(given_token_url(each))) for name, each in pairs]
        return [each for each in dict.fromkeys(found) if each[1]]

    def token_url(self, name: str, credential: Credential) -> str:
        """Return where the tokens of an OAuth2 scheme are asked for with a credential; empty for no such place."""
        given = given_token_url(credential)
        return (given or _token_url(self.known[name], credential)) if isinstance(credential, Mapping) else ""

    def login_places(self, name: str, flow: Flow) -> dict[str, str]:
        """Return where the document says that people log in and tokens are asked for, as settings of a login with a
        *flow*: `token_url` and its like, or `issuer`; empty where it does not say, or not with a whole URL."""
        scheme = self.known[name]
        if scheme.get("type") == "openIdConnect":
            issuer, found, _ = string_of(scheme.get("openIdConnectUrl"), 2000).partition(_OPENID)
            return {"issuer": issuer} if found and origin_of(issuer) else {}
        kind, places = _LOGINS[flow]
        described = mapping_of(mapping_of(scheme.get("flows")).get(kind))
        found_places = {setting: string_of(described.get(key), 2000) for setting, key in places.items()}
        return found_places if all(map(origin_of, found_places.values())) else {}

    def unusable(self, security: tuple[tuple[str, ...], ...]) -> dict[str, str]:
        """Return what is missing for an operation that there are no credentials for: for each scheme how to give one.

        Empty where there are some, where it needs none, and where headers are sent, which may have them.
        """
        if not all(security) or self._headers or any(self.names.issuperset(each) for each in security):
            return {}
        names = dict.fromkeys(name for each in security for name in each if name not in self.names)
        return {name: _how_to_give(f"auth.{name}", self.known[name]) for name in names if name in self.known}


def _check(where: str, scheme: JSONObject, credential: Credential) -> None:
    """Raise ConfigurationError for a credential that does not fit its scheme, or a scheme that cannot be used."""
    kind = scheme.get("type")
    if isinstance(credential, Mapping) and is_sigv4(credential):
        kind = "sigv4"
    elif kind == "http" and str(scheme.get("scheme", "")).lower() in ("basic", "digest"):
        kind = str(scheme["scheme"]).lower()
    elif kind == "openIdConnect" and isinstance(credential, Mapping):
        kind = "oauth2"
    elif kind in ("http", "openIdConnect"):
        kind = "bearer"
    elif kind == "mutualTLS":
        raise ConfigurationError(f"{where}: the certificate for it is not a credential of auth; set cert_file")
    elif kind not in ("apiKey", "oauth2"):
        raise ConfigurationError(f"{where}: the kind {str(kind)[:60]!r} of scheme is not supported; use headers")
    if kind == "apiKey" and (scheme.get("in") not in ("header", "query", "cookie") or not scheme.get("name")):
        raise ConfigurationError(f"{where}: the document does not say where its key goes; use headers")
    if isinstance(credential, OAuthSettings):
        if kind not in ("oauth2", "openIdConnect", "bearer"):
            raise ConfigurationError(f"{where}: a login gives a bearer token, which this scheme does not take")
        return
    if not isinstance(credential, str | Mapping):
        raise ConfigurationError(f"{where} must be a string or a mapping")
    if isinstance(credential, str):
        if (
            kind in ("basic", "digest")
            and ":" not in credential
            and "$" not in credential
            and "secretref:" not in credential
        ):
            raise ConfigurationError(f"{where}: give a mapping with username and password, or username:password")
        return
    needed, optional = _PARTS.get(kind, (frozenset[str](), frozenset[str]()))
    if not needed:
        raise ConfigurationError(f"{where} must be a string, the {'key' if kind == 'apiKey' else 'token'}")
    missing = sorted(needed - credential.keys())
    unknown = sorted(credential.keys() - needed - optional)
    if wrong := sorted(name for name, value in credential.items() if not isinstance(value, str)):
        raise ConfigurationError(f"{where}: {wrong[0]} must be a string")
    if missing or unknown:
        problem = f"has no {missing[0]}" if missing else f"has no setting {unknown[0]!r}"
        hint = "" if missing else f"; {did_you_mean(unknown[0], sorted(needed | optional))}"
        raise ConfigurationError(f"{where} {problem}{hint}")
    if kind == "oauth2":
        _check_grant(where, scheme, credential)


def _check_grant(where: str, scheme: JSONObject, credential: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a credential that no token can be got with."""
    if not credential.keys() & {"client_secret", "refresh_token"}:
        raise ConfigurationError(
            f"{where} has neither a client_secret nor a refresh_token; {_how_to_give(where, scheme)}"
        )
    if credential.get("token_url") or _token_url(scheme, credential):
        return
    flows = ", ".join(mapping_of(scheme.get("flows"))) or "none"
    if "refresh_token" in credential:
        raise ConfigurationError(f"{where}: the document does not say where it is refreshed; set its token_url")
    raise ConfigurationError(
        f"{where}: with a client_secret alone no token can be had, as the document has no flow clientCredentials, "
        f"but {flows}; {_how_to_give(where, scheme)}; or set its token_url, if that gives tokens to clients themselves"
    )


def _how_to_give(where: str, scheme: JSONObject) -> str:
    """Return what to set for a scheme."""
    kind, flows = scheme.get("type"), mapping_of(scheme.get("flows"))
    if kind == "oauth2" and "clientCredentials" in flows:
        return f"set {where} to {{ client_id, client_secret }}, or to an access token"
    if kind in ("oauth2", "openIdConnect"):
        place = string_of(mapping_of(flows.get("authorizationCode")).get("authorizationUrl"), 300)
        return (
            f"a person has to log in{f' at {place}' if place else ''}, with a program of yours: set {where} to "
            "{ client_id, refresh_token }, with the client_secret if there is one, or to an access token, which works "
            "until it expires; or give it the kind oauth and a client_id, and log in with toolexec login"
        )
    if kind == "mutualTLS":
        return "set cert_file, and key_file"
    basic = kind == "http" and str(scheme.get("scheme", "")).lower() in ("basic", "digest")
    return f"set {where} to {'{ username, password }' if basic else 'a key or a token'}"


def _token_url(scheme: JSONObject, credential: Mapping[str, str]) -> str:
    """Return where the document says that tokens are asked for with such a credential; empty for nowhere."""
    flows = mapping_of(scheme.get("flows"))
    if "refresh_token" not in credential:
        return string_of(mapping_of(flows.get("clientCredentials")).get("tokenUrl"), 2000)
    found = [mapping_of(flows.get(each)) for each in ("authorizationCode", "deviceAuthorization", "password")]
    urls = [string_of(flow.get(key), 2000) for flow in found for key in ("refreshUrl", "tokenUrl")]
    return next(filter(None, urls), "")
