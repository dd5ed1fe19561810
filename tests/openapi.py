"""Small OpenAPI documents for tests, and a client that records what would be sent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests import tiers
from tests.servers import npm_directory

from toolexec.backend.providers.openapi.document import Document
from toolexec.backend.providers.openapi.operations import Operation, Operations, read_operations
from toolexec.backend.providers.openapi.security import Schemes
from toolexec.backend.providers.openapi.servers import Servers
from toolexec.backend.providers.openapi.settings import OpenAPIProvider
from toolexec.backend.providers.openapi.source import OpenAPISource, upgraded
from toolexec.backend.providers.source import Definition
from toolexec.backend.secrets import SecretResolver
from toolexec.model.call import ToolCall
from toolexec.net.http import HTTPRequest, HTTPResponse, OpenResponse

HOST = "https://api.example.com"
Paths = Mapping[str, Mapping[str, Any]]


def api(paths: Paths, *, version: str = "3.0.3", **parts: Any) -> dict[str, Any]:
    """Return a document with these paths."""
    about = {"title": "Pets", "version": "1"}
    return {"openapi": version, "info": about, "servers": [{"url": HOST}], "paths": dict(paths), **parts}


def operations(root: dict[str, Any], **settings: Any) -> Operations:
    """Return the operations of a document."""
    document = Document(upgraded(root))
    servers = Servers(document.root, base_url=settings.pop("base_url", ""))
    schemes = Schemes(document, settings.pop("auth", {}))
    return read_operations(document, namespace="api", servers=servers, schemes=schemes, **settings)


def operation(node: Mapping[str, Any], *, path: str = "/x", method: str = "get", **parts: Any) -> Operation:
    """Return the one operation of a document; what it was skipped for fails the test."""
    found = operations(api({path: {method: node}}, **parts))
    assert not found.skipped, found.skipped
    return found.found[0]


def tools(root: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Return the tools of a document by name."""
    found = operations(root, **settings)
    assert not found.skipped, found.skipped
    return {each.tool.name: each.tool.check_schemas() for each in found.found}


def answer(value: Any = None, *, status: int = 200, **headers: str) -> HTTPResponse:
    """Return a response with JSON, or with bytes as they are; `content_type` is that header."""
    given = {name.replace("_", "-"): text for name, text in headers.items()}
    if isinstance(value, bytes):
        return HTTPResponse(status, given, value, HOST)
    body = b"" if value is None else json.dumps(value).encode()
    return HTTPResponse(status, {"content-type": "application/json", **given}, body, HOST)


class FakeClient:
    """Records requests, and answers them with *reply*: a response, or a function that makes one or raises."""

    def __init__(self, reply: HTTPResponse | Callable[[HTTPRequest], HTTPResponse], **settings: Any) -> None:
        self.reply = reply
        self.settings = settings
        self.requests: list[HTTPRequest] = []
        self.closed = 0

    async def send(self, request: HTTPRequest) -> HTTPResponse:
        """Answer."""
        self.requests.append(request)
        return self.reply if isinstance(self.reply, HTTPResponse) else self.reply(request)

    @asynccontextmanager
    async def open(self, request: HTTPRequest) -> AsyncGenerator[OpenResponse, None]:
        """Answer in pieces of 7 bytes."""
        found = await self.send(request)

        async def pieces() -> AsyncGenerator[bytes, None]:
            for begin in range(0, len(found.body), 7):
                yield found.body[begin : begin + 7]

        yield OpenResponse(found.status, found.headers, found.url, pieces(), found.credentials)

    async def aclose(self) -> None:
        """Count."""
        self.closed += 1


class API:
    """A provider whose requests go to fake clients."""

    def __init__(
        self,
        spec: Any,
        reply: HTTPResponse | Callable[[HTTPRequest], HTTPResponse] | None = None,
        *,
        secrets: SecretResolver | None = None,
        **settings: Any,
    ) -> None:
        self.clients: list[FakeClient] = []
        self._reply = reply if reply is not None else answer({})
        provider = OpenAPIProvider(name="api", spec=spec, **settings)
        self.source = OpenAPISource(provider, secrets=secrets, make_client=self._client)
        self.definition = Definition()

    def _client(self, **settings: Any) -> FakeClient:
        self.clients.append(FakeClient(self._reply, **settings))
        return self.clients[-1]

    @property
    def requests(self) -> list[HTTPRequest]:
        """All requests, in order of the clients."""
        return [request for client in self.clients for request in client.requests]

    async def load(self) -> Definition:
        """Read the document."""
        self.definition = await self.source.load()
        return self.definition

    async def call(self, name: str, **args: Any) -> Any:
        """Call a tool."""
        if not self.definition.tools:
            await self.load()
        found = next(each for each in self.definition.tools if each.tool.name == name)
        return await found.call(ToolCall(found.tool.id, args))


def read(path: Path) -> Operations:
    """Return the operations of a document in a file."""
    from toolexec.backend.providers.openapi.document import read_document

    return operations(read_document(path.read_bytes(), str(path)))


def examples(package: str, pattern: str) -> list[Path]:
    """Return files of an npm package with documents, in order."""
    directory = npm_directory() / "node_modules" / package
    if not directory.is_dir():
        tiers.missing(f"the npm package {package} is not there", "bash .ci/run")
    return sorted(path for path in directory.glob(pattern) if path.is_file())
