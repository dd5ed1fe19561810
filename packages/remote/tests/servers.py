"""Servers of sandboxes for tests, in this process or in one of their own, and a client that speaks plain messages."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
from tests.waiting import PATIENCE

from toolexec.remote import RuntimeServerSettings, SigningKey
from toolexec.runtime import Runtime
from toolexec.sandbox import CodeResult, ExecuteRequest, SandboxBackend
from toolexec_remote.endpoints import path_of
from toolexec_remote.incarnation import HERE, WELCOME, is_stated
from toolexec_remote.messages import SUBPROTOCOL, Link, RemoteMessage, decode_remote, encode_remote
from toolexec_remote.server import serve_runtime
from toolexec_remote.signature import Target, sign, signed_headers, timestamp
from toolexec_remote.wire import encode_request, read_response

KEY = SigningKey(id="ann-1", token="token-of-ann-for-tests", secret="secret-of-ann-for-tests", tenant="ann")
OTHER = SigningKey(id="bob-1", token="token-of-bob-for-tests", tenant="bob")


@asynccontextmanager
async def runtime_server(
    directory: Path, *backends: SandboxBackend, stop: asyncio.Event | None = None, **settings: Any
) -> AsyncIterator[str]:
    """Serve *backends* in this process, and give the endpoint. At the end it drains, unless it has ended already."""
    wanted: dict[str, Any] = {"port": 0, "keys": [KEY, OTHER], "drain_grace": 5.0, **settings}
    stop = stop or asyncio.Event()
    endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with Runtime(backends) as runtime:
        serving = asyncio.create_task(
            serve_runtime(
                runtime, RuntimeServerSettings(**wanted), directory / "server", ready=endpoint.set_result, stop=stop
            )
        )
        await asyncio.wait([serving, endpoint], return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        if serving.done():
            serving.result()
        try:
            yield endpoint.result()
        finally:
            stop.set()
            await asyncio.wait_for(serving, PATIENCE)


class ServerProcess:
    """`toolexec runtime serve` in a process of its own, with a configuration in *directory*."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._settings = settings
        self.configure(KEY, OTHER)
        self.process: subprocess.Popen[str] | None = None
        self.endpoint = ""

    def configure(self, *keys: SigningKey) -> None:
        """Write its configuration, with these keys."""
        values = {"state_directory": str(self._directory / "state"), "port": 0, "drain_grace": 20.0, **self._settings}
        lines = ["[sandboxes]", f"use = {json.dumps(values.pop('use', ['wasm']))}"]
        lines += [f"wasm_workers = {json.dumps(values.pop('wasm_workers', 'auto'))}", "[runtime_server]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        for key in keys:
            lines += ["[[runtime_server.keys]]", f'id = "{key.id}"', f'token = "{key.token}"']
            lines += [f'secret = "{key.secret}"', f'tenant = "{key.tenant}"']
        (self._directory / "toolexec.toml").write_text("\n".join(lines))

    def stderr_match(self, pattern: str) -> str:
        """Return what the pattern finds in a line of its stderr, once there is one."""
        assert self.process is not None
        assert self.process.stderr is not None
        said = ""
        for line in self.process.stderr:
            said += line
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(f"the server did not say so, and ended: {said}")

    def start(self) -> str:
        """Start it, at the same port as before, and return its endpoint."""
        port = re.search(r":(\d+)/", self.endpoint)
        command = [sys.executable, "-m", "toolexec", "-c", "toolexec.toml", "runtime", "serve"]
        command += ["--port", port[1]] if port is not None else []
        self.process = subprocess.Popen(
            command, cwd=self._directory, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        self.endpoint = self.stderr_match(r"at (https?://\S+);")
        return self.endpoint

    def kill(self) -> None:
        """Kill it with signal 9."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)

    def terminate(self) -> None:
        """Ask it to end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        """Wait for its end, and return the exit code."""
        assert self.process is not None
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


@contextmanager
def server_process(directory: Path, **settings: Any) -> Iterator[ServerProcess]:
    """Give a server that was started; it is killed at the end."""
    server = ServerProcess(directory, **settings)
    try:
        server.start()
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()


async def identity(endpoint: str, tls: ssl.SSLContext | None = None) -> str:
    """Return which server process answers there, which proves it."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{endpoint}/identity?nonce=ours", ssl=tls if tls is not None else True) as response,
    ):
        said = await response.json()
    assert is_stated(said["incarnation"], said["proof"], HERE, "ours")
    return said["incarnation"]


async def signed_get(url: str, endpoint: str, key: SigningKey = KEY, *, incarnation: str = "") -> tuple[int, bytes]:
    """Return status and body of the response to a signed GET, for the process that answers at *endpoint*."""
    headers = signed_headers(key, Target(incarnation or await identity(endpoint), "GET", path_of(url)))
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status, await response.read()


async def signed_post(
    endpoint: str,
    body: bytes,
    *,
    key: SigningKey = KEY,
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    incarnation: str = "",
) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of the response to a signed POST."""
    more = headers or {}
    run, last = more.get("Idempotency-Key", ""), more.get("Last-Event-ID", "")
    target = Target(incarnation or await identity(endpoint, tls), "POST", path_of(endpoint), run, last)
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            endpoint,
            data=body,
            headers={"Content-Type": "application/json", **signed_headers(key, target, body), **more},
            ssl=tls if tls is not None else True,
            timeout=aiohttp.ClientTimeout(total=PATIENCE),
        ) as response,
    ):
        return response.status, dict(response.headers), await response.read()


