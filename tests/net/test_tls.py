"""HTTPS: certificates are always verified, and a redirect never leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from toolexec.errors import BackendUnavailableError, RemoteToolError
from toolexec.net import HTTPClient, HTTPRequest
from toolexec.runtime.egress import Authority

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def here(host: str, port: int) -> Sequence[str]:
    """Every name is this machine."""
    return ["127.0.0.1"]


@asynccontextmanager
async def secure(tmp_path: Path, answer: bytes = OK) -> AsyncIterator[tuple[int, list[bytes], Path]]:
    """Serve *answer* as api.test; gives the port, the heads of requests, and the file of the authority."""
    authority = Authority()
    heads: list[bytes] = []
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(authority.ca_pem)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(answer)
        writer.close()

    context = await authority.context("api.test")
    context.sni_callback = None  # the client is to notice what is wrong
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], heads, ca_file
    finally:
        server.close()


async def test_trusted_authority(tmp_path: Path) -> None:
    """A certificate of `ca_file` is trusted, for the name that it was made for; the connection is used again."""
    async with secure(tmp_path) as (port, heads, ca_file):
        client = HTTPClient(look_up=here, allow_private=True, ca_file=ca_file)
        try:
            for _ in range(2):
                assert (await client.send(HTTPRequest("GET", f"https://api.test:{port}/x"))).body == b"ok"
            with pytest.raises(BackendUnavailableError, match="certificate"):
                await client.send(HTTPRequest("GET", f"https://other.test:{port}/x"))
        finally:
            await client.aclose()
    assert len(heads) == 2


async def test_unknown_authority(tmp_path: Path) -> None:
    """Nothing is sent to a host whose certificate is not trusted, and trying again does not help."""
    async with secure(tmp_path) as (port, heads, _):
        client = HTTPClient(look_up=here, allow_private=True)
        try:
            with pytest.raises(BackendUnavailableError, match="certificate") as failure:
                await client.send(HTTPRequest("POST", f"https://api.test:{port}/x", (), b"secret"))
        finally:
            await client.aclose()
    assert failure.value.outcome == "not_sent"
    assert not failure.value.retryable
    assert heads == []


async def test_redirect_out_of_https(tmp_path: Path) -> None:
    """A redirect to http is not followed, even to the same host."""
    answer = b"HTTP/1.1 302 Found\r\nLocation: http://api.test/x\r\nContent-Length: 0\r\n\r\n"
    async with secure(tmp_path, answer) as (port, heads, ca_file):
        client = HTTPClient(hosts=[f"api.test:{port}", "api.test"], look_up=here, allow_private=True, ca_file=ca_file)
        try:
            with pytest.raises(RemoteToolError, match="from https to http"):
                await client.send(HTTPRequest("GET", f"https://api.test:{port}/x"))
        finally:
            await client.aclose()
    assert len(heads) == 1
