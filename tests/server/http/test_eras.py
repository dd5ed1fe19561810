"""Requests that mix up the two eras of the protocol, or forge what belongs to a session."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key

from .conftest import INITIALIZE, MODERN, Serve, text

VERSION = "io.modelcontextprotocol/protocolVersion"
HEADERS = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}


def listing(**meta: Any) -> dict[str, Any]:
    own = {VERSION: MODERN, "io.modelcontextprotocol/clientCapabilities": {}} | meta
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": own}}


@pytest.mark.parametrize(
    ("headers", "message", "code"),
    [
        ({"mcp-protocol-version": "2999-01-01"}, listing(**{VERSION: "2999-01-01"}), -32022),
        ({"mcp-protocol-version": "nonsense"}, listing(**{VERSION: "nonsense"}), -32022),
        ({}, listing(**{VERSION: "2025-11-25"}), -32020),
        ({"mcp-method": "tools/call"}, listing(), -32020),
        ({"mcp-protocol-version": MODERN, "mcp-method": "initialize"}, INITIALIZE, None),
        ({}, [listing()], -32600),
        ({}, {"jsonrpc": "2.0", "id": 1, "result": {}}, -32600),
    ],
)
async def test_headers_that_do_not_fit(serve: Serve, headers: dict[str, str], message: Any, code: int | None) -> None:
    """Each is refused with the protocol's own code, and the server goes on."""
    server = await serve()
    answer = await server.post(message, HEADERS | headers)
    assert 400 <= answer.status_code < 500
    found = answer.json()["error"]["code"]
    assert found == code if code is not None else found < 0
    assert (await server.post(listing(), HEADERS)).status_code == 200


async def test_the_same_header_twice(serve: Serve) -> None:
    """Refuses an ambiguous request instead of choosing one of them."""
    server = await serve()
    head = (
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
        b"mcp-method: tools/list\r\nmcp-method: tools/call\r\ncontent-length: 40\r\nconnection: close\r\n\r\n"
    )
    answer = await server.raw(head + b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"-32020" in answer


@pytest.mark.parametrize("session", ["", "f" * 32, "../../etc", "\xff" * 9, "x" * 5000])
async def test_a_session_that_never_was(serve: Serve, session: str) -> None:
    """Such a session is not found, whatever it looks like, and nothing is opened in its place."""
    server = await serve()
    headers = [("mcp-session-id", session.encode("latin-1")), ("mcp-protocol-version", b"2025-11-25")]
    encoded = [*headers, ("accept", b"application/json, text/event-stream"), ("content-type", b"application/json")]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = await server.request("POST", json=message, headers=encoded)
    assert answer.status_code == 404
    for method in ("GET", "DELETE"):
        assert (await server.request(method, headers=encoded)).status_code == 404


async def test_a_session_is_opened_by_initialize_only(serve: Serve) -> None:
    """Anything else without a session is a mistake."""
    server = await serve()
    answer = await server.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert answer.status_code == 400
    assert (await server.request("GET", headers={"accept": "text/event-stream"})).status_code == 400
    assert (await server.request("PUT")).status_code == 405
    assert (await server.post(INITIALIZE, {"accept": "text/html"})).status_code == 406


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_what_is_sealed_is_bound_to_its_caller(serve: Serve, era: str) -> None:
    """Handlers have the SDK's context of the caller too, without the credential."""

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="principal", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        token = get_access_token()
        assert token is not None
        said = f"{token.client_id}|{token.subject}|{token.scopes}|{token.token}"
        return CallToolResult(content=[TextContent(type="text", text=said)])

    auth = AuthSettings(api_keys=(ApiKey(id="ann", sha256=hash_key("ann's"), scopes=("s",)),))
    server = await serve(auth=auth, server=Server("p", on_list_tools=list_tools, on_call_tool=call_tool))
    async with server.client(era, authorization="Bearer ann's") as client:
        assert text(await client.call_tool("principal", {})) == "api_key:ann|ann|['s']|"