class Client:
    """One client of the duplex route, which sends and receives single messages.

    `connect` opens its connection, or a new one. Each run has a `Link`; `expect` gives the next message of some type.
    """

    def __init__(self, endpoint: str, key: SigningKey = KEY, name: str = "c" * 32, process: int = 0) -> None:
        self.endpoint = endpoint
        self._process = {"X-Toolruntime-Process": str(process)} if process else {}
        self.welcome: dict[str, Any] = {}
        self.links: dict[str, Link] = {}
        self.incarnation = ""
        self._key = key
        self._name = name
        self._session: aiohttp.ClientSession | None = None
        self._socket: Any = None
        self._seen: list[RemoteMessage] = []

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.lose()

    async def connect(self) -> None:
        """Open a connection, and wait for the welcome."""
        self._session = aiohttp.ClientSession()
        headers = {"Authorization": f"Bearer {self._key.token}", "X-Toolruntime-Client": self._name, **self._process}
        self._socket = await self._session.ws_connect(
            f"{self.endpoint}/connect", headers=headers, protocols=(SUBPROTOCOL,), max_msg_size=0
        )
        self._seen = []
        challenge = (await self.expect("challenge")).fields
        self.incarnation = str(challenge["incarnation"])
        target = Target(self.incarnation, "GET", path_of(f"{self.endpoint}/connect"), str(challenge["nonce"]))
        stamp, nonce = timestamp(), "n" * 32
        signature = sign(self._key.signing_secret, stamp, target, nonce.encode())
        await self.put(RemoteMessage("hello", fields={"nonce": nonce, "timestamp": stamp, "signature": signature}))
        self.welcome = dict((await self.expect("welcome")).fields)
        assert is_stated(self.incarnation, self.welcome["proof"], WELCOME, str(challenge["nonce"]), nonce)

    async def resume(self, run: str, incarnation: str = "") -> None:
        """Ask what is the matter with a run, of this server process or of another one."""
        received = self.links[run].received if run in self.links else 0
        fields = {"incarnation": incarnation or self.incarnation}
        await self.put(RemoteMessage("resume", run, fields, ack=received))

    async def lose(self) -> None:
        """Drop the connection without a word."""
        if self._session is not None:
            if self._socket is not None and self._socket._conn.transport is not None:
                self._socket._conn.transport.abort()
            await self._session.close()
            self._session = self._socket = None

    async def execute(
        self, run: str, code: str, *, go: bool = True, session: str = "", signature: str = "", **request: Any
    ) -> None:
        """Send a request to run *code*."""
        await self.begin(
            "execute", run, encode_request(ExecuteRequest(code=code, **request), run=run), go, session, signature
        )

    async def begin(
        self, kind: str, run: str, body: bytes, go: bool = True, session: str = "", signature: str = ""
    ) -> None:
        """Send `execute` or `open` with this body."""
        stamp = timestamp()
        signed = signature or sign(self._key.signing_secret, stamp, Target(self.incarnation, kind, session, run), body)
        fields = {"timestamp": stamp, "signature": signed, "go": go}
        link = self.links[run] = Link(run)
        await self.put(link.send(kind, {**fields, **({"session": session} if session else {})}, body))

    async def send(self, run: str, kind: str, body: bytes = b"", **fields: Any) -> None:
        """Send the next message of a run."""
        await self.put(self.links[run].send(kind, fields, body))

    async def put(self, message: RemoteMessage) -> None:
        """Send a message as it is."""
        await self._socket.send_bytes(encode_remote(message))

    async def expect(self, *kinds: str, run: str = "") -> RemoteMessage:
        """Return the next message of one of these types, of this run if one is named; the others are kept for later."""
        for number, message in enumerate(self._seen):
            if message.type in kinds and (not run or message.run == run):
                return self._seen.pop(number)
        while True:
            try:
                received = await asyncio.wait_for(self._socket.receive(), PATIENCE)
            except TimeoutError:
                seen = [(message.type, message.run, message.body[:500]) for message in self._seen]
                raise AssertionError(f"no {kinds} came, but {seen}") from None
            assert received.type is aiohttp.WSMsgType.BINARY, f"the connection ended: {received}"
            message = decode_remote(received.data)
            link = self.links.get(message.run)
            if link is not None and not link.receive(message):
                continue
            if message.type in kinds and (not run or message.run == run):
                return message
            self._seen.append(message)

    async def result(self, run: str) -> CodeResult:
        """Return the result of a run, and acknowledge it; raises the error of one that was refused."""
        message = await self.expect("result", "refused", run=run)
        await self.put(self.links[run].ack())
        return read_response(message.body)

    async def answer(self, run: str, value: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Answer the next request of a run with what *value* makes of it, and return it."""
        while True:
            frame = json.loads((await self.expect("frame", run=run)).body)
            for message in frame if isinstance(frame, list) else [frame]:
                if message["type"] != "print":
                    payload = {"structured": value(message)}
                    answer = {"type": "response", "id": message["id"], "payload": payload}
                    await self.send(run, "frame", json.dumps(answer, separators=(",", ":")).encode())
                    return message
