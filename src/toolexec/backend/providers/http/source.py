"""The provider of single endpoints: what it lists, and how it calls them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from jmespath import compile as compile_path
from jmespath.exceptions import JMESPathError

from toolexec.backend.providers.caching import for_caller_only, with_headers
from toolexec.backend.providers.cleaning import clean_answer, clean_error
from toolexec.backend.providers.http.config import HTTPProvider, HTTPTool
from toolexec.backend.providers.http.credentials import Credentials, Sent, secrets_of_auth
from toolexec.backend.providers.http.template import LEFT_OUT, as_text, filled, refused
from toolexec.backend.providers.items import item_parser
from toolexec.backend.providers.logins import login_strings, login_words, made_logins, with_login_strings
from toolexec.backend.providers.replies import failure_of, is_json, value_of
from toolexec.backend.providers.signing import written_secrets
from toolexec.backend.providers.source import Definition, ProvidedTool, key_header, key_of
from toolexec.backend.providers.streaming import events_of
from toolexec.backend.providers.transport import (
    client_settings,
    transport_secrets,
    transport_strings,
    with_transport_strings,
)
from toolexec.backend.secrets import Scrubber, SecretResolver
from toolexec.backend.secrets.credentials import secrets_of_fields, secrets_of_url
from toolexec.backend.secrets.origins import CredentialOrigins, read_origins
from toolexec.errors import ConfigurationError, InvalidResultError, Outcome, RemoteToolError, ToolExecError
from toolexec.errors.extras import extra_needed
from toolexec.model.call import ToolCall, note_login
from toolexec.model.content import ToolReply
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.model.tool import Tool, ToolAnnotations
from toolexec.net.hosts import origin_of
from toolexec.net.http import HTTPClient, HTTPRequest, HTTPResponse, OpenResponse
from toolexec.net.oauth.callers import CallerLogins

_FORM: Final = "application/x-www-form-urlencoded"


class HTTPSource:
    """Provides endpoints as tools.

    *make* reads the provider: it is called at each load, so that a file that has changed is read again.
    """

    kind = "http"

    def __init__(self, provider: HTTPProvider, make: partial[HTTPProvider] | None = None) -> None:
        self._provider = provider
        self._make = make
        self._clients: dict[tuple[object, ...], HTTPClient] = {}
        self._known: tuple[HTTPProvider, Definition] | None = None
        self._logins: CallerLogins | None = None

    async def load(self) -> Definition:
        """Return the tools, with the references in the settings filled in.

        Raises ConfigurationError, SecretError and MissingExtraError.
        """
        if self._make is not None:
            self._provider = await asyncio.to_thread(self._make)
        provider, hidden = await asyncio.to_thread(_resolved, self._provider)
        if self._known is not None and self._known[0] == provider:
            return self._known[1]
        client, hide = self._client(provider), Scrubber(hidden)
        self._logins = self._logins_of(provider)
        credentials = Credentials(provider, hidden, self._provider.secrets, self._logins)
        tools: list[ProvidedTool] = []
        skipped: dict[str, str] = {}
        for tool in provider.tools:
            if tool.origin and not origin_of(tool.origin):
                skipped[tool.name] = "its path is a URL with a host or a port that is invalid"
                continue
            endpoint = _Endpoint(provider, tool, client, credentials)
            try:
                streams = endpoint.stream if tool.stream else None
                tools.append(ProvidedTool(endpoint.tool(), endpoint.call, streams, endpoint.destination))
            except ToolExecError as error:
                skipped[tool.name] = hide.text(error.message)
        definition = Definition(tools=tools, skipped=skipped)
        self._known = provider, definition
        return definition

    async def aclose(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def info(self) -> JSONObject:
        """Return the hosts that it calls, and the login that it calls them with."""
        return {"url": ", ".join(_hosts(self._provider)) or "-", **login_words(self._logins)}

    async def find_logins(self) -> CallerLogins | None:
        """Return the logins that calls are made with; see `LoginSource`."""
        await self.load()
        return self._logins

    def _logins_of(self, provider: HTTPProvider) -> CallerLogins | None:
        """Return the logins to the one origin of a provider. Raises ConfigurationError where there is not one."""
        if provider.login is None:
            return None
        origins = {origin_of(provider.base_url or tool.origin) for tool in provider.tools}
        url = provider.base_url or next(iter(origins), "")
        if len(origins) > 1 or not origin_of(url):
            raise ConfigurationError(f"provider {provider.name}: a login is for one origin; set base_url")
        settings = {"ca_file": provider.ca_file, **client_settings(provider, _named_origins(provider).allowed)}
        return made_logins(self._logins, provider.name, url, provider.login, settings)

    def _client(self, provider: HTTPProvider) -> HTTPClient:
        """Return the client for these settings: calls that are under way go on with that of the settings before."""
        settings: dict[str, Any] = {
            "hosts": (*_hosts(provider), *provider.hosts),
            "allow_private": provider.allow_private,
            "timeout": provider.timeout,
            "max_response_bytes": provider.max_response_bytes,
            "max_connections": provider.max_connections,
            "ca_file": provider.ca_file,
            **client_settings(provider, _named_origins(provider).allowed),
        }
        key = tuple(settings.values())
        if key not in self._clients:
            self._clients[key] = HTTPClient(**settings)
        return self._clients[key]


class _Endpoint:
    """Makes the calls of one tool."""

    def __init__(self, provider: HTTPProvider, spec: HTTPTool, client: HTTPClient, credentials: Credentials) -> None:
        self._provider = provider
        self._spec = spec
        self._client = client
        self._credentials = credentials
        self._path = spec.template()
        self._base = "" if spec.origin else provider.base_url.rstrip("/")
        self._pick = compile_path(spec.response) if spec.response else None
        self._defaults = spec.defaults()
        self._origins = _named_origins(provider)
        self._credential = next(
            (each for each in ("auth", "credentials", "headers", "query") if getattr(provider, each)), ""
        )

    @property
    def destination(self) -> str:
        """The origin that its requests go to."""
        return origin_of(self._spec.origin or self._base)

    def tool(self) -> Tool:
        """Return the tool. Raises InvalidToolError and InvalidSchemaError."""
        spec = self._spec
        return Tool(
            name=spec.name,
            namespace=self._provider.namespace or self._provider.name,
            title=spec.title,
            description=spec.description or f"{spec.method} {spec.path.partition('?')[0]}",
            input_schema=spec.schema(),
            output_schema=spec.output_schema,
            annotations=_annotations(spec),
            tags=spec.tags,
        )

    async def call(self, call: ToolCall) -> JSONValue:
        """Send the request and return what its response says; see `Backend.call`."""
        sent, request = await self._begun(call)
        hide = sent.hide
        try:
            response = await self._client.send(request)
            if await self._credentials.is_renewed(sent, response, is_last=False):
                sent, request = await self._begun(call)
                hide = sent.hide
                response = await self._client.send(request)
                await self._credentials.is_renewed(sent, response, is_last=True)
            hide = _hiding(sent, response)
            return self._answer(hide, response)
        except ToolExecError as error:
            raise clean_error(error, hide) from error

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Send the request and yield the items of its response as they arrive; see `StreamingBackend.stream`."""
        for is_last in (False, True):
            sent, request = await self._begun(call)
            hide = sent.hide
            try:
                async with self._client.open(request) as response:
                    if await self._credentials.is_renewed(sent, response, is_last=is_last):
                        continue
                    hide = _hiding(sent, response)
                    item, answer = partial(self._item, hide), partial(self._answer, hide)
                    async with aclosing(events_of(response, self._success, item, answer)) as events:
                        async for event in events:
                            yield event
                return
            except ToolExecError as error:
                raise clean_error(error, hide) from error

    async def _begun(self, call: ToolCall) -> tuple[Sent, HTTPRequest]:
        """Return what goes along with a call, and its request."""
        sent = await self._credentials.of(call.origin)
        if sent.login is not None and sent.login.caller:
            note_login(call, sent.login.caller)
        return sent, self._request({**self._defaults, **(call.args or {})}, key_of(call), sent)

    @property
    def _name(self) -> str:
        return f"{self._provider.name}:{self._spec.name}"

    @property
    def _success(self) -> Collection[int]:
        return self._spec.success or range(200, 300)

    def _answer(self, hide: Scrubber, response: HTTPResponse, items: list[Any] | None = None) -> Any:
        """Return what a response says; *items* are those of a stream that was read already."""
        if response.status not in self._success:
            raise failure_of(self._name, response, hide)
        value = items if items is not None else self._value(response)
        answer = clean_answer(with_headers(value, response, self._provider.response_headers), hide)
        return answer if self._credentials.is_shared else for_caller_only(answer)

    def _value(self, response: HTTPResponse) -> Any:
        expects_json = self._pick is not None or self._spec.output_schema is not None
        value = value_of(response, expects_json=expects_json)
        if self._pick is None or value is None:
            return value
        if item_parser(response.headers) is not None:
            return [self._one(each) for each in value] if self._spec.stream else self._one(value)
        if isinstance(value, ToolReply) or (isinstance(value, str) and not is_json(response)):
            kind = response.headers.get("content-type", "nothing")
            raise RemoteToolError(
                f"{self._name} answered with {kind[:100]} where JSON was expected",
                details={"status": response.status, "content_type": kind[:100]},
                outcome=Outcome.DONE,
            )
        return self._one(value)

    def _one(self, value: JSONValue) -> JSONValue:
        return value if self._pick is None else _picked(self._name, self._pick, value)

    def _item(self, hide: Scrubber, value: JSONValue) -> JSONValue:
        return clean_answer(self._one(value), hide)

    def _request(self, args: JSONObject, key: str, sent: Sent) -> HTTPRequest:
        """Return the request for *args*. Raises InputValidationError for values that cannot be sent, and
        BackendUnavailableError where its credentials may not go.
        """
        spec = self._spec
        path = self._path.fill(args)
        if path and not spec.origin and not path.startswith(("/", "?")):
            path = f"/{path}"
        url = self._base + path
        if self._credential:
            self._origins.check(url, self._credential)
        query = urlencode([*sent.query.items(), *_pairs(spec.query, args)], quote_via=quote)
        if query:
            url += ("&" if "?" in url else "?") + query
        headers = {**sent.headers, **dict(_header_values(spec.headers, args))}
        headers |= dict(key_header(spec.method, self._provider.idempotency_header, key, headers))
        body, media = _body(spec, args, headers)
        if media and not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = media
        return HTTPRequest(spec.method, url, [*headers.items()], body, self._credentials.signer(sent, url))


