"""A source of tools that are operations of an HTTP API, read from its OpenAPI document."""

from __future__ import annotations

import asyncio
import copy
import ipaddress
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from toolexec.backend.providers.caching import for_caller_only
from toolexec.backend.providers.cleaning import clean_answer, clean_error
from toolexec.backend.providers.openapi.auth import Auth, Used, secrets_of_auth
from toolexec.backend.providers.openapi.document import Document, mapping_of, read_document, string_of
from toolexec.backend.providers.openapi.operations import Operation, Operations, read_operations
from toolexec.backend.providers.openapi.origins import NamedOrigins, destination_of, named_origins
from toolexec.backend.providers.openapi.references import read_references
from toolexec.backend.providers.openapi.request import draft_of
from toolexec.backend.providers.openapi.response import SUCCESS, reply_of
from toolexec.backend.providers.openapi.security import ANY_CALLER, Credential, Schemes
from toolexec.backend.providers.openapi.servers import Servers, host_of
from toolexec.backend.providers.openapi.settings import OpenAPIProvider
from toolexec.backend.providers.openapi.swagger import from_swagger
from toolexec.backend.providers.openapi.tokens import Client, Tokens
from toolexec.backend.providers.source import Definition, ProvidedTool, key_of
from toolexec.backend.providers.streaming import events_of
from toolexec.backend.secrets import Scrubber, SecretResolver
from toolexec.backend.secrets.callers import CallerCredentials
from toolexec.backend.secrets.credentials import secrets_of_fields, secrets_of_url
from toolexec.errors import BackendUnavailableError, ConfigurationError, SecretError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.net.hosts import origin_of
from toolexec.net.http import HTTPClient, HTTPRequest, HTTPResponse, OpenResponse

__all__ = ["OpenAPISource", "openapi_source", "upgraded"]

logger: logging.Logger = logging.getLogger(__name__)
_MAX_SCRUBBERS: Final = 256
_LOCAL_NAMES: Final = ("localhost", "localhost.localdomain")


class StreamingClient(Client, Protocol):
    """What is needed of an `HTTPClient`, also for streams."""

    def open(self, request: HTTPRequest) -> AbstractAsyncContextManager[OpenResponse]:
        """Send a request and give its response as soon as its headers are there."""
        ...


MakeClient = Callable[..., StreamingClient]


def openapi_source(name: str, settings: JSONObject, *, secrets: SecretResolver | None = None) -> OpenAPISource:
    """Return the source of provider *name*; the settings are those of `OpenAPIProvider`, `spec` among them."""
    if "spec" not in settings:
        raise ConfigurationError(f"OpenAPI provider {name}: set spec to the path or the URL of its document")
    return OpenAPISource(OpenAPIProvider(name=name, **settings), secrets=secrets)


