"""The settings of an OpenAPI provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolexec.backend.providers.caching import check_response_headers
from toolexec.backend.providers.logins import login_strings, read_login, with_login_strings
from toolexec.backend.providers.openapi.security import Credential
from toolexec.backend.providers.openapi.selection import Selection
from toolexec.backend.providers.openapi.servers import host_of
from toolexec.backend.providers.source import check_header
from toolexec.backend.providers.transport import TransportSettings, check_transport, transport_strings
from toolexec.backend.secrets.callers import MakeCredential, check_callers
from toolexec.backend.secrets.origins import read_origins
from toolexec.errors import ConfigurationError
from toolexec.model.ids import check_segment
from toolexec.model.json_value import JSONObject
from toolexec.model.settings import check_ranges, checked
from toolexec.net.oauth.settings import OAuthSettings


class OpenAPISettings(TransportSettings, total=False):
    """The settings of an `OpenAPIProvider` by keyword, beside its name and its `spec`; for type checkers."""

    namespace: str
    base_url: str
    server: int | str | None
    variables: Mapping[str, str]
    headers: Mapping[str, str]
    auth: Mapping[str, str | Mapping[str, Any] | OAuthSettings]
    credentials: Mapping[str, Mapping[str, str | Mapping[str, str]]] | MakeCredential | None
    credential_origins: Sequence[str]
    include: Sequence[str]
    exclude: Sequence[str]
    tags: Sequence[str]
    rename: Mapping[str, str]
    allow_refs: bool | Sequence[str]
    spec_headers: Mapping[str, str]
    allow_private: bool
    ca_file: str
    timeout: float
    max_spec_bytes: int
    max_response_bytes: int
    max_schema_bytes: int
    max_connections: int
    idempotency_header: str
    response_headers: Sequence[str]


@checked("OpenAPI provider")
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OpenAPIProvider:
    """One API, described by an OpenAPI document: 3.0, 3.1 or Swagger 2.0, in JSON or YAML.

    `spec` is a path, a URL or the document itself; `spec_headers` are sent to that URL. Tool IDs are `namespace:name`;
    the default is the provider's name.

    Requests go to `base_url`, else to the document's server `server` (by number from 0, URL or description), else to
    the first; `variables` are values for the variables in servers' URLs. No other host is reached. `headers` are sent
    with each request. `auth` has a credential for each security scheme in use: a key or a token, or a mapping with
    `username` and `password`, or with `client_id`, `client_secret` or `refresh_token`, and perhaps `scope`, `audience`
    and `token_url`; or, for one of the schemes, it is a login: a mapping of kind `oauth` with the settings of
    `OAuthSettings`, or these. `credentials`, in place of `auth`, has such a mapping for each caller: a mapping of
    callers (their IDs, `tenant/ID` where they have a tenant), or a function of the `Origin` of a call that returns one,
    or None. A caller without one is refused, and answers are never shared among callers.

    For AWS a credential is a mapping with `access_key_id`, `secret_access_key`, `region`, `service` and perhaps
    `session_token`. `cert_file`, `key_file`, `key_password`, `proxy` and `proxy_auth` are as for `HTTPProvider`.

    Headers and credentials go only to origins (scheme, host and port) that you named: those of `base_url`, of
    `credential_origins` and of a `server` that is given by its URL, and that of the document's URL. A document that you
    give as a file or as data also names its own server and its token URLs, as it is when it is first read. A
    `token_url` in `auth` counts for that credential. A call that would take them elsewhere is refused.

    `include`, `exclude` and `tags` select operations: patterns such as `pets-*` or `GET /pets/*`, and tags of the
    document. `rename` has new names by operation ID or name.

    The idempotency key of a call is sent where the document declares a header `Idempotency-Key` (an ID of the call
    where it requires one), and as `idempotency_header` in all other requests that change something, if that is set.

    `response_headers` are the headers of responses, such as `etag`, that are in the `meta` of replies.

    References to other documents are refused unless `allow_refs`: true for files in the document's directory and below
    and for its own host, or a list of further directories and hosts. Private addresses are refused unless
    `allow_private` or `base_url` names one. `timeout` bounds a request, in seconds; `max_spec_bytes` the documents,
    `max_response_bytes` a response, `max_schema_bytes` the definitions in the schema of one tool.

    The repr shows neither headers nor credentials. Raises ConfigurationError for what cannot work.
    """

    name: str
    spec: str | Path | JSONObject
    namespace: str = ""
    base_url: str = ""
    server: int | str | None = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    auth: Mapping[str, str | Mapping[str, Any] | OAuthSettings] = field(default_factory=dict[str, Credential])
    credentials: Mapping[str, Mapping[str, str | Mapping[str, str]]] | MakeCredential | None = None
    credential_origins: Sequence[str] = ()
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    tags: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    allow_refs: bool | Sequence[str] = False
    spec_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    allow_private: bool = False
    ca_file: str = ""
    cert_file: str | Path = ""
    key_file: str | Path = ""
    key_password: str = ""
    proxy: str = ""
    proxy_auth: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 30.0
    max_spec_bytes: int = 64 * 2**20
    max_response_bytes: int = 16 * 2**20
    max_schema_bytes: int = 65_536
    max_connections: int = 100
    idempotency_header: str = ""
    response_headers: Sequence[str] = ()

    def __post_init__(self) -> None:
        for label, segment in (("name", self.name), ("namespace", self.namespace or self.name)):
            problem = check_segment(segment)
            if problem:
                raise ConfigurationError(f"OpenAPI provider {self.name!r}: its {label} {problem}")
        self._read_login()
        check_header(f"OpenAPI provider {self.name}", self.idempotency_header)
        check_response_headers(f"OpenAPI provider {self.name}", self.response_headers)
        read_origins(f"OpenAPI provider {self.name}: credential_origins", self.credential_origins)
        check_transport(f"OpenAPI provider {self.name}", self)
        check_callers(f"OpenAPI provider {self.name}", self.credentials, has_auth=bool(self.auth))
        if not self.spec:
            raise ConfigurationError(f"OpenAPI provider {self.name}: spec must name a document")
        if self.base_url and not host_of(self.base_url) and "$" not in self.base_url:
            raise ConfigurationError(f"OpenAPI provider {self.name}: base_url must be http:// or https:// with a host")
        for label, url in (("spec", str(self.spec)), ("base_url", self.base_url)):
            if host_of(url) and "@" in url.partition("://")[2].partition("/")[0]:
                what = f"{label} has a user or a password in it"
                raise ConfigurationError(f"OpenAPI provider {self.name}: {what}; send these in a header")
        check_ranges(
            f"OpenAPI provider {self.name}",
            above={
                "timeout": self.timeout,
                "max_spec_bytes": self.max_spec_bytes,
                "max_response_bytes": self.max_response_bytes,
                "max_schema_bytes": self.max_schema_bytes,
                "max_connections": self.max_connections,
            },
            least={"server": self.server} if isinstance(self.server, int) else None,
        )
        try:
            self.selection()
        except ConfigurationError as error:
            raise ConfigurationError(f"OpenAPI provider {self.name}: {error.message}") from None

    def _read_login(self) -> None:
        """Have the login in `auth` as its settings."""
        where, auth = f"OpenAPI provider {self.name}: auth", dict(self.auth)
        for name, credential in auth.items():
            if not isinstance(credential, str) and (login := read_login(f"{where}.{name}", credential)) is not None:
                auth[name] = login
        if len(logins := [name for name, each in auth.items() if isinstance(each, OAuthSettings)]) > 1:
            raise ConfigurationError(f"{where}: {' and '.join(logins)} are logins, and a provider has one at most")
        if logins:
            object.__setattr__(self, "auth", auth)

    @property
    def login(self) -> tuple[str, OAuthSettings] | None:
        """The scheme that is logged in to, and how; None where there is none."""
        logins = [(name, each) for name, each in self.auth.items() if isinstance(each, OAuthSettings)]
        return logins[0] if logins else None

    def __repr__(self) -> str:
        return f"OpenAPIProvider(name={self.name!r}, spec={self.location!r})"

    @property
    def location(self) -> str:
        """Where the document is, without user, password and query; empty for one that is given as data."""
        if isinstance(self.spec, Mapping):
            return ""
        text = str(self.spec)
        if not host_of(text):
            return text
        scheme, _, rest = text.partition("://")
        return f"{scheme}://{host_of(text)}/{rest.partition('?')[0].partition('#')[0].partition('/')[2]}"

    def selection(self) -> Selection:
        """Return the rules that select and rename operations."""
        return Selection(include=self.include, exclude=self.exclude, tags=self.tags, rename=self.rename)

    def strings(self) -> dict[str, str]:
        """Return all strings that may hold references to secrets, by label."""
        found = {"base_url": self.base_url, "spec": "" if isinstance(self.spec, Mapping) else str(self.spec)}
        for label, values in (
            ("headers", self.headers),
            ("spec_headers", self.spec_headers),
            ("variables", self.variables),
        ):
            found |= {f"{label}.{name}": value for name, value in values.items()}
        found |= transport_strings(self)
        for name in self.auth:
            found |= self.auth_strings(name)
        return found

    def auth_strings(self, name: str) -> dict[str, str]:
        """Return the strings of one credential that may hold references to secrets, by label."""
        credential, label = self.auth[name], f"auth.{name}"
        if isinstance(credential, OAuthSettings):
            return login_strings(label, credential)
        return (
            {label: credential} if isinstance(credential, str) else {f"{label}.{p}": v for p, v in credential.items()}
        )

    def with_auth_strings(self, name: str, found: Mapping[str, str]) -> str | Mapping[str, Any] | OAuthSettings:
        """Return a credential with the strings of `auth_strings` filled in."""
        credential, label = self.auth[name], f"auth.{name}"
        if isinstance(credential, OAuthSettings):
            return with_login_strings(label, credential, found)
        return found[label] if isinstance(credential, str) else {part: found[f"{label}.{part}"] for part in credential}
