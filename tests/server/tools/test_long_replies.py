"""Replies that are long are sent once, whichever tool of the server gives them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.server.harness import connect, serving

from toolexec import Exec, Tool
from toolexec.discovery import ToolExample
from toolexec.server.app import ToolServer
from toolexec.server.tools.catalogue import meta_tools

LONG = "Describes what it does, and for whom, at some length. " * 5
SPACES = [f"namespace_of_number_{number:02}" for number in range(99)]
WIDE = f"{SPACES[0]}:wide"
ROWS = f"{SPACES[0]}:rows"
CALLS: dict[str, dict[str, Any]] = {
    "search_tools": {"query": "describes", "limit": 100},
    "list_tools": {"limit": 100},
    "list_namespaces": {"limit": 100},
    "list_backends": {},
    "describe_tool": {"tool_id": WIDE, "detail_level": "schema"},
    "list_tool_examples": {"tool_id": WIDE},
    "stubs": {"namespaces": SPACES[:20]},
    "run_tool": {"tool_id": ROWS},
    "run_chain": {"steps": [{"tool_id": ROWS}]},
    "run_workflow": {"workflow": f'run("{ROWS}", {{}})'},
    "execute_code": {"code": f"return tools.{SPACES[0]}.rows()"},
}
SHORT = {"list_backends", "read_result"}
"""Those whose replies are no longer, however many tools there are."""


@pytest.fixture
async def server() -> AsyncIterator[ToolServer]:
    """A hundred namespaces, a tool with many arguments and examples, and one with a long value."""
    fields = {f"field_{number:03}": {"type": "string", "description": LONG[:100]} for number in range(60)}
    async with Exec() as ex:
        schema = {"type": "object", "properties": fields}
        for space in SPACES:
            tool = Tool(name="wide", namespace=space, description=LONG, input_schema=schema)
            ex.add(tool, handler=lambda args: args)
        ex.docs.register_examples(WIDE, [ToolExample(title=f"{number}", args={"a": 9 * LONG}) for number in range(5)])
        ex.add(lambda: [{"id": number, "text": "some text"} for number in range(300)], ROWS)
        async with serving(ex, expose="meta") as made:
            yield made


def test_every_tool_is_tried() -> None:
    """A tool that is added needs a call here."""
    assert {tool.name for tool in meta_tools("meta", code_enabled=True, list_all=True)} == CALLS.keys() | {
        "read_result"
    }


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("name", [name for name in CALLS if name not in SHORT])
async def test_a_long_reply_is_sent_once(server: ToolServer, era: str, name: str) -> None:
    """Sends content only, from which the value can be read."""
    async with connect(server, era) as client:
        reply = await client.call_tool(name, CALLS[name])
    assert not reply.is_error, reply.content
    text = "".join(part.text for part in reply.content)
    assert len(text) > 4000
    assert reply.structured_content is None


@pytest.mark.parametrize("name", ["list_tools", "list_namespaces"])
async def test_a_short_reply_is_structured_too(server: ToolServer, name: str) -> None:
    """Sends both, as MCP recommends."""
    async with connect(server, "auto") as client:
        reply = await client.call_tool(name, {**CALLS[name], "limit": 3})
    assert json.loads(reply.content[0].text) == reply.structured_content


@pytest.mark.parametrize("name", ["search_tools", "describe_tool"])
async def test_what_is_found_and_described_is_text(server: ToolServer, name: str) -> None:
    """Sends text only, however short; a program that asks for JSON gets it, and structured, however long."""
    async with connect(server, "auto") as client:
        reply = await client.call_tool(name, CALLS[name])
        assert reply.structured_content is None
        reply = await client.call_tool(name, {**CALLS[name], "as_json": True})
    assert json.loads(reply.content[0].text) == reply.structured_content
