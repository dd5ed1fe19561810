"""The whole server over HTTP: the caller who was proven is the one that tools, policies and logs get to know."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client

from toolexec import Exec
from toolexec.model.origin import current_origin
from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import Health, HttpSettings, Metrics

from .conftest import Serve

AUTH = AuthSettings(api_keys=(ApiKey(id="ann", sha256=hash_key("ann's"), roles=("ops",)),))
ANN = {"authorization": "Bearer ann's"}


def caller() -> dict[str, Any]:
    caller = current_origin().caller
    return {"id": caller.id, "roles": [*caller.roles]}


def make(metrics: Metrics | None = None) -> ToolServer:
    ex = Exec(trace=metrics)
    ex.add(caller, "who:am_i")
    return ToolServer(ex)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_the_caller_of_a_tool(serve: Serve, era: str) -> None:
    """In both eras, in direct calls and in chains."""
    async with make() as tools:
        server = await serve(auth=AUTH, server=tools)
        async with server.client(era, **ANN) as client:
            result = await client.call_tool("run_tool", {"tool_id": "who:am_i"})
            assert result.structured_content["structured"] == {"id": "ann", "roles": ["ops"]}
            result = await client.call_tool("run_chain", {"steps": [{"tool_id": "who:am_i"}]})
            assert result.structured_content["final"] == {"id": "ann", "roles": ["ops"]}
        await server.end()


async def test_the_caller_over_the_older_transport(serve: Serve) -> None:
    """The caller is the sender of the message."""
    async with make() as tools:
        server = await serve(HttpSettings(port=0, sse=True), AUTH, tools)
        transport: Any = sse_client(f"{server.root}/sse", headers=ANN)
        async with Client(transport, mode="legacy") as client:
            result = await client.call_tool("run_tool", {"tool_id": "who:am_i"})
            assert result.structured_content["structured"]["id"] == "ann"
        await server.end()


async def test_calls_are_counted_once(serve: Serve) -> None:
    """Under the tool's own name, also when the call came in over HTTP."""
    metrics = Metrics()
    async with make(metrics) as tools:
        health = Health.of(tools.ex, required=["local"])
        server = await serve(auth=AUTH, server=tools, metrics=metrics, health=health)
        async with server.client(**ANN) as client:
            await client.call_tool("run_tool", {"tool_id": "who:am_i"})
        assert b'toolexec_calls_total{outcome="ok",tool="who:am_i"} 1.0' in metrics.text()
        async with httpx2.AsyncClient(verify=False) as http:
            assert (await http.get(f"{server.root}/readyz")).status_code == 200
        await server.end()
