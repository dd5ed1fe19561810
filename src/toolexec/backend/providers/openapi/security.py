"""The security schemes of a document, and which of them each operation is called with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from toolexec.backend.providers.openapi.document import (
    Document,
    InvalidPartError,
    items_of,
    mapping_of,
    string_of,
)
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict, JSONObject

__all__ = ["Credential", "Schemes"]

Credential: TypeAlias = str | Mapping[str, str]
"""What `auth` has for a scheme: a key or token, or a mapping with `username` and `password`, or with `client_id`,
`client_secret` or a `refresh_token` or both, and also `scope`, `audience` and `token_url`."""

_PARTS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "basic": (frozenset(("username", "password")), frozenset()),
    "oauth2": (
        frozenset(("client_id",)),
        frozenset(("client_secret", "refresh_token", "scope", "token_url", "audience")),
    ),
}
"""The members of a credential that is a mapping: those that it needs, and those that it may have."""


class Schemes:
    """The security schemes of *document* that *auth* has credentials for; *headers* are sent with all requests anyway.

    Raises ConfigurationError for a scheme that the document does not have, and for a credential of the wrong form.
    """

    def __init__(self, document: Document, auth: Mapping[str, Credential], headers: Iterable[str] = ()) -> None:
        self._headers = [("header", name.lower()) for name in headers]
        self.known: dict[str, JSONDict] = {}
        components = mapping_of(document.root.get("components"))
        for name, node in mapping_of(components.get("securitySchemes")).items():
            try:
                self.known[name] = document.follow(node)
            except InvalidPartError:
                continue
        self.auth: dict[str, Credential] = dict(auth)
        self._default = document.root.get("security")
        for name, credential in auth.items():
            if name not in self.known:
                hint = did_you_mean(name, self.known) if self.known else "it has none: use headers"
                raise ConfigurationError(f"auth: the document has no security scheme {name!r}; {hint}")
            _check(name, self.known[name], credential)

    def of(self, operation: JSONDict) -> tuple[tuple[str, ...], ...]:
        """Return the alternatives of an operation, each with the names of the schemes that are needed together.

        Where neither the operation nor the document says what is needed, all that there are credentials for are sent.
        """
        given = operation.get("security", self._default)
        if not isinstance(given, list):
            return (tuple(self.auth),) if self.auth else ()
        return tuple(tuple(mapping_of(each)) for each in items_of(given))

    def withheld(self) -> list[tuple[str, str]]:
        """Return the places and lower-case names of parameters that are filled in by the settings."""
        keys = [self.known[name] for name in self.auth if self.known[name].get("type") == "apiKey"]
        return [*self._headers, *((str(key.get("in")), str(key.get("name")).lower()) for key in keys)]

    def token_urls(self, security: tuple[tuple[str, ...], ...]) -> list[str]:
        """Return where the tokens for an operation may be asked for."""
        names = dict.fromkeys(name for each in security for name in each if name in self.auth)
        return [url for name in names if (url := self.token_url(name))]

    def given_token_url(self, name: str) -> str:
        """Return where the settings, and not the document, say that tokens are asked for; empty where they do not."""
        credential = self.auth.get(name)
        return credential.get("token_url", "") if isinstance(credential, Mapping) else ""

    def token_url(self, name: str) -> str:
        """Return where the tokens of an OAuth2 scheme are asked for with its credential; empty for no such place."""
        credential = self.auth.get(name)
        given = self.given_token_url(name)
        return (given or _token_url(self.known[name], credential)) if isinstance(credential, Mapping) else ""

    def unusable(self, security: tuple[tuple[str, ...], ...]) -> dict[str, str]:
        """Return what is missing for an operation that there are no credentials for: for each scheme how to give one.

        Empty where there are some, where it needs none, and where headers are sent, which may have them.
        """
        if not all(security) or self._headers or any(all(name in self.auth for name in each) for each in security):
            return {}
        names = dict.fromkeys(name for each in security for name in each if name not in self.auth)
        return {name: _how_to_give(name, self.known[name]) for name in names if name in self.known}


def _check(name: str, scheme: JSONObject, credential: Credential) -> None:
    """Raise ConfigurationError for a credential that does not fit its scheme, or a scheme that cannot be used."""
    kind = scheme.get("type")
    if kind == "http" and str(scheme.get("scheme", "")).lower() == "basic":
        kind = "basic"
    elif kind == "openIdConnect" and isinstance(credential, Mapping):
        kind = "oauth2"
    elif kind in ("http", "openIdConnect"):
        kind = "bearer"
    elif kind not in ("apiKey", "oauth2"):
        raise ConfigurationError(f"auth.{name}: the kind {str(kind)[:60]!r} of scheme is not supported; use headers")
    if kind == "apiKey" and (scheme.get("in") not in ("header", "query", "cookie") or not scheme.get("name")):
        raise ConfigurationError(f"auth.{name}: the document does not say where its key goes; use headers")
    if isinstance(credential, str):
        if kind == "basic" and ":" not in credential and "$" not in credential and "secretref:" not in credential:
            raise ConfigurationError(f"auth.{name}: give a mapping with username and password, or username:password")
        return
    needed, optional = _PARTS.get(kind, (frozenset[str](), frozenset[str]()))
    if not needed:
        raise ConfigurationError(f"auth.{name} must be a string, the {'key' if kind == 'apiKey' else 'token'}")
    missing = sorted(needed - credential.keys())
    unknown = sorted(credential.keys() - needed - optional)
    if missing or unknown:
        problem = f"has no {missing[0]}" if missing else f"has no setting {unknown[0]!r}"
        hint = "" if missing else f"; {did_you_mean(unknown[0], sorted(needed | optional))}"
        raise ConfigurationError(f"auth.{name} {problem}{hint}")
    if kind == "oauth2":
        _check_grant(name, scheme, credential)


def _check_grant(name: str, scheme: JSONObject, credential: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a credential that no token can be got with."""
    if not credential.keys() & {"client_secret", "refresh_token"}:
        raise ConfigurationError(
            f"auth.{name} has neither a client_secret nor a refresh_token; {_how_to_give(name, scheme)}"
        )
    if credential.get("token_url") or _token_url(scheme, credential):
        return
    flows = ", ".join(mapping_of(scheme.get("flows"))) or "none"
    if "refresh_token" in credential:
        raise ConfigurationError(f"auth.{name}: the document does not say where it is refreshed; set its token_url")
    raise ConfigurationError(
        f"auth.{name}: with a client_secret alone no token can be had, as the document has no flow clientCredentials, "
        f"but {flows}; {_how_to_give(name, scheme)}; or set its token_url, if that gives tokens to clients themselves"
    )


