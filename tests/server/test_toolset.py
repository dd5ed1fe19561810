"""A server whose whole world is a toolset."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from tests.server.harness import ERAS, connect, serving
from tests.waiting import until

from toolexec import Exec, Tool, ToolAnnotations
from toolexec.backend import ProviderBackend
from toolexec.discovery import Toolset

READS = ToolAnnotations(read_only=True)
OPEN = {"type": "object"}


def add(ex: Exec, name: str, hints: ToolAnnotations | None = None) -> None:
    tool = Tool(name=name, namespace="files", annotations=hints or ToolAnnotations(), input_schema=OPEN)
    ex.add(tool, handler=lambda args: name)


def world() -> Exec:
    ex = Exec(toolset=Toolset("safe", read_only=True))
    add(ex, "read", READS)
    add(ex, "wipe_disk")
    wipe = Tool(name="wipe_shop", namespace="shop", input_schema=OPEN)
    ex.add_backends(ProviderBackend("shop", lambda name, args: name, tools=[wipe]))
    return ex


@pytest.mark.parametrize("era", ERAS)
async def test_nothing_else_can_be_found_or_run(era: str) -> None:
    """No tool of the server says a word of a tool outside, nor runs one; one that is added later and belongs joins."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search_tools", {"query": "wipe"}),
        ("search_tools", {"query": ""}),
        ("list_tools", {}),
        ("list_namespaces", {}),
        ("list_backends", {}),
        ("run_tool", {"tool_id": "files:wipe_dis"}),
        ("run_chain", {"steps": [{"tool_id": "files:wip"}]}),
        ("describe_tool", {"tool_id": "files:wip", "detail_level": "full"}),
        ("execute_code", {"language": "python", "code": "[t['id'] for t in tools.search('', 50)]"}),
    ]
    async with serving(world()) as server, connect(server, era) as client:
        await server.ex.start()
        for name, args in calls:
            reply = await client.call_tool(name, args)
            text = json.dumps(reply.model_dump(mode="json"))
            assert "wipe_disk" not in text, name
            assert "wipe_shop" not in text, name
            assert '"shop"' not in text, name
        for name, args in (
            ("run_tool", {"tool_id": "files:wipe_disk"}),
            ("run_chain", {"steps": [{"tool_id": "shop:wipe_shop"}]}),
            ("describe_tool", {"tool_id": "files:wipe_disk", "detail_level": "full"}),
            ("list_tool_examples", {"tool_id": "files:wipe_disk"}),
        ):
            reply = await client.call_tool(name, args)
            assert "tool_not_found" in json.dumps(reply.model_dump(mode="json")), name
        reply = await client.call_tool("run_tool", {"tool_id": "files:read"})
        assert reply.structured_content["structured"] == "read"
        add(server.ex, "peek", READS)
        assert (await client.call_tool("run_tool", {"tool_id": "files:peek"})).structured_content[
            "structured"
        ] == "peek"


@pytest.mark.parametrize("era", ERAS)
async def test_direct_tools(era: str) -> None:
    """Direct tools are listed and called within the toolset alone."""
    async with serving(world(), expose="direct") as server, connect(server, era) as client:
        await server.ex.start()
        assert {tool.name for tool in (await client.list_tools()).tools} == {"files__read", "read_result"}
        with pytest.raises(MCPError):
            await client.call_tool("files__wipe_disk", {})
        assert not (await client.call_tool("files__read", {})).is_error


async def test_notices_are_of_what_can_be_seen() -> None:
    """A change outside of the toolset is not told of; one inside is."""
    ex = world()
    received: list[Any] = []

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            received.append(message)

    async with serving(ex, list_changed_debounce=0.02) as server:
        async with connect(server, "legacy", message_handler=hear):
            await ex.start()
            add(ex, "wipe_more")
            await asyncio.sleep(0.2)
            assert received == []
            add(ex, "peek", READS)
            await until(lambda: len(received) == 1)
