"""What a server lists when that is left to it: the tools themselves where they are few."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from tests.server.harness import ERAS, connect, serving

from toolexec import Exec, Tool
from toolexec.server.tools.catalogue import meta_tools

both = pytest.mark.parametrize("era", ERAS)
BESIDE = {"execute_code", "read_result"}
OPEN = {"type": "object"}


def with_tools(count: int, *, length: int = 200, **options: Any) -> Exec:
    """An Exec with so many tools of some bytes each."""
    ex = Exec(**options)
    for number in range(count):
        add(ex, number, length)
    return ex


def add(ex: Exec, number: int, length: int = 200) -> None:
    tool = Tool(name=f"t{number}", namespace="n", description="x" * length, input_schema=OPEN)
    ex.add(tool, handler=lambda args: args)


async def listed(client: Any) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


@both
async def test_few_tools_are_listed_themselves(era: str) -> None:
    """With what runs programs and reads long results beside them; a program can call them, too."""
    async with serving(with_tools(2), expose="auto") as server, connect(server, era) as client:
        assert await listed(client) == {"n__t0", "n__t1", *BESIDE}
        reply = await client.call_tool("n__t1", {"a": 1})
        assert json.loads(reply.content[0].text) == {"a": 1}
        reply = await client.call_tool("execute_code", {"code": "return tools.n.t0(a=2)"})
        assert reply.structured_content["value"] == {"a": 2}
        assert "listed one by one; names are" in server.lowlevel.create_initialization_options().instructions


async def test_without_code_nothing_runs_programs() -> None:
    """Only what reads long results is beside the tools then."""
    ex = with_tools(1, enable_code_execution=False)
    async with serving(ex, expose="auto") as server, connect(server, "auto") as client:
        assert await listed(client) == {"n__t0", "read_result"}


@both
async def test_many_tools_are_found(era: str) -> None:
    """A server with more tools than what finds them costs lists what finds them, and no other name can be called."""
    async with serving(with_tools(40), expose="auto") as server, connect(server, era) as client:
        assert await listed(client) == {tool.name for tool in meta_tools("meta", code_enabled=True)}
        assert "not listed one by one" in server.lowlevel.create_initialization_options().instructions
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("n__t0", {})


async def test_what_is_listed_is_never_longer() -> None:
    """The bound is what all of the server's own tools cost, less those that stay."""
    own = meta_tools("auto", code_enabled=True)
    for count in range(1, 30):
        async with serving(with_tools(count), expose="auto") as server, connect(server, "auto") as client:
            tools = (await client.list_tools()).tools
        data = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tools]
        size = sum(len(json.dumps(each, separators=(",", ":"))) for each in data)
        assert size <= sum(len(json.dumps(tool.to_mcp(), separators=(",", ":"))) for tool in own)
        if len(data) == len(own):
            assert count > 5
            return
    pytest.fail("there is no such number")


async def test_a_list_that_grows_changes_once() -> None:
    """Tools that come make it the server's own; it stays so when they go, and what was listed can still be called."""
    ex = with_tools(2)
    async with serving(ex, expose="auto") as server, connect(server, "auto") as client:
        assert "n__t0" in await listed(client)
        for number in range(2, 40):
            add(ex, number)
        assert "search_tools" in await listed(client)
        assert not (await client.call_tool("n__t0", {})).is_error
        for number in range(2, 40):
            ex.index.unregister(f"n:t{number}")
        assert "search_tools" in await listed(client)


def server_command(tmp_path: Path, tools: int, delay: float) -> list[str]:
    """An MCP server with so many tools, which starts late."""
    path = tmp_path / f"server{tools}.py"
    path.write_text(
        "import json, sys, time\n"
        f"time.sleep({delay})\n"
        f"tools = [{{'name': f't{{n}}', 'description': 'x' * 200, 'inputSchema': {{'type': 'object'}}}} for n in range({tools})]\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if 'id' not in asked:\n"
        "        continue\n"
        "    if asked['method'] == 'initialize':\n"
        "        result = {'protocolVersion': asked['params']['protocolVersion'], 'capabilities': {'tools': {}},\n"
        "                  'serverInfo': {'name': 'late', 'version': '1'}}\n"
        "    else:\n"
        "        result = {'tools': tools} if asked['method'] == 'tools/list' else {}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': result}), flush=True)\n"
    )
    return [sys.executable, "-I", "-S", str(path)]


@pytest.mark.parametrize(("tools", "small"), [(2, True), (40, False)])
async def test_the_first_list_waits_for_a_backend(tmp_path: Path, tools: int, small: bool) -> None:
    """One that is about to start decides; before, the instructions fit both."""
    ex = Exec()
    ex.add_mcp("late", command=server_command(tmp_path, tools, 0.2))
    async with serving(ex, expose="auto") as server:
        assert "Where they are not" in server.lowlevel.create_initialization_options().instructions
        async with connect(server, "auto") as client:
            assert ("late__t0" in await listed(client)) is small


async def test_a_backend_that_hangs_counts_as_four_tools() -> None:
    """The list waits no longer than set for one; for many it does not wait."""
    hangs = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
    for backends, wait, small in ((1, 0.05, True), (4, 60.0, False)):
        ex = with_tools(1)
        for number in range(backends):
            ex.add_mcp(f"dead{number}", command=hangs, connect_timeout=50)
        async with serving(ex, expose="auto", direct_wait=wait) as server, connect(server, "auto") as client:
            with anyio.fail_after(30):
                assert ("n__t0" in await listed(client)) is small
