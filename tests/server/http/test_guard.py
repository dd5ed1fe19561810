"""Which hosts and web pages get an answer."""

from __future__ import annotations

import pytest

from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings, Metrics

from .conftest import INITIALIZE, Serve

PATHS = ("/mcp", "/healthz", "/readyz", "/metrics", "/nothing", "/.well-known/oauth-protected-resource")
KEY = AuthSettings(api_keys=(ApiKey(id="ann", sha256=hash_key("k" * 20)),))


@pytest.mark.full
@pytest.mark.parametrize("path", PATHS)
async def test_another_host_is_refused_on_every_path(serve: Serve, path: str) -> None:
    """A name that a hostile name server gives to this machine's address is refused."""
    server = await serve(metrics=Metrics())
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "localhost:80:80",
        "[::1",
        "a b",
    ):
        assert (await server.request("GET", path, headers={"host": host})).status_code == 421
    for host in ("localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:99", "127.0.0.1:1"):
        assert (await server.request("GET", path, headers={"host": host})).status_code != 421


@pytest.mark.full
@pytest.mark.parametrize("path", PATHS)
async def test_a_page_from_elsewhere_is_refused_on_every_path(serve: Serve, path: str) -> None:
    """Only pages of this machine may, and they get no leave to read answers of their own."""
    server = await serve(metrics=Metrics())
    for origin in (
        "http://evil.example",
        "null",
        "file://",
        "http://localhost.evil.example",
        "https://127.0.0.1@evil.example",
    ):
        assert (await server.request("GET", path, headers={"origin": origin})).status_code == 403
    for origin in ("http://localhost:3000", "https://127.0.0.1", server.root):
        answer = await server.request("GET", path, headers={"origin": origin})
        assert answer.status_code != 403
        assert "access-control-allow-origin" not in answer.headers


async def test_two_origins_are_refused(serve: Serve) -> None:
    """Two are sent only to have one of them overlooked."""
    server = await serve()
    head = (
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\norigin: http://evil.example\r\n\r\n"
    )
    assert (await server.raw(head)).startswith(b"HTTP/1.1 403 ")


async def test_without_a_host_there_is_no_answer(serve: Serve) -> None:
    """Clients of the oldest protocol version get no answer, either."""
    server = await serve()
    assert (await server.raw(b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 421 ")
    assert (await server.raw(b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_a_public_server_has_the_names_it_was_given(serve: Serve) -> None:
    """Behind a proxy, only those count; with a port, only that one."""
    http = HttpSettings(port=0, behind_proxy=True, allowed_hosts=("tools.example.com", "other.example:8443"))
    server = await serve(http, KEY)
    for host, known in (
        ("tools.example.com", True),
        ("TOOLS.example.com.:444", True),
        ("other.example:8443", True),
        ("other.example", False),
        ("sub.tools.example.com", False),
    ):
        answer = await server.request("GET", "/healthz", headers={"host": host})
        assert (host, answer.status_code) == (host, 200 if known else 421)
    page = {"host": "tools.example.com", "origin": "https://tools.example.com"}
    assert (await server.request("GET", "/healthz", headers=page)).status_code == 200
    page["origin"] = "http://localhost:3000"
    assert (await server.request("GET", "/healthz", headers=page)).status_code == 403


async def test_the_address_of_the_resource_is_a_name_too(serve: Serve) -> None:
    """Clients come by the name that the server tells them."""
    auth = AuthSettings(api_keys=KEY.api_keys, resource_url="https://tools.example.com/mcp")
    server = await serve(HttpSettings(port=0, behind_proxy=True), auth)
    assert (await server.request("GET", "/healthz", headers={"host": "tools.example.com"})).status_code == 200


async def test_an_allowed_page_gets_what_browsers_ask_for(serve: Serve) -> None:
    """Preflight and answers name exactly that origin, never `*`, and allow no cookies."""
    origin = "https://app.example.com"
    server = await serve(HttpSettings(port=0, allowed_origins=(origin,)), KEY)
    asking = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, mcp-param-x",
    }
    preflight = await server.request("OPTIONS", "/mcp", headers=asking)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == origin
    allowed = preflight.headers["access-control-allow-headers"].split(", ")
    assert {"authorization", "mcp-session-id", "mcp-param-x"} <= set(allowed)
    assert "access-control-allow-credentials" not in preflight.headers
    answer = await server.post(INITIALIZE, {"origin": origin})
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == origin
    other = await server.request("OPTIONS", "/mcp", headers={**asking, "origin": "https://evil.example"})
    assert other.status_code == 403
    near = await server.request("OPTIONS", "/mcp", headers={**asking, "origin": "http://localhost:1"})
    assert "access-control-allow-origin" not in near.headers


async def test_answers_do_not_say_what_the_server_is_made_of(serve: Serve) -> None:
    """No banner; and nothing is guessed about types."""
    answer = await (await serve()).request("GET", "/healthz")
    assert "server" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"
