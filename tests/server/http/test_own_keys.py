"""A program that builds its tools from settings, and lets callers in by keys of its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from toolexec.config.build import build
from toolexec.config.load import load_settings
from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings, serve_http

pytestmark = pytest.mark.anyio
KEY = "k" * 40
TOOLS = "from toolexec import tool\n@tool(namespace='own')\ndef add(a: int, b: int) -> int:\n    return a + b\n"


async def test_callers_with_keys_that_the_settings_do_not_have(tmp_path: Path) -> None:
    """Calls of such callers are made: the program says who may use the server."""
    (tmp_path / "tools_of_own_keys.py").write_text(TOOLS)
    built = build(
        load_settings([str(tmp_path / "tools_of_own_keys.py")], serving=True), serving=True, state=tmp_path / "state"
    )
    auth = AuthSettings(api_keys=(ApiKey(id="own", sha256=hash_key(KEY)),))
    http = HttpSettings(port=0)
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = ToolServer(built.ex, replace(built.serve, http=http, auth=auth), results=built.results)
    async with server:
        serving = asyncio.create_task(serve_http(server, http, auth, ready=address.set_result, stop=stop))
        try:
            client = create_mcp_http_client(headers={"Authorization": f"Bearer {KEY}"})
            async with (
                client,
                streamable_http_client(await address, http_client=client) as streams,
                ClientSession(*streams[:2]) as session,
            ):
                await session.initialize()
                answer = await session.call_tool("run_tool", {"tool_id": "own:add", "args": {"a": 2, "b": 3}})
        finally:
            stop.set()
            await serving
    built.close()
    assert not answer.is_error, answer
    assert "5" in str(answer.content)