class OpenAPISource:
    """Reads the document of a provider, and makes the calls of its operations.

    *make_client* makes what sends requests, with the settings of an `HTTPClient`.
    """

    kind: str = "openapi"

    def __init__(
        self,
        provider: OpenAPIProvider,
        *,
        secrets: SecretResolver | None = None,
        make_client: MakeClient = HTTPClient,
    ) -> None:
        self._provider = provider
        self._secrets = secrets
        self._make_client = make_client
        self._clients: dict[tuple[str, ...], StreamingClient] = {}
        self._info: JSONDict = {}
        self._named: NamedOrigins | None = None
        self._tokens = Tokens()

    def info(self) -> JSONObject:
        """Return where the document is, what it is called, and the hosts that are reached; see `Source.info`."""
        return {"spec": self._provider.location or "(given as data)", **self._info}

    async def load(self) -> Definition:
        """Read the document; see `Source.load`."""
        provider, hidden = await asyncio.to_thread(self._resolved)
        scrubber = Scrubber(hidden)
        try:
            document = await self._document(provider)
            schemes = Schemes(document, provider.auth, provider.headers, _callers(provider))
            servers = _servers(provider, document)
            operations = await asyncio.to_thread(_operations, provider, document, schemes, servers)
        except ToolExecError as error:
            raise clean_error(error, scrubber, f"OpenAPI provider {provider.name}: ") from error
        hosts = _hosts(provider, operations, schemes)
        client = self._client(provider, hosts)
        about = mapping_of(document.root.get("info"))
        self._info = {"title": string_of(about.get("title"), 200), "version": string_of(about.get("version"), 60)}
        self._info["hosts"] = list(hosts)
        missing = {name: how for each in operations.found for name, how in schemes.unusable(each.security).items()}
        if missing:
            self._info["missing_credentials"] = missing
            logger.warning("OpenAPI provider %s: no credentials: %s", provider.name, "; ".join(missing.values()))
        if self._named is None:
            self._named = named_origins(provider, document, servers, schemes)
        calls, tokens = self._named.calls, self._named.tokens
        callers = (
            CallerCredentials(provider.name, provider.credentials, self._secrets, schemes.check)
            if provider.credentials is not None
            else None
        )
        auth = Auth(
            provider.name,
            schemes,
            provider.headers,
            client,
            self._tokens,
            callers,
            origins=calls,
            token_origins=tokens,
        )
        caller = _Caller(client, auth, hidden, scrubber, tuple(provider.response_headers))
        tools = [
            ProvidedTool(
                each.tool,
                partial(caller.call, each),
                partial(caller.stream, each) if each.streams else None,
                destination_of(each, schemes),
            )
            for each in operations.found
        ]
        return Definition(tools=tools, skipped=operations.skipped)

    async def aclose(self) -> None:
        """Close the connections; see `Source.aclose`."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()

    def _resolved(self) -> tuple[OpenAPIProvider, frozenset[str]]:
        """Return the provider with its references to secrets filled in, and all values that stay secret."""
        provider = self._provider
        hidden = _credentials(provider)
        if self._secrets is None:
            return provider, hidden
        where = f"OpenAPI provider {provider.name}"
        found = self._secrets.expand(provider.strings(), where, public={"base_url", "spec"})
        values = found.strings
        for label, value in values.items():
            if label.startswith(("headers.", "spec_headers.", "auth.")) and any(each in value for each in "\r\n\0"):
                raise SecretError(f"{where}: {label}: what was filled in has a line break, which a header cannot have")
        auth: dict[str, str | Mapping[str, str]] = {}
        for name, credential in provider.auth.items():
            if isinstance(credential, str):
                auth[name] = values[f"auth.{name}"]
            else:
                auth[name] = {part: values[f"auth.{name}.{part}"] for part in credential}
        filled = replace(
            provider,
            base_url=values["base_url"],
            spec=provider.spec if isinstance(provider.spec, Mapping) else values["spec"],
            headers={name: values[f"headers.{name}"] for name in provider.headers},
            spec_headers={name: values[f"spec_headers.{name}"] for name in provider.spec_headers},
            variables={name: values[f"variables.{name}"] for name in provider.variables},
            auth=auth,
        )
        return filled, found.secrets | _credentials(filled)

    # -- the document ------------------------------------------------------------------------------------------------

    async def _document(self, provider: OpenAPIProvider) -> Document:
        location = "" if isinstance(provider.spec, Mapping) else str(provider.spec)
        if isinstance(provider.spec, Mapping):
            root: JSONDict = copy.deepcopy(dict(provider.spec)) if provider.allow_refs else dict(provider.spec)
        else:
            data = (
                await self._fetch(provider, location) if host_of(location) else await asyncio.to_thread(_file, provider)
            )
            root = await asyncio.to_thread(read_document, data, location)
        others: JSONDict = {}
        if provider.allow_refs:
            fetch = partial(self._fetch, provider)
            limit = provider.max_spec_bytes
            others = await read_references(root, location, provider.allow_refs, fetch, limit)
        root = await asyncio.to_thread(upgraded, root, location, others)
        return Document(root, location=location, others=others)

    async def _fetch(self, provider: OpenAPIProvider, url: str) -> bytes:
        """Return what is at *url*; the headers for the document go to its own host only."""
        client = self._make_client(
            hosts=[host_of(url)],
            allow_private=provider.allow_private,
            timeout=provider.timeout,
            max_response_bytes=provider.max_spec_bytes,
            ca_file=provider.ca_file,
        )
        own = origin_of(url) == origin_of(str(provider.spec))
        headers = [("Accept", "application/json, application/yaml, */*;q=0.5")]
        headers += provider.spec_headers.items() if own else ()
        try:
            response = await client.send(HTTPRequest("GET", url, headers))
        finally:
            await client.aclose()
        if response.status != 200:
            message = f"its document cannot be read: the server answered {response.status}"
            raise BackendUnavailableError(message, retryable=response.status >= 500)
        return response.body

    # -- clients -----------------------------------------------------------------------------------------------------

    def _client(self, provider: OpenAPIProvider, hosts: tuple[str, ...]) -> StreamingClient:
        """Return the client for *hosts*. Earlier ones stay open for the calls that are under way."""
        client = self._clients.get(hosts)
        if client is None:
            client = self._clients[hosts] = self._make_client(
                hosts=hosts,
                allow_private=provider.allow_private,
                timeout=provider.timeout,
                max_response_bytes=provider.max_response_bytes,
                max_connections=provider.max_connections,
                ca_file=provider.ca_file,
            )
        return client


class _Caller:
    """Makes the calls of the operations of one reading."""

    def __init__(
        self,
        client: StreamingClient,
        auth: Auth,
        hidden: frozenset[str],
        scrubber: Scrubber,
        shown: tuple[str, ...] = (),
    ) -> None:
        self._client = client
        self._auth = auth
        self._hidden = hidden
        self._hide = scrubber
        self._scrubbers: dict[frozenset[str], Scrubber] = {}
        self._shown = shown

    async def call(self, operation: Operation, call: ToolCall) -> JSONValue:
        """Send the request of a call and return what the response means."""
        used = Used()
        try:
            response = await self._client.send(await self._request(operation, call, used))
            if response.status == 401 and self._auth.refused(used):  # before anything was done: try a fresh token
                response = await self._client.send(await self._request(operation, call, used))
            return self._answer(operation, used, response)
        except ToolExecError as error:
            raise clean_error(error, self._scrubber(used)) from error

    async def stream(self, operation: Operation, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Send the request of a call and yield the items of its response as they arrive."""
        used = Used()
        item = partial(self._clean, used)
        answer = partial(self._answer, operation, used)
        try:
            for is_last in (False, True):
                async with self._client.open(await self._request(operation, call, used)) as response:
                    if response.status == 401 and not is_last and self._auth.refused(used):
                        continue
                    async with aclosing(events_of(response, SUCCESS, item, answer)) as events:
                        async for event in events:
                            yield event
                return
        except ToolExecError as error:
            raise clean_error(error, self._scrubber(used)) from error

    async def _request(self, operation: Operation, call: ToolCall, used: Used) -> HTTPRequest:
        """Return the request of a call, with its credentials."""
        if not operation.server:
            raise BackendUnavailableError("its server has no host; set base_url", retryable=False)
        key = key_of(call) or (call.identify() if operation.needs_key else "")
        draft = draft_of(operation, call.args or {}, key)
        await self._auth.apply(operation.security, draft, used, call.origin)
        return draft.request()

    def _answer(self, operation: Operation, used: Used, response: HTTPResponse, items: list[Any] | None = None) -> Any:
        answer = reply_of(operation, response, self._scrubber(used), shown=self._shown, items=items)
        answer = self._clean(used, answer)
        return answer if self._auth.is_shared else for_caller_only(answer)

    def _clean(self, used: Used, value: Any) -> Any:
        return clean_answer(value, self._scrubber(used))

    def _scrubber(self, used: Used) -> Scrubber:
        """Return what takes the credentials out of answers, those that the call was made with among them."""
        if not used.secrets:
            return self._hide
        secrets = frozenset(used.secrets)
        found = self._scrubbers.get(secrets)
        if found is None:
            if len(self._scrubbers) >= _MAX_SCRUBBERS:
                self._scrubbers.clear()
            found = self._scrubbers[secrets] = Scrubber(self._hidden | secrets)
        return found


