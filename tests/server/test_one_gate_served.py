"""The policy table of all paths, once more: as clients of the server meet it, over HTTP with a key for each caller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, ElicitResult
from tests.exec.test_one_gate import EXPECTED, SNIPPET, TABLE, Row, build

from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings, serve_http
from toolexec.server.settings import ServeSettings

pytestmark = pytest.mark.full

ANSWERS = {"approved": "once", "remote and destructive, approved": "once", "not approved": "no"}
CALLERS = sorted({(row.caller, row.roles) for row in TABLE.values()})


def _key(caller: str, roles: tuple[str, ...]) -> str:
    return f"txk_key-of-{caller}-{'-'.join(roles)}-which-is-long"


@asynccontextmanager
async def _served(calls: list[str], expose: Any) -> AsyncIterator[str]:
    """The address of a server over all tools of the table."""
    keys = [
        ApiKey(id="-".join((caller, *roles)), roles=roles, sha256=hash_key(_key(caller, roles)))
        for caller, roles in CALLERS
    ]
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with ToolServer(build(calls), ServeSettings(expose=expose, approval_timeout=20)) as server:
        await server.ex.start()
        serving = asyncio.create_task(
            serve_http(
                server, HttpSettings(port=0), AuthSettings(api_keys=tuple(keys)), ready=address.set_result, stop=stop
            )
        )
        try:
            yield await address
        finally:
            stop.set()
            await serving


@asynccontextmanager
async def _client(url: str, mode: Any, name: str, row: Row) -> AsyncIterator[Client]:
    """The client of the row's caller, whose user answers as the row wants it; or cannot be asked."""

    async def answer(*_: object) -> ElicitResult:
        if name == "asking fails":
            return ElicitResult(action="cancel")
        return ElicitResult(action="accept", content={"answer": ANSWERS.get(name, "sure")})

    async with AsyncExitStack() as stack:
        headers = {"authorization": f"Bearer {_key(row.caller, row.roles)}"}
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=30, verify=False))
        transport: Any = streamable_http_client(url, http_client=http)
        client = Client(transport, mode=mode, elicitation_callback=answer if row.ask is not None else None)
        yield await stack.enter_async_context(client)


async def _run(client: Client, row: Row) -> str:
    reply = await client.call_tool("run_tool", {"tool_id": row.tool, "args": dict(row.args)})
    return reply.structured_content["error"]["code"] if reply.is_error else ""


async def _chain(client: Client, row: Row) -> str:
    steps = [{"tool_id": "files:read"}, {"tool_id": row.tool, "args": dict(row.args)}]
    reply = await client.call_tool("run_chain", {"steps": steps})
    return reply.structured_content["error"]["details"]["cause_code"] if reply.is_error else ""


async def _code(client: Client, row: Row) -> str:
    calls = json.dumps([["it", row.tool, dict(row.args)]])
    reply = await client.call_tool("execute_code", {"code": SNIPPET.format(calls=calls, how="run(tool, args)")})
    return reply.structured_content["value"]["it"]


async def _direct(client: Client, row: Row) -> str:
    name = row.tool.replace(":", "__").replace(".", "_")
    name = f"{name}__1_0_0" if name == "files__old" else name
    try:
        reply = await client.call_tool(name, dict(row.args))
    except MCPError as error:
        if error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
            return error.data["code"]
        hidden = error.message.startswith("Unknown tool")  # such a one is not there at all
        return "policy_denied" if hidden else error.message
    text: Any = reply.content[0]
    return json.loads(text.text)["error"]["code"] if reply.is_error else ""


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("path", [_run, _chain, _code, _direct], ids=lambda path: path.__name__[1:])
async def test_the_verdicts_are_those_of_the_table(path: Callable[[Client, Row], Awaitable[str]], mode: str) -> None:
    """In both eras, through `run_tool`, `run_chain`, `execute_code` and the tools themselves; what is refused has not
    run."""
    calls: list[str] = []
    found: dict[str, str] = {}
    async with _served(calls, "direct" if path is _direct else "meta") as url:
        for name, row in TABLE.items():
            async with _client(url, mode, name, row) as client:
                before = len(calls)
                found[name] = await path(client, row)
                assert len(calls) - before - (path is _chain) == (not row.code), name
    assert found == EXPECTED


async def test_what_is_denied_is_not_found() -> None:
    """Search, list, description and the tools themselves show what the caller may call, and nothing else."""
    async with _served([], "meta") as meta, _served([], "direct") as direct:
        for name, row in TABLE.items():
            full = row.tool if row.tool != "files:old" else "files:old:1.0.0"
            async with _client(meta, "auto", name, row) as client:
                query = {"query": full.split(":")[1], "limit": 50, "as_json": True}
                hits = (await client.call_tool("search_tools", query)).structured_content
                listed = (await client.call_tool("list_tools", {"limit": 100})).structured_content
                described = await client.call_tool("describe_tool", {"tool_id": row.tool, "detail_level": "summary"})
            async with _client(direct, "auto", name, row) as client:
                tools = {tool.name for tool in (await client.list_tools()).tools}
            assert (full in {hit["id"] for hit in hits["tools"]}) == row.shown, name
            assert (full in {hit["id"] for hit in listed["tools"]}) == row.shown, name
            assert (not described.is_error) == row.shown, name
            assert any(full.replace(":", "__").replace(".", "_") == tool for tool in tools) == row.shown, name