def _hiding(sent: Sent, response: HTTPResponse | OpenResponse) -> Scrubber:
    """Return what takes the credentials out of an answer, those that were made for its request among them."""
    written = written_secrets(response.credentials)
    return Scrubber(sent.hidden | written) if written else sent.hide


def _picked(name: str, pick: Any, value: JSONValue) -> JSONValue:
    """Return the part of an answer that *pick* leads to. Raises InvalidResultError where that cannot be computed."""
    try:
        return pick.search(value)
    except (JMESPathError, ValueError, TypeError, RecursionError) as error:
        reason = str(error)[:500]
        raise InvalidResultError(f"{name} answered, but `response` cannot be applied to that: {reason}") from error


def _pairs(query: JSONObject, args: JSONObject) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in filled(query, args).items():
        for item in value if isinstance(value, list) else [value]:
            text = as_text(item)
            if text is not None:
                found.append((name, text))
            elif item is not None:
                raise refused(name, "cannot be written in a query: give strings, numbers, booleans or lists of them")
    return found


def _header_values(headers: Mapping[str, str], args: JSONObject) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in filled(headers, args).items():
        text = as_text(value)
        if text is None and value is not None:
            raise refused(name, "cannot be written in a header: give a string, a number or a boolean")
        if text is not None:
            found.append((name, text))
    return found


