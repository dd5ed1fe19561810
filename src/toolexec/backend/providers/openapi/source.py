"""A source of tools that are operations of an HTTP API, read from its OpenAPI document."""

from __future__ import annotations

import asyncio
import copy
import ipaddress
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

from toolexec.backend.providers.cleaning import clean_error
from toolexec.backend.providers.logins import login_words, made_logins
from toolexec.backend.providers.openapi.auth import Auth, secrets_of_auth
from toolexec.backend.providers.openapi.calling import Caller, StreamingClient
from toolexec.backend.providers.openapi.document import Document, mapping_of, read_document, string_of
from toolexec.backend.providers.openapi.operations import Operation, Operations, read_operations
from toolexec.backend.providers.openapi.origins import NamedOrigins, destination_of, named_origins
from toolexec.backend.providers.openapi.references import read_references
from toolexec.backend.providers.openapi.security import ANY_CALLER, Credential, Schemes
from toolexec.backend.providers.openapi.servers import Servers, host_of
from toolexec.backend.providers.openapi.settings import OpenAPIProvider
from toolexec.backend.providers.openapi.swagger import from_swagger
from toolexec.backend.providers.openapi.tokens import Tokens
from toolexec.backend.providers.source import Definition, ProvidedTool
from toolexec.backend.providers.transport import client_settings, transport_secrets, with_transport_strings
from toolexec.backend.secrets import Scrubber, SecretResolver
from toolexec.backend.secrets.callers import CallerCredentials
from toolexec.backend.secrets.credentials import secrets_of_fields, secrets_of_url
from toolexec.errors import BackendUnavailableError, ConfigurationError, SecretError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.net.hosts import origin_of
from toolexec.net.http import HTTPClient, HTTPRequest, HTTPResponse
from toolexec.net.oauth.callers import CallerLogins

