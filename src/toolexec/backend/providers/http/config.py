"""Which endpoints are tools, and what is sent to each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypedDict, cast

from jmespath import compile as compile_path
from jmespath.exceptions import JMESPathError

from toolexec.backend.providers.caching import check_response_headers
from toolexec.backend.providers.files import read_tools, with_file
from toolexec.backend.providers.http.template import PathTemplate, placeholders
from toolexec.backend.providers.logins import read_login
from toolexec.backend.providers.signing import SIGV4_NEEDED, SIGV4_OPTIONAL
from toolexec.backend.providers.source import check_header
from toolexec.backend.providers.transport import TransportSettings, check_transport
from toolexec.backend.secrets import SecretResolver, has_reference
from toolexec.backend.secrets.callers import MakeCredential, check_callers
from toolexec.backend.secrets.origins import read_origins
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.ids import check_segment
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.settings import check_ranges, checked
from toolexec.net.oauth.settings import OAuthSettings

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_TEXT: Final[JSONObject] = {"type": ["string", "number", "boolean"]}
_BASE: Final = re.compile(r"https?://[^/?#@\s{}]+(?:/[^?#\s{}]*)?")
_ORIGIN: Final = re.compile(r"https?://[^/?#]*")
_FORMS: Final = (
    (frozenset(["bearer"]), frozenset[str]()),
    (frozenset(["username", "password"]), frozenset(["scheme"])),
    (frozenset(["header", "value"]), frozenset[str]()),
    (frozenset(["query", "value"]), frozenset[str]()),
    (SIGV4_NEEDED, SIGV4_OPTIONAL),
)
"""The members of each form of a credential: those that it needs, and those that it may have."""


class HTTPToolSettings(TypedDict, total=False):
    """What an endpoint as a tool takes; see `HTTPTool`."""

    path: str
    method: str
    title: str
    description: str
    query: JSONObject
    headers: Mapping[str, str]
    body: JSONValue
    response: str
    stream: bool
    success: Sequence[int]
    parameters: Mapping[str, JSONObject]
    input_schema: JSONObject
    output_schema: JSONObject
    tags: Sequence[str]
    read_only: bool
    idempotent: bool
    destructive: bool


@checked("HTTP tool")
@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPTool:
    """One endpoint as a tool.

    `path` follows the provider's `base_url`, or is a whole URL. In it `{name}` is replaced by an argument,
    percent-encoded as a part of one segment. In `query`, `headers` and `body`, `{{name}}` is: alone in a string it
    keeps its type, inside a longer string it is written as text, and what it names is left out where the argument is
    not given. A list in the query becomes the same parameter several times. A `body` that is not a string is sent as
    JSON, or as a form where the `content-type` header says so; a string is sent as it is.

    `response` is a JMESPath expression that picks the value out of the JSON that comes back. A status that is not in
    `success` (200 to 299 unless given) is an error. With `stream`, the response may be a stream of items (JSON lines, a
    JSON sequence, server-sent events): `stream_tool` gives each as it arrives, and `response` picks out of each.

    The input schema is `input_schema`, or comes from the placeholders: those of the path and the body are required, and
    `parameters`, name to schema, describes them more exactly. A default there is filled in. Without `read_only`,
    `idempotent` and `destructive`, the method says which the tool is. Raises ConfigurationError for what cannot work.
    """

    name: str
    path: str = ""
    method: str = "GET"
    title: str = ""
    description: str = ""
    query: JSONObject = field(default_factory=JSONDict)
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: JSONValue = None
    response: str = ""
    stream: bool = False
    success: Sequence[int] = ()
    parameters: Mapping[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    input_schema: JSONObject | None = None
    output_schema: JSONObject | None = None
    tags: Sequence[str] = ()
    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None

    def __post_init__(self) -> None:
        if problem := check_segment(self.name):
            raise ConfigurationError(f"HTTP tool {self.name[:100]!r}: its name {problem}")
        if self.method not in _METHODS:
            known = did_you_mean(self.method.upper(), _METHODS)
            raise ConfigurationError(f"{self.where}: there is no method {self.method!r}; {known}")
        if self.body is not None and self.method in ("GET", "HEAD"):
            raise ConfigurationError(f"{self.where}: a {self.method} request has no body")
        if "{" in self.origin:
            raise ConfigurationError(f"{self.where}: the host of its path cannot come from an argument")
        if "@" in self.origin:
            raise ConfigurationError(f"{self.where}: its path has a user or a password in it; send these with auth")
        if any(not 100 <= status <= 599 for status in self.success):
            raise ConfigurationError(f"{self.where}: success must be statuses from 100 to 599")
        try:
            compile_path(self.response or "@")
        except JMESPathError as error:
            raise ConfigurationError(f"{self.where}: response is not JMESPath: {error}") from error
        self._check_names()

    @property
    def where(self) -> str:
        """What messages call it."""
        return f"HTTP tool {self.name}"

    @property
    def origin(self) -> str:
        """Scheme and host where `path` is a whole URL; else empty."""
        found = _ORIGIN.match(self.path)
        return found[0] if found is not None else ""

    def template(self) -> PathTemplate:
        """Return the template of its path."""
        return PathTemplate(self.path, self.where)

    def schema(self) -> JSONDict:
        """Return the input schema: as it is given, or as the placeholders show it."""
        if self.input_schema is not None:
            return dict(self.input_schema)
        properties: JSONDict = {}
        required: dict[str, None] = {}
        for name, kind, needed in self._arguments():
            properties.setdefault(name, {**kind, **self.parameters.get(name, {})})
            if needed and "default" not in properties[name]:
                required[name] = None
        schema: JSONDict = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**schema, "required": [*required]} if required else schema

    def defaults(self) -> JSONDict:
        """Return the values of arguments that a call may leave out."""
        properties = cast("JSONObject", self.schema().get("properties", {}))
        return {
            name: each["default"]
            for name, each in properties.items()
            if isinstance(each, Mapping) and "default" in each
        }

    def _arguments(self) -> list[tuple[str, JSONObject, bool]]:
        """Return each argument that a placeholder names, what fits there, and whether it is needed."""
        found: list[tuple[str, JSONObject, bool]] = [(name, _TEXT, True) for name in self.template().names]
        for name, whole in placeholders(dict(self.query)):
            lists = {"type": [*_TEXT["type"], "array"]}
            found.append((name, lists if whole else _TEXT, False))
        found += [(name, _TEXT, False) for name, _ in placeholders(dict(self.headers))]
        found += [(name, {} if whole else _TEXT, True) for name, whole in placeholders(self.body)]
        return found

    def _check_names(self) -> None:
        """Raise for a parameter that no placeholder names, and for a placeholder that the input schema lacks."""
        named = {name for name, _, _ in self._arguments()}
        for name in self.parameters:
            if name not in named:
                raise ConfigurationError(
                    f"{self.where}: no placeholder is called {name!r}; {did_you_mean(name, sorted(named))}"
                )
        if self.input_schema is None:
            return
        if self.parameters:
            raise ConfigurationError(f"{self.where}: give either an input_schema or parameters")
        properties, required = self.input_schema.get("properties", {}), self.input_schema.get("required", ())
        for name in sorted(named - {*properties}):
            raise ConfigurationError(f"{self.where}: the input_schema has no property {name!r}")
        for name in self.template().names:
            if name not in required and "default" not in properties[name]:
                raise ConfigurationError(f"{self.where}: {name!r} is in the path, so the input_schema must require it")


class HTTPSettings(TransportSettings, total=False):
    """The settings of an `HTTPProvider` by keyword, beside its name and its `base_url`; for type checkers."""

    tools: JSONObject
    file: str | Path
    namespace: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    auth: OAuthSettings | Mapping[str, Any] | str
    credentials: Mapping[str, Mapping[str, str]] | MakeCredential | None
    credential_origins: Sequence[str]
    hosts: Sequence[str]
    allow_private: bool
    timeout: float
    max_response_bytes: int
    max_connections: int
    ca_file: str | Path
    idempotency_header: str
    response_headers: Sequence[str]


class _AllSettings(HTTPSettings, total=False):
    base_url: str


@checked("HTTP provider")
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HTTPProvider:
    """Endpoints as tools: `tools` are `HTTPTool`s, `base_url` is what their paths follow.

    `headers`, `query` and `auth` go along with every request, and only to the origin of `base_url`, or of all tools
    where there is no `base_url` and they have one in common, and to `credential_origins`. `auth` is one of `{bearer}`,
    `{username, password}` (also with `scheme`: `basic` or `digest`), `{header, value}`, `{query, value}`, and for AWS
    `{access_key_id, secret_access_key, region, service}`, perhaps with `session_token`; or it is a login, `"oauth"`, a
    mapping of kind `oauth` with the settings of `OAuthSettings`, or these. Only the hosts of these URLs
    are reached; redirects may also lead to `hosts`. `allow_private` allows names of private addresses, an address that
    is written in a URL is allowed anyway. `timeout` bounds a request, in seconds; `max_response_bytes` the decoded body
    of a response. `namespace` is that of the tools' IDs; the default is the name. `idempotency_header` names the header
    that takes the idempotency key of a call, such as `Idempotency-Key`, in requests that are not GET, HEAD or OPTIONS.
    `response_headers` are the headers of responses, such as `etag`, that are in the `meta` of replies.

    `credentials`, in place of `auth`, has one for each caller: a mapping of callers (their IDs, `tenant/ID` where they
    have a tenant) to such credentials, or a function of the `Origin` of a call that returns one, or None. A caller
    without one is refused, and answers are never shared among callers.

    `cert_file`, `key_file` (PEM) and `key_password` identify the provider to servers that ask for a certificate, of the
    origins that credentials may go to. Requests go through `proxy`, a URL, with `proxy_auth` (`{username, password}`);
    `environment` uses the proxies of the environment.

    With *secrets*, references in base_url, headers, query, auth, key_password, proxy and proxy_auth are filled in when
    the tools are loaded, and those in credentials at each call; the values are taken out of what comes back. The repr
    shows none of them. Raises ConfigurationError.
    """

    name: str
    base_url: str = ""
    tools: Sequence[HTTPTool] = ()
    namespace: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    auth: OAuthSettings | Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    credentials: Mapping[str, Mapping[str, str]] | MakeCredential | None = None
    credential_origins: Sequence[str] = ()
    hosts: Sequence[str] = ()
    allow_private: bool = False
    timeout: float = 30.0
    max_response_bytes: int = 16 * 2**20
    max_connections: int = 100
    ca_file: str | Path = ""
    cert_file: str | Path = ""
    key_file: str | Path = ""
    key_password: str = ""
    proxy: str = ""
    proxy_auth: Mapping[str, str] = field(default_factory=dict[str, str])
    idempotency_header: str = ""
    response_headers: Sequence[str] = ()
    secrets: SecretResolver | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for label, segment in (("name", self.name), ("namespace", self.namespace or self.name)):
            if problem := check_segment(segment):
                raise ConfigurationError(f"provider {self.name!r}: its {label} {problem}")
        login = read_login(f"provider {self.name}: auth", self.auth)
        if login is not None:
            object.__setattr__(self, "auth", login)
        elif self.auth or isinstance(self.auth, str):
            check_auth(f"provider {self.name}: auth", self.auth)
        check_transport(f"provider {self.name}", self)
        check_callers(f"provider {self.name}", self.credentials, has_auth=bool(self.auth))
        for caller, auth in self.credentials.items() if isinstance(self.credentials, Mapping) else ():
            check_auth(f"provider {self.name}: credentials.{caller}", auth)
        for tool in self.tools:
            if not tool.origin and not self.base_url:
                raise ConfigurationError(f"provider {self.name}: {tool.where} has no whole URL, so give a base_url")
        check_ranges(
            f"provider {self.name}",
            above={
                "timeout": self.timeout,
                "max_response_bytes": self.max_response_bytes,
                "max_connections": self.max_connections,
            },
        )
        check_header(f"provider {self.name}", self.idempotency_header)
        check_response_headers(f"provider {self.name}", self.response_headers)
        read_origins(f"provider {self.name}: credential_origins", self.credential_origins)
        later = self.secrets is not None and has_reference(self.base_url)
        if self.base_url and not later and not _BASE.fullmatch(self.base_url):
            raise ConfigurationError(
                f"provider {self.name}: base_url must be a URL with http:// or https://, without a user and a query"
            )

    @property
    def login(self) -> OAuthSettings | None:
        """How to log in; None where `auth` is not a login."""
        return self.auth if isinstance(self.auth, OAuthSettings) else None

    @property
    def shared(self) -> Mapping[str, str]:
        """The credential of `auth`; empty where that is a login."""
        return self.auth if isinstance(self.auth, Mapping) else {}

    @classmethod
    def from_settings(cls, name: str, settings: JSONObject, *, secrets: SecretResolver | None = None) -> HTTPProvider:
        """Read `base_url` and `HTTPSettings`; `file` names a TOML, YAML or JSON file with more of them.

        Raises ConfigurationError, also for a file that cannot be read, and MissingExtraError for YAML without PyYAML.
        """
        parts = with_file(f"provider {name}", _AllSettings, settings, ("tools", "headers", "query"))
        tools = read_tools("HTTP tool", parts.pop("tools", {}), HTTPTool, HTTPToolSettings)
        return cls(name=name, tools=tools, secrets=secrets, **parts)

    def __repr__(self) -> str:
        return f"HTTPProvider(name={self.name!r}, tools={[tool.name for tool in self.tools]!r})"


def check_auth(where: str, auth: object) -> None:
    """Raise ConfigurationError, which begins with *where*, unless *auth* has one of the forms of a credential."""
    members = cast("JSONObject", auth) if isinstance(auth, Mapping) else {}
    fits = any(needed <= members.keys() <= needed | optional for needed, optional in _FORMS)
    if not fits or not all(isinstance(value, str) for value in members.values()):
        forms = ", ".join("{" + ", ".join(sorted(needed)) + "}" for needed, _ in _FORMS)
        raise ConfigurationError(f"{where} must be one of {forms}")
    if members.get("scheme", "basic") not in ("basic", "digest"):
        raise ConfigurationError(f"{where}: scheme must be basic or digest")