def upgraded(root: JSONDict, location: str = "", others: JSONObject | None = None) -> JSONDict:
    """Return a document as one of OpenAPI 3. Raises ConfigurationError for one that is neither that nor Swagger 2.0."""
    version = root.get("openapi")
    swagger = str(root.get("swagger", ""))
    if not version and swagger.startswith("2"):
        return from_swagger(root, location, others)
    if not str(version or "").startswith("3"):
        said = f"is of version {str(version or swagger)[:40]}" if version or swagger else "does not say its version"
        raise ConfigurationError(f"the document {said}; OpenAPI 3.0, 3.1 and Swagger 2.0 can be read")
    if not isinstance(root.get("paths", {}), dict):
        raise ConfigurationError("the document has no paths: they are not an object")
    return root


def _callers(provider: OpenAPIProvider) -> Mapping[str, Mapping[str, Credential]] | None:
    """Return what is known of the credentials of callers; None where all have the same."""
    given = provider.credentials
    return given if given is None or isinstance(given, Mapping) else ANY_CALLER


def _servers(provider: OpenAPIProvider, document: Document) -> Servers:
    return Servers(
        document.root,
        location=document.location,
        base_url=provider.base_url,
        chosen=provider.server,
        variables=provider.variables,
    )


def _operations(provider: OpenAPIProvider, document: Document, schemes: Schemes, servers: Servers) -> Operations:
    """Return the operations of a document, without those that a document from elsewhere must not have."""
    found = read_operations(
        document,
        namespace=provider.namespace or provider.name,
        servers=servers,
        schemes=schemes,
        selection=provider.selection(),
        max_schema_bytes=provider.max_schema_bytes,
        key_header=provider.idempotency_header,
    )
    own = host_of(document.location)
    if not own or provider.base_url or provider.allow_private:
        return found
    kept: list[Operation] = []
    skipped = dict(found.skipped)
    for each in found.found:
        host = host_of(each.server)
        if host != own and _is_local(host):
            skipped[each.tool.name] = f"its server {host} is one of this machine or network; set base_url to use it"
        else:
            kept.append(each)
    return Operations(found=tuple(kept), skipped=skipped)