def _body(spec: HTTPTool, args: JSONObject, headers: Mapping[str, str]) -> tuple[bytes | None, str]:
    """Return the body, and its media type where no header says it."""
    if spec.body is None:
        return None, ""
    value = filled(spec.body, args)
    if value is LEFT_OUT:
        return None, ""
    media = next((text for name, text in headers.items() if name.lower() == "content-type"), "")
    if media.partition(";")[0].strip().lower() == _FORM and isinstance(value, Mapping):
        return urlencode(_pairs(value, {})).encode(), _FORM
    if isinstance(value, str) and isinstance(spec.body, str) and "json" not in media:
        return value.encode(), "text/plain; charset=utf-8"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), "application/json"


def _annotations(spec: HTTPTool) -> ToolAnnotations:
    """Return what the method says of the tool, unless the settings do."""
    reads = spec.method in ("GET", "HEAD", "OPTIONS")
    return ToolAnnotations(
        read_only=reads if spec.read_only is None else spec.read_only,
        idempotent=(reads or spec.method in ("PUT", "DELETE")) if spec.idempotent is None else spec.idempotent,
        destructive=(True if spec.method == "DELETE" else None) if spec.destructive is None else spec.destructive,
        open_world=True,
    )


def _hosts(provider: HTTPProvider) -> list[str]:
    """Return the hosts that the URLs name, as `HTTPClient` takes them; a tool whose URL is invalid has none."""
    found: list[str] = []
    for url in (provider.base_url, *(tool.origin for tool in provider.tools)):
        origin = origin_of(url)
        if not origin and url and url is provider.base_url and "$" not in url:
            raise ConfigurationError(f"provider {provider.name}: base_url has a host or a port that is invalid")
        if origin and "$" not in url:
            found.append(urlsplit(origin).netloc)
    return [*dict.fromkeys(found)]