def _how_to_give(name: str, scheme: JSONObject) -> str:
    """Return what to set for a scheme."""
    kind, flows = scheme.get("type"), mapping_of(scheme.get("flows"))
    if kind == "oauth2" and "clientCredentials" in flows:
        return f"set auth.{name} to {{ client_id, client_secret }}, or to an access token"
    if kind in ("oauth2", "openIdConnect"):
        place = string_of(mapping_of(flows.get("authorizationCode")).get("authorizationUrl"), 300)
        return (
            f"a person has to log in{f' at {place}' if place else ''}, with a program of yours: set auth.{name} to "
            "{ client_id, refresh_token }, with the client_secret if there is one, or to an access token, which works "
            "until it expires"
        )
    basic = kind == "http" and str(scheme.get("scheme", "")).lower() == "basic"
    return f"set auth.{name} to {'{ username, password }' if basic else 'a key or a token'}"


def _token_url(scheme: JSONObject, credential: Mapping[str, str]) -> str:
    """Return where the document says that tokens are asked for with such a credential; empty for nowhere."""
    flows = mapping_of(scheme.get("flows"))
    if "refresh_token" not in credential:
        return string_of(mapping_of(flows.get("clientCredentials")).get("tokenUrl"), 2000)
    found = [mapping_of(flows.get(each)) for each in ("authorizationCode", "deviceAuthorization", "password")]
    urls = [string_of(flow.get(key), 2000) for flow in found for key in ("refreshUrl", "tokenUrl")]
    return next(filter(None, urls), "")
