"""Proxies: what goes through them, with which credentials, and that hosts and addresses are judged all the same."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.net.proxy_server import ProxyServer, proxy_server

from toolexec.errors import BackendUnavailableError, ConfigurationError, RemoteToolError, ToolExecError
from toolexec.net import HTTPClient, HTTPRequest, HTTPResponse
from toolexec.net.proxy import read_proxies, read_proxy
from toolexec.runtime.egress import Authority

pytestmark = pytest.mark.anyio

PUBLIC = "93.184.216.34"


async def public(host: str, port: int) -> Sequence[str]:
    """Every name has a public address; the proxies of these tests connect to loopback."""
    return [PUBLIC]


async def private(host: str, port: int) -> Sequence[str]:
    """Every name has a private address."""
    return ["10.0.0.8"]


async def unknown(host: str, port: int) -> Sequence[str]:
    """No name has an address here."""
    raise OSError("not known")


@asynccontextmanager
async def origin(authority: Authority | None = None) -> AsyncGenerator[tuple[int, list[str]]]:
    """Serve, over TLS with an *authority*; gives the port and the heads of requests."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    context = await authority.context("api.test") if authority is not None else None
    if context is not None:
        context.sni_callback = None  # the client is to notice what is wrong
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()


async def get(url: str, **settings: Any) -> HTTPResponse:
    """Make one request with a client of its own."""
    given: Any = {"look_up": public, **settings}
    client = HTTPClient(**given)
    try:
        return await client.send(HTTPRequest("GET", url, [("Authorization", "Bearer it")]))
    finally:
        await client.aclose()


@pytest.fixture
async def proxy() -> AsyncGenerator[ProxyServer]:
    """Run a proxy."""
    async with proxy_server() as found:
        yield found


async def test_plain_http_is_forwarded(proxy: ProxyServer) -> None:
    """The proxy gets the whole URL, and the credentials that are for it; the host gets those that are for the host."""
    proxy.expects = f"Basic {base64.b64encode(b'me:p@ss w/rd').decode()}"
    async with origin() as (port, heads):
        response = await get(f"http://api.test:{port}/x?y=1", proxy=proxy.url, proxy_auth=("me", "p@ss w/rd"))
    assert response.body == b"ok"
    assert proxy.asked == [f"GET http://api.test:{port}/x?y=1 HTTP/1.1"]
    assert "Authorization: Bearer it" in heads[0]
    assert "proxy-authorization" not in heads[0].lower()


@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
async def test_https_is_tunnelled(tmp_path: Path, *, is_secure: bool) -> None:
    """The proxy learns the host, and nothing else; the certificate is that of the host. It may be over TLS itself."""
    authority = Authority()
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(authority.ca_pem)
    context = await authority.context("127.0.0.1") if is_secure else None
    async with proxy_server(context) as proxy, origin(authority) as (port, heads):
        response = await get(f"https://api.test:{port}/secret-path", proxy=proxy.url, ca_file=ca_file)
        assert response.body == b"ok"
        assert proxy.asked == [f"CONNECT api.test:{port} HTTP/1.1"]
        assert "Authorization: Bearer it" in heads[0]
        with pytest.raises(BackendUnavailableError, match="certificate"):
            await get(f"https://other.test:{port}/", proxy=proxy.url, ca_file=ca_file)


async def test_a_proxy_that_refuses(proxy: ProxyServer) -> None:
    """A tunnel that is refused has sent nothing, and says what the proxy answered; a forwarded request is refused."""
    proxy.expects = "Basic it"
    with pytest.raises(BackendUnavailableError, match="the proxy answered 407") as caught:
        await get("https://api.test:4433/", proxy=proxy.url, proxy_auth=("me", "wrong-password"))
    assert caught.value.outcome == "not_sent"
    assert not caught.value.retryable
    assert "wrong-password" not in str(caught.value.to_dict())
    response = await get("http://api.test:8080/", proxy=proxy.url)
    assert response.status == 407


async def test_a_proxy_that_is_not_there() -> None:
    """Nothing is sent, and no request goes around it."""
    async with origin() as (port, heads):
        with pytest.raises(BackendUnavailableError, match="cannot be reached"):
            await get(f"http://localhost:{port}/", proxy="http://127.0.0.1:9", look_up=local)
        assert heads == []


@pytest.mark.parametrize(
    ("url", "settings", "expected"),
    [
        ("http://other.test/", {"hosts": ["api.test"]}, "not one of the hosts that may be reached"),
        ("http://api.test/", {"look_up": private}, "its address is a private one"),
        ("https://api.test/", {"look_up": private}, "its address is a private one"),
        ("http://10.0.0.8/", {"hosts": ["*"]}, "not one of the hosts"),
        ("http://169.254.169.254/latest/", {"allow_private": True}, "for this network or machine only"),
        ("http://api.test/", {"look_up": unknown}, "no address.*`allow_private` leaves that to the proxy"),
    ],
    ids=["another-host", "private", "private-tls", "address", "link-local", "unknown"],
)
async def test_hosts_and_addresses_are_judged(
    proxy: ProxyServer, url: str, settings: dict[str, Any], expected: str
) -> None:
    """The proxy is not asked for what may not be reached directly."""
    with pytest.raises(ToolExecError, match=expected):
        await get(url, proxy=proxy.url, **settings)
    assert proxy.asked == []


async def test_names_that_only_the_proxy_knows(proxy: ProxyServer) -> None:
    """Names without an address here are reached where private addresses may be."""
    async with origin() as (port, _):
        response = await get(f"http://api.test:{port}/", proxy=proxy.url, look_up=unknown, allow_private=True)
    assert response.status == 200


async def test_a_redirect_is_judged_behind_a_proxy(proxy: ProxyServer) -> None:
    """A redirect leads to no private address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 There\r\nLocation: http://10.0.0.8/\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RemoteToolError, match="a redirect is not followed"):
            await get(f"http://api.test:{port}/", proxy=proxy.url)
    finally:
        server.close()
    assert len(proxy.asked) == 1


async def test_the_environment_counts_only_where_it_is_asked_for(
    proxy: ProxyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the setting a proxy of the environment is ignored; with it NO_PROXY names what goes around it."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    place = proxy.url.removeprefix("http://")
    monkeypatch.setenv("http_proxy", f"http://me:p%40ss@{place}")
    proxy.expects = f"Basic {base64.b64encode(b'me:p@ss').decode()}"
    async with origin() as (port, heads):
        await get(f"http://localhost:{port}/", look_up=local)
        assert proxy.asked == []
        await get(f"http://localhost:{port}/", look_up=local, proxy="environment")
        assert len(proxy.asked) == 1
        monkeypatch.setenv("no_proxy", "localhost,other.test")
        await get(f"http://localhost:{port}/", look_up=local, proxy="environment")
        assert len(proxy.asked) == 1
        assert len(heads) == 3


async def local(host: str, port: int) -> Sequence[str]:
    """Every name is this machine."""
    return ["127.0.0.1"]


@pytest.mark.parametrize("url", ["socks4://proxy:1080", "proxy:3128", "http://proxy:x", "http://p/path"])
def test_what_is_not_a_proxy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what one is, and does not repeat it: it may have a password."""
    with pytest.raises(ConfigurationError, match="proxy must be http://host:port, https://host:port") as caught:
        read_proxy(url)
    assert url not in caught.value.message
    monkeypatch.setenv("all_proxy", "socks4://me:pass-word@proxy:1080")
    with pytest.raises(ConfigurationError, match="the variable ALL_PROXY must be") as caught:
        read_proxies("environment", None)
    assert "pass-word" not in caught.value.message