def _hosts(provider: OpenAPIProvider, operations: Operations, schemes: Schemes) -> tuple[str, ...]:
    """Return the hosts that may be reached: those of servers, and those that give tokens.

    Raises ConfigurationError where there are none, and for tokens from this network that only a document from elsewhere
    names.
    """
    found = {host_of(each.server) for each in operations.found} - {""}
    if operations.found and not found:
        raise ConfigurationError(
            f"OpenAPI provider {provider.name}: the document names no server with a host; set base_url"
        )
    own = host_of(provider.location)
    for name, url, named in schemes.token_places():
        host = host_of(url)
        if host and own and host != own and not named and not provider.allow_private and _is_local(host):
            raise ConfigurationError(
                f"OpenAPI provider {provider.name}: the tokens of {name} come from {host}, which is of this machine or"
                " network; set token_url to use it"
            )
        found |= {host} - {""}
    return tuple(sorted(found))


def _is_local(host: str) -> bool:
    """Return whether a host is written as an address that is not of the Internet, or as this machine."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
    name = name.strip("[]").lower().rstrip(".")
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(name).is_global
    except ValueError:
        return False


def _file(provider: OpenAPIProvider) -> bytes:
    path = Path(str(provider.spec)).expanduser()
    try:
        if path.stat().st_size > provider.max_spec_bytes:
            raise ConfigurationError(f"{path} has more than {provider.max_spec_bytes} bytes, the most for a document")
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def _credentials(provider: OpenAPIProvider) -> frozenset[str]:
    """Return the values in the settings that are credentials, whether they came from a reference or not."""
    found = secrets_of_fields(provider.headers) | secrets_of_fields(provider.spec_headers)
    for url in (
        provider.base_url,
        str(provider.server),
        "" if isinstance(provider.spec, Mapping) else str(provider.spec),
    ):
        found |= secrets_of_url(url)
    found |= secrets_of_auth(provider.auth)
    return frozenset(found)
