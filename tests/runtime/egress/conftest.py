"""Real servers on this machine under names of their own, and a bridge from a port to the proxy."""

from __future__ import annotations

import asyncio
import http.server
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toolexec.process.stream import PipeStream
from toolexec.runtime.egress import Authority, Egress, EgressProxy, EgressRecord, Secret

TOKEN = "s3cr3t-Value/With+Signs=and-more"


class Handler(http.server.BaseHTTPRequestHandler):
    """Says what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append(self)  # type: ignore[attr-defined]
        self.got = self._body()
        special = self.server.special  # type: ignore[attr-defined]
        if special is not None and special(self):
            return
        said = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": self.got.decode("utf-8", "replace"),
        }
        self.reply(json.dumps(said).encode(), {"X-Echo": self.headers.get("Authorization", "")})

    do_POST = do_PUT = do_HEAD = do_OPTIONS = do_GET

    def reply(self, body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts: list[bytes] = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    special: Callable[[Handler], bool] | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[Handler] = []
        self.greeted: list[str | None] = []

    @property
    def port(self) -> int:
        return self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@pytest.fixture
def running() -> Iterator[Callable[[Server], Server]]:
    servers: list[tuple[Server, threading.Thread]] = []

    def start(server: Server) -> Server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return server

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def plain(running: Callable[[Server], Server]) -> Server:
    """A server without TLS."""
    return running(Server())


@dataclass
class World:
    """An authority of the wide world, which the proxy trusts and code does not."""

    authority: Authority = field(default_factory=Authority)

    def trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.ca_pem.decode())
        context.set_alpn_protocols(["http/1.1"])
        return context


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def secure(running: Callable[[Server], Server], world: World) -> Server:
    """A server that is api.test."""
    server = Server()
    context = await world.authority.context("api.test")
    context.sni_callback = None  # whatever it is called, it shows the same certificate
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return running(server)


@dataclass
class Bridge:
    """A proxy at a port."""

    port: int
    proxy: EgressProxy
    records: list[EgressRecord]
    ca_path: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def say(self, data: bytes, *, hang_up: bool = True) -> bytes:
        """Send *data* as it is, and get all that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            await writer.drain()
            if hang_up:
                writer.write_eof()
            return await reader.read()
        finally:
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                pass


@pytest.fixture
def bridged(world: World, tmp_path: Path) -> Callable[..., Any]:
    """Starts a proxy for a policy: `async with bridged(policy) as bridge`. All names are of this machine."""

    @asynccontextmanager
    async def start(
        policy: Egress,
        *,
        secrets: dict[str, str] | None = None,
        find: Callable[[str, int], Any] | None = None,
        **more: Any,
    ) -> AsyncIterator[Bridge]:
        records: list[EgressRecord] = []
        asked: list[str] = []

        async def resolve(ref: str) -> str:
            asked.append(ref)
            return (secrets or {"env:TOKEN": TOKEN})[ref]

        async def here(host: str, port: int) -> Sequence[str]:
            return ["127.0.0.1"]

        more = {"trust": world.trust(), "on_request": records.append} | more
        proxy = EgressProxy(policy, resolve, find=find or here, **more)
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await proxy.serve(PipeStream(reader, writer))
            except asyncio.CancelledError:
                writer.close()
            finally:
                tasks.discard(task)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ca = tmp_path / "ca.pem"
        ca.write_bytes(proxy.ca_pem)
        try:
            yield Bridge(server.sockets[0].getsockname()[1], proxy, records, ca)
        finally:
            server.close()
            for task in [*tasks]:
                task.cancel()
            if tasks:
                await asyncio.wait([*tasks])
            await server.wait_closed()

    return start


def policy(*hosts: str, token_for: tuple[str, ...] = (), where: tuple[Any, ...] = ("headers",), **more: Any) -> Egress:
    """Of hosts on this machine; with a secret for some of them."""
    secrets = (
        {"PLACEHOLDER_TOKEN": Secret(ref="env:TOKEN", hosts=token_for, where=where, plain_http=more.pop("http", False))}
        if token_for
        else {}
    )
    return Egress(hosts=hosts, secrets=secrets, **({"allow_private": True} | more))