logger: logging.Logger = logging.getLogger(__name__)
_LOCAL_NAMES: Final = ("localhost", "localhost.localdomain")
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
        self._clients: dict[tuple[object, ...], StreamingClient] = {}
        self._info: JSONDict = {}
        self._named: NamedOrigins | None = None
        self._tokens = Tokens()
        self._version = _Version()
        self._known: _Known | None = None
        self._logins: CallerLogins | None = None

    def info(self) -> JSONObject:
        """Return where the document is, what it is called, the hosts that are reached and the login that they are
        called with; see `Source.info`."""
        return {
            "spec": self._provider.location or "(given as data)",
            **self._info,
            **login_words(self._logins),
        }

    async def find_logins(self) -> CallerLogins | None:
        """Return the logins that calls are made with; see `LoginSource`."""
        if self._known is None:
            await self.load()
        return self._logins

    async def load(self) -> Definition:
        """Read the document; see `Source.load`."""
        provider, hidden, missing = await asyncio.to_thread(self._resolved)
        scrubber = Scrubber(hidden)
        try:
            document = await self._document(provider)
            if document is None and self._known is not None:
                return self._known.definition
            assert document is not None
            plan = await asyncio.to_thread(_plan, provider, document, missing)
        except ToolExecError as error:
            raise clean_error(error, scrubber, f"OpenAPI provider {provider.name}: ") from error
        about = mapping_of(document.root.get("info"))
        self._info = {"title": string_of(about.get("title"), 200), "version": string_of(about.get("version"), 60)}
        self._info["hosts"] = list(plan.hosts)
        schemes, found = plan.schemes, plan.operations.found
        lacking = {name: how for each in found for name, how in schemes.unusable(each.security).items()}
        if lacking:
            self._info["missing_credentials"] = lacking
            logger.warning("OpenAPI provider %s: no credentials: %s", provider.name, "; ".join(lacking.values()))
        if self._named is None:
            self._named = named_origins(provider, document, plan.servers, schemes)
        calls, tokens = self._named.calls, self._named.tokens
        try:
            self._logins = self._logins_of(provider, plan, self._named)
        except ToolExecError as error:
            raise clean_error(error, scrubber, f"OpenAPI provider {provider.name}: ") from error
        given = {origin_of(url) for _, url, is_given in schemes.token_places() if is_given}
        client = self._client(provider, plan.hosts, calls.allowed | tokens.allowed | given)
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
            logins=self._logins,
        )
        caller = Caller(client, auth, hidden, scrubber, tuple(provider.response_headers))
        tools = await asyncio.to_thread(_provided, plan, caller)
        definition = Definition(tools=tools, skipped=plan.operations.skipped)
        self._known = _Known(provider, self._version, definition)
        return definition

    async def aclose(self) -> None:
        """Close the connections; see `Source.aclose`."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()

    def _logins_of(self, provider: OpenAPIProvider, plan: _Plan, named: NamedOrigins) -> CallerLogins | None:
        """Return the logins to the server of the document; None for a provider without one. Where the settings do not
        say where to log in, the document does, if it may name these places.

        Raises BackendUnavailableError where it may not, and ConfigurationError where there is no server.
        """
        if provider.login is None:
            return None
        name, settings = provider.login
        if settings.client_id and not (settings.issuer or settings.token_url):
            places = plan.schemes.login_places(name, settings.flow)
            for url in places.values():
                named.tokens.check(url, f"the login of auth.{name}")
            settings = replace(settings, **places)
        url = provider.base_url or plan.servers.own_url()
        if not origin_of(url):
            raise ConfigurationError(f"auth.{name}: a login is to a server with a host; set base_url")
        client = {"ca_file": provider.ca_file, **client_settings(provider, named.calls.allowed | named.tokens.allowed)}
        return made_logins(self._logins, provider.name, url, settings, client)

    def _resolved(self) -> tuple[OpenAPIProvider, frozenset[str], Mapping[str, str]]:
        """Return the provider with its references to secrets filled in, all values that stay secret, and why there is
        no credential for a scheme, by its name: its references stay as they are, for operations that are left out."""
        provider = self._provider
        hidden = _credentials(provider)
        if self._secrets is None:
            return provider, hidden, {}
        where = f"OpenAPI provider {provider.name}"
        given = provider.strings()
        shared = {label: text for label, text in given.items() if not label.startswith("auth.")}
        found = self._secrets.expand(shared, where, public={"base_url", "spec"})
        values, secrets = dict(found.strings), set(found.secrets)
        auth: dict[str, Credential] = {}
        missing: dict[str, str] = {}
        for name, credential in provider.auth.items():
            try:
                own = self._secrets.expand(provider.auth_strings(name), where)
            except SecretError as error:
                missing[name] = error.message.removeprefix(f"{where}: ")
                auth[name] = credential
                continue
            values |= own.strings
            secrets |= own.secrets
            auth[name] = provider.with_auth_strings(name, own.strings)
        keys = {f"auth.{provider.login[0]}.private_key"} if provider.login is not None else set[str]()
        for label in values.keys() - keys:
            value = values[label]
            if label.startswith(("headers.", "spec_headers.", "auth.")) and any(each in value for each in "\r\n\0"):
                raise SecretError(f"{where}: {label}: what was filled in has a line break, which a header cannot have")
        filled = replace(
            provider,
            base_url=values["base_url"],
            spec=provider.spec if isinstance(provider.spec, Mapping) else values["spec"],
            headers={name: values[f"headers.{name}"] for name in provider.headers},
            spec_headers={name: values[f"spec_headers.{name}"] for name in provider.spec_headers},
            variables={name: values[f"variables.{name}"] for name in provider.variables},
            auth=auth,
            **with_transport_strings(provider, values),
        )
        return filled, frozenset(secrets) | _credentials(filled), missing

    # -- the document ------------------------------------------------------------------------------------------------

    async def _document(self, provider: OpenAPIProvider) -> Document | None:
        """Return the document; None for the same bytes, with the same settings, as when it was read before."""
        location, others = "", JSONDict()
        if isinstance(provider.spec, Mapping):
            self._version = _Version()
            root: JSONDict = dict(provider.spec)
            if provider.allow_refs:
                root = await asyncio.to_thread(copy.deepcopy, root)
        else:
            location = str(provider.spec)
            data = await self._new_bytes(provider, location)
            if data is None:
                return None
            root = await asyncio.to_thread(read_document, data, location)
        if provider.allow_refs:
            fetch = partial(self._fetch, provider)
            others = await read_references(root, location, provider.allow_refs, fetch, provider.max_spec_bytes)
        root = await asyncio.to_thread(upgraded, root, location, others)
        return Document(root, location=location, others=others)

    async def _new_bytes(self, provider: OpenAPIProvider, location: str) -> bytes | None:
        """Return the bytes of the document; None where they are those that were read before. What it refers to may have
        changed nevertheless: with `allow_refs` it is read again each time."""
        known = self._known
        last = known.version if known is not None and known.provider == provider and not provider.allow_refs else None
        if host_of(location):
            response = await self._get(provider, location, last.conditions() if last is not None else ())
            if response.status == 304 and last is not None:
                return None
            data, headers = _body_of(response), response.headers
        else:
            data, headers = await asyncio.to_thread(_file, provider), dict[str, str]()
        digest = await asyncio.to_thread(lambda: sha256(data).digest())
        self._version = _Version(digest, headers.get("etag", ""), headers.get("last-modified", ""))
        if last is None or last.digest != digest:
            return data
        assert known is not None
        self._known = replace(known, version=self._version)
        return None

    async def _fetch(self, provider: OpenAPIProvider, url: str) -> bytes:
        """Return what is at *url*."""
        return _body_of(await self._get(provider, url))

    async def _get(
        self, provider: OpenAPIProvider, url: str, conditions: Iterable[tuple[str, str]] = ()
    ) -> HTTPResponse:
        """Return the response at *url*; the headers for the document go to its own host only."""
        own = origin_of(url) == origin_of(str(provider.spec))
        client = self._make_client(
            hosts=[host_of(url)],
            allow_private=provider.allow_private,
            timeout=provider.timeout,
            max_response_bytes=provider.max_spec_bytes,
            ca_file=provider.ca_file,
            **client_settings(provider, {origin_of(url)} if own else ()),
        )
        headers = [("Accept", "application/json, application/yaml, */*;q=0.5"), *conditions]
        headers += provider.spec_headers.items() if own else ()
        try:
            return await client.send(HTTPRequest("GET", url, headers))
        finally:
            await client.aclose()

    # -- clients -----------------------------------------------------------------------------------------------------

    def _client(self, provider: OpenAPIProvider, hosts: tuple[str, ...], origins: frozenset[str]) -> StreamingClient:
        """Return the client for *hosts*, which shows a certificate to *origins*. Earlier ones stay open for the calls
        that are under way."""
        settings = client_settings(provider, origins)
        key = (hosts, *settings.values())
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = self._make_client(
                hosts=hosts,
                allow_private=provider.allow_private,
                timeout=provider.timeout,
                max_response_bytes=provider.max_response_bytes,
                max_connections=provider.max_connections,
                ca_file=provider.ca_file,
                **settings,
            )
        return client


@dataclass(frozen=True, slots=True)
class _Version:
    """Which bytes a document had, and what its server calls them; all empty for one that is given as data."""

    digest: bytes = b""
    etag: str = ""
    modified: str = ""

    def conditions(self) -> list[tuple[str, str]]:
        """Return the headers that ask for the document only if it has changed."""
        named = (("If-None-Match", self.etag), ("If-Modified-Since", self.modified))
        return [(name, value) for name, value in named if value and value.isascii() and value.isprintable()]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the last reading made, and of what."""

    provider: OpenAPIProvider
    version: _Version
    definition: Definition


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a document and the settings say, before any client is made."""

    schemes: Schemes
    servers: Servers
    operations: Operations
    hosts: tuple[str, ...]


def _plan(provider: OpenAPIProvider, document: Document, missing: Mapping[str, str]) -> _Plan:
    schemes = _schemes(provider, document)
    servers = _servers(provider, document)
    operations = _callable(_operations(provider, document, schemes, servers), schemes, missing)
    return _Plan(schemes, servers, operations, _hosts(provider, operations, schemes))


def _callable(operations: Operations, schemes: Schemes, missing: Mapping[str, str]) -> Operations:
    """Return the operations without those that nothing can be sent for: those of no host, where others have one, and
    those whose credential is *missing*. Raises SecretError where that is so of all."""
    skipped = dict(operations.skipped)
    some_have_hosts = any(each.server for each in operations.found)
    kept: list[Operation] = []
    for each in operations.found:
        chosen = next((names for names in each.security if names and schemes.auth.keys() >= set(names)), ())
        reasons = [missing[name] for name in chosen if name in missing]
        if some_have_hosts and not each.server:
            reasons.append("its server has no host; set base_url")
        if reasons:
            skipped[each.tool.name] = f"{each.route}: {'; '.join(reasons)}"
        else:
            kept.append(each)
    if missing and not kept:
        raise SecretError("; ".join(missing.values()))
    return Operations(found=tuple(kept), skipped=skipped)


def _provided(plan: _Plan, caller: Caller) -> list[ProvidedTool]:
    return [
        ProvidedTool(
            each.tool,
            partial(caller.call, each),
            partial(caller.stream, each) if each.streams else None,
            destination_of(each, plan.schemes),
        )
        for each in plan.operations.found
    ]


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


def _schemes(provider: OpenAPIProvider, document: Document) -> Schemes:
    """Return the security schemes, with what is known of the credentials of callers where these have their own."""
    given = provider.credentials
    callers = given if given is None or isinstance(given, Mapping) else ANY_CALLER
    return Schemes(document, provider.auth, provider.headers, callers, certificate=bool(provider.cert_file))


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


def _body_of(response: HTTPResponse) -> bytes:
    """Return a document that was asked for. Raises BackendUnavailableError where something else came."""
    if response.status != 200:
        message = f"its document cannot be read: the server answered {response.status}"
        raise BackendUnavailableError(message, retryable=response.status >= 500)
    return response.body


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
    found = transport_secrets(provider) | secrets_of_fields(provider.headers) | secrets_of_fields(provider.spec_headers)
    for url in (
        provider.base_url,
        str(provider.server),
        "" if isinstance(provider.spec, Mapping) else str(provider.spec),
    ):
        found |= secrets_of_url(url)
    found |= secrets_of_auth(provider.auth)
    return frozenset(found)