def _resolved(provider: HTTPProvider) -> tuple[HTTPProvider, frozenset[str]]:
    """Return the provider with its references filled in, and its secrets."""
    hidden: set[str] = set()
    if provider.secrets is not None:
        tables = {"headers": provider.headers, "query": provider.query, "auth": provider.shared}
        strings = {"base_url": provider.base_url}
        strings |= transport_strings(provider)
        strings |= {f"{table}.{name}": value for table, values in tables.items() for name, value in values.items()}
        strings |= login_strings("auth", login) if (login := provider.login) is not None else {}
        found = provider.secrets.expand(strings, f"provider {provider.name}", public={"base_url"})
        filled_in: dict[str, Any] = {
            table: {name: found.strings[f"{table}.{name}"] for name in values} for table, values in tables.items()
        }
        filled_in |= {"auth": with_login_strings("auth", login, found.strings)} if login is not None else {}
        filled_in |= with_transport_strings(provider, found.strings)
        provider = replace(provider, base_url=found.strings["base_url"], secrets=None, **filled_in)
        hidden |= found.secrets
    hidden |= secrets_of_auth(provider.shared) | transport_secrets(provider)
    hidden |= provider.login.secrets if provider.login is not None else set()
    hidden |= secrets_of_fields(provider.headers) | secrets_of_fields(provider.query, in_url=True)
    hidden |= secrets_of_url(provider.base_url)
    for tool in provider.tools:
        hidden |= secrets_of_url(tool.path)
        hidden |= secrets_of_fields(tool.headers) | secrets_of_fields(tool.query, in_url=True)
    return provider, frozenset(hidden)


def http_source(name: str, settings: JSONObject, *, secrets: SecretResolver | None = None) -> HTTPSource:
    """Return the source of provider *name*; see `MakeSource`. A `file` in the settings is read again at each load."""
    with extra_needed("http", f"provider {name}"):  # now, and not at its first call
        if find_spec("httpcore2") is None:
            raise ModuleNotFoundError(name="httpcore2")
    make = partial(HTTPProvider.from_settings, name, dict(settings), secrets=secrets)
    return HTTPSource(make(), make if settings.get("file") else None)


def _named_origins(provider: HTTPProvider) -> CredentialOrigins:
    """Return the origins that are named for credentials: that of `base_url`, and `credential_origins`.

    Without a `base_url` the origin of the tools counts, if all of them have the same: with several ones nothing says
    to which of them the credentials belong.
    """
    own = {origin_of(provider.base_url or tool.origin) for tool in provider.tools} - {""}
    named = read_origins("credential_origins", provider.credential_origins)
    return CredentialOrigins(provider.name, named | (own if len(own) == 1 else set()), instead="its base_url")
