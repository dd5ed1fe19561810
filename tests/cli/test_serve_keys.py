"""A key that is taken out of the file of a running server is out, by watching and at SIGHUP."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from toolexec.server.auth.credentials import hash_key

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


def write(file: Path, names: Sequence[str]) -> None:
    entries = [f'[[auth.api_keys]]\nid = "{name}"\nsha256 = "{hash_key(name)}"\n' for name in names]
    new = file.with_suffix(".new")
    new.write_text("".join(entries))
    new.replace(file)


class Server:
    """A server process over HTTP."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    async def said(self, words: str) -> str:
        """Wait for a line on stderr."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            while line := (await self.process.stderr.readline()).decode():
                if words in line:
                    return line
        raise AssertionError(f"the server ended without {words!r}")

    async def open(self, name: str) -> httpx2.Response:
        headers = {"authorization": f"Bearer {name}", "accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(timeout=20, verify=False) as client:
            return await client.post(self.url, json=INITIALIZE, headers=headers)


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[Server, Path]]:
    file, tools = directory / "toolexec.toml", directory / "tools.py"
    write(file, ["ann", "bob"])
    tools.write_text(
        'from toolexec import tool\n\n\n@tool("math:add")\ndef add(a: int, b: int) -> int:\n    """Add."""\n    return a + b\n'
    )
    command = Path(sys.executable).with_name("toolexec")
    options = ["serve", "-t", "http", "--port", "0", "--log-level", "info", "-c", str(file), "-c", str(tools)]
    process = await asyncio.create_subprocess_exec(command, *options, stderr=asyncio.subprocess.PIPE)
    server = Server(process, "")
    try:
        line = await server.said(" at http://")
        server.url = line.partition(" at ")[2].split()[0]
        await server.said("nothing has changed")
        yield server, file
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_a_key_that_is_taken_out_is_refused_without_a_restart(tmp_path: Path) -> None:
    """Its streams end, and the others' keys still hold."""
    async with serving(tmp_path) as (server, file), httpx2.AsyncClient(timeout=30, verify=False) as client:
        opened = await server.open("ann")
        headers = {
            "authorization": "Bearer ann",
            "mcp-session-id": opened.headers["mcp-session-id"],
            "mcp-protocol-version": "2025-11-25",
            "accept": "text/event-stream",
        }
        async with client.stream("GET", server.url, headers=headers) as stream:
            assert stream.status_code == 200
            write(file, ["bob", "eve"])
            assert "ann" in await server.said("API keys that are out or changed")
            async for _ in stream.aiter_bytes():
                pass
        assert [(await server.open(name)).status_code for name in ("ann", "bob", "eve")] == [401, 200, 200]


@pytest.mark.full
async def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    """Neither broken text nor a missing file nor a bad key takes any key out, at SIGHUP either; the log says why."""
    async with serving(tmp_path) as (server, file):
        file.write_text("[[auth.api_keys]\n")
        assert "toolexec.toml" in await server.said("were not reloaded")
        async with httpx2.AsyncClient(timeout=20, verify=False) as client:
            url = server.url.replace("/mcp", "/health")
            checks = (await client.get(url, headers={"authorization": "Bearer ann"})).json()["checks"]
        [settings] = [check for check in checks if check["name"] == "settings"]
        assert settings["status"] == "failed"
        assert "toolexec.toml" in settings["message"]
        server.process.send_signal(signal.SIGHUP)
        await server.said("were not reloaded")
        file.unlink()
        server.process.send_signal(signal.SIGHUP)
        await server.said("were not reloaded")
        file.write_text('[[auth.api_keys]]\nid = "eve"\nsha256 = "short"\n')
        server.process.send_signal(signal.SIGHUP)
        assert "were not reloaded" in await server.said("64 hexadecimal digits")
        assert [(await server.open(name)).status_code for name in ("ann", "bob")] == [200, 200]


@pytest.mark.full
async def test_without_any_key_left_every_caller_is_refused(tmp_path: Path) -> None:
    """A server whose last key is removed still requires a key."""
    async with serving(tmp_path) as (server, file):
        write(file, [])
        server.process.send_signal(signal.SIGHUP)
        await server.said("out or changed: ann, bob")
        assert (await server.open("ann")).status_code == 401
