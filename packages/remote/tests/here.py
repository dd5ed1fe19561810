"""A remote runtime in the process of the test, and a wire to it that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from packages.remote.tests.processes import KEY

from toolexec.remote import RemoteSettings, RuntimeServerSettings
from toolexec.runtime import Runtime, wasm
from toolexec.sandbox import SandboxBackend
from toolexec_remote.backend import RemoteBackend
from toolexec_remote.discovery import Discovery
from toolexec_remote.endpoints import Endpoints
from toolexec_remote.server import serve_runtime
from toolexec_remote.sources import LookUp


@asynccontextmanager
async def serving(directory: Path, backend: SandboxBackend | None = None, **fields: Any) -> AsyncGenerator[str]:
    """Serve a sandbox (default: the embedded one); give the endpoint."""
    stop = asyncio.Event()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with Runtime([backend or wasm.WasmBackend()], deny_unsafe=()) as runtime:
        settings = RuntimeServerSettings(**{"port": 0, "keys": [KEY], "gateway_private": True, **fields})
        task = asyncio.create_task(serve_runtime(runtime, settings, directory, ready=address.set_result, stop=stop))
        await asyncio.wait({task, address}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if task.done():
                task.result()
            yield await address
        finally:
            stop.set()
            await task


@asynccontextmanager
async def remote_to(*endpoints: str, **fields: Any) -> AsyncGenerator[RemoteBackend]:
    """Give a backend that uses these endpoints."""
    own: dict[str, Any] = {"key_id": KEY.id, "token": KEY.token, "signing_key": KEY.secret}
    backend = RemoteBackend(RemoteSettings(endpoints=endpoints, **{**own, **fields}))
    try:
        yield backend
    finally:
        await backend.aclose()


def use_names(backend: RemoteBackend, addresses_of: LookUp) -> None:
    """Have a backend that was not used yet look up names with this."""
    discovery = Discovery(backend.settings, addresses_of)
    backend._endpoints = Endpoints(backend.settings, discovery)
    if backend._post is not None:
        backend._post.discovery = discovery


class Wire:
    """Carries connections to an endpoint; `cut` ends all of them, with `closed` it takes no new ones, and with `is_mute`
    nothing comes back. `lead_to` has the next ones go elsewhere."""

    def __init__(self, endpoint: str) -> None:
        self._path = urlsplit(endpoint).path
        self.lead_to(endpoint)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.closed = False
        self.is_mute = False
        self.accepted = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def endpoint(self) -> str:
        """The endpoint as it is over this wire."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{self._path}"

    def lead_to(self, endpoint: str) -> None:
        """Have new connections go to this endpoint."""
        parts = urlsplit(endpoint)
        self._target = parts.hostname or "", parts.port or 0

    def cut(self) -> None:
        """End all connections, without a word of either side."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closed:
            writer.transport.abort()
            return
        self.accepted += 1
        there, back = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back}
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._carry(source, target, is_back=source is there))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_back: bool) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                if is_back and self.is_mute:
                    continue
                target.write(data)
                await target.drain()
        self._writers.discard(target)
        target.close()
