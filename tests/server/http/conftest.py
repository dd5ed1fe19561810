"""A server on a real socket, around a small MCP server that is written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

from toolexec.model.origin import Caller
from toolexec.server.auth import AuthSettings
from toolexec.server.http import HttpSettings, serve_http

MODERN = "2026-07-28"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
JSON_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def small_server() -> Server[Any]:
    """Tools: `echo` its text, `who` calls, `wait` so many seconds, `steps` with progress."""

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        names = ("echo", "who", "wait", "steps")
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in names])

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        args = params.arguments or {}
        if params.name == "who":
            caller = ctx.request.scope["toolexec.caller"]
            assert isinstance(caller, Caller)
            text = f"{caller.method}/{caller.tenant}/{caller.id}/{','.join(caller.roles)}"
        elif params.name == "wait":
            await asyncio.sleep(args["seconds"])
            text = "waited"
        elif params.name == "steps":
            for step in range(3):
                await ctx.session.report_progress(step + 1, 3)
            text = "done"
        else:
            text = str(args.get("text", ""))
        return CallToolResult(content=[TextContent(type="text", text=text)])

    return Server("small", on_list_tools=list_tools, on_call_tool=call_tool)


@dataclass
class Running:
    """A server that is up."""

    url: str
    stop: asyncio.Event
    task: asyncio.Task[None]
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return httpx2.URL(self.url).port or 0

    @property
    def root(self) -> str:
        return self.url.removesuffix("/mcp")

    async def request(self, method: str, path: str = "/mcp", **settings: Any) -> httpx2.Response:
        """One request on a connection of its own."""
        # Without encryption there is nothing to verify, and to read the certificates of the system takes 50 ms of CPU.
        async with httpx2.AsyncClient(timeout=20, verify=settings.pop("verify", False)) as client:
            return await client.request(method, self.root + path, **settings)

    async def post(self, message: Any, headers: dict[str, str] | None = None, **settings: Any) -> httpx2.Response:
        """A JSON-RPC message."""
        return await self.request("POST", json=message, headers={**JSON_HEADERS, **(headers or {})}, **settings)

    async def raw(self, data: bytes, *more: bytes, pause: float = 0.0) -> bytes:
        """Send these bytes and return the answer, until the server ends the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in (data, *more):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    @asynccontextmanager
    async def client(
        self, era: str = "auto", elicitation_callback: Any = None, **headers: str
    ) -> AsyncIterator[Client]:
        """The official client."""
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=20, verify=False))
            transport = streamable_http_client(self.url, http_client=http)
            yield await stack.enter_async_context(
                Client(transport, mode=era, elicitation_callback=elicitation_callback)
            )  # type: ignore[arg-type]

    async def end(self) -> None:
        self.stop.set()
        await self.task


Serve = Callable[..., Awaitable[Running]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start servers; they are stopped at the end of the test."""
    started: list[Running] = []

    async def start(
        http: HttpSettings | None = None, auth: AuthSettings | None = None, server: Any = None, **parts: Any
    ) -> Running:
        stop = asyncio.Event()
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        settings = http or HttpSettings(port=0)
        task = asyncio.create_task(
            serve_http(
                server or small_server(),
                settings,
                auth or AuthSettings(),
                ready=address.set_result,
                stop=stop,
                **parts,
            )
        )
        await asyncio.wait([task, address], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        running = Running(address.result(), stop, task)
        started.append(running)
        return running

    yield start
    for running in started:
        await running.end()


@dataclass(frozen=True)
class Certificate:
    """Files with a certificate for 127.0.0.1 and its key."""

    cert: str
    key: str


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate that signs itself."""
    directory = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return Certificate(str(directory / "cert.pem"), str(directory / "key.pem"))


def text(result: Any) -> str:
    """The text of a tool's result."""
    return result.content[0].text
