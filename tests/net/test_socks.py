"""Proxies of SOCKS 5: what goes through them, and that hosts and addresses are judged all the same."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.net.socks_server import SocksServer, socks_server
from tests.net.test_proxy import get, origin, private

from toolexec.errors import BackendUnavailableError, ConfigurationError, MissingExtraError, Outcome, ToolExecError
from toolexec.net.proxy import ProxyServer, read_proxies, read_proxy
from toolexec.runtime.egress import Authority

pytestmark = pytest.mark.anyio


@pytest.fixture
async def proxy() -> AsyncGenerator[SocksServer]:
    """Run a proxy."""
    async with socks_server() as found:
        yield found


async def test_requests_go_through_it(proxy: SocksServer) -> None:
    """The proxy gets the name of the host, and the credentials that are for it; the host gets the request."""
    proxy.expects = ("me", "p@ss w/rd")
    async with origin() as (port, heads):
        response = await get(f"http://api.test:{port}/x?y=1", proxy=proxy.url, proxy_auth=("me", "p@ss w/rd"))
    assert response.body == b"ok"
    assert proxy.asked == [("api.test", port)]
    assert heads[0].startswith("GET /x?y=1 HTTP/1.1")


async def test_the_certificate_is_that_of_the_host(proxy: SocksServer, tmp_path: Path) -> None:
    """Over TLS the proxy sees nothing of the request, and another certificate is refused."""
    authority = Authority()
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(authority.ca_pem)
    async with origin(authority) as (port, _):
        assert (await get(f"https://api.test:{port}/", proxy=proxy.url, ca_file=ca_file)).body == b"ok"
        with pytest.raises(BackendUnavailableError, match="certificate"):
            await get(f"https://other.test:{port}/", proxy=proxy.url, ca_file=ca_file)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_has_sent_nothing(proxy: SocksServer, scheme: str) -> None:
    """Neither a wrong password nor a refused connection leaves in doubt whether the request was made."""
    proxy.refuses = True
    with pytest.raises(ToolExecError) as caught:
        await get(f"{scheme}://api.test:4433/", proxy=proxy.url)
    assert caught.value.outcome is Outcome.NOT_SENT
    proxy.expects = ("me", "right")
    with pytest.raises(ToolExecError) as caught:
        await get(f"{scheme}://api.test:4433/", proxy=proxy.url, proxy_auth=("me", "wrong-password"))
    assert caught.value.outcome is Outcome.NOT_SENT
    assert "wrong-password" not in str(caught.value)


async def test_private_addresses_are_refused_first(proxy: SocksServer) -> None:
    """The proxy is not asked for a host that may not be reached."""
    with pytest.raises(ToolExecError, match="private"):
        await get("http://api.test/", proxy=proxy.url, look_up=private)
    assert proxy.asked == []


def test_how_one_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its usual port is 1080; it may be one of the environment."""
    assert read_proxy("socks5://me:it@proxy") == ProxyServer("socks5", "proxy", 1080, ("me", "it"))
    assert read_proxy("socks5h://[::1]").url == "socks5h://[::1]:1080"
    monkeypatch.setenv("all_proxy", "socks5://proxy:1081")
    assert read_proxies("environment", None).of("https", "api.test", 443) == ProxyServer("socks5", "proxy", 1081)
    with pytest.raises(ConfigurationError, match="socks5://host:port"):
        read_proxy("socks4://proxy")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the line to type, where the proxy is set."""
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'toolexec\[socks\]'"):
        read_proxy("socks5://proxy")
