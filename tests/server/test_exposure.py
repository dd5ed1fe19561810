"""What a server lists when that is left to it: the tools themselves where they are few."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from tests.server.harness import ERAS, connect, serving

from toolexec import Exec, Tool
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy, Rule
from toolexec.server.direct import listing
from toolexec.server.tools.catalogue import json_bytes, room_for_tools

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
    """A server with more tools than what finds them costs lists what finds them; the server's other tools can be
    called, and no other name."""
    async with serving(with_tools(90), expose="auto") as server, connect(server, era) as client:
        assert await listed(client) == {"find", "execute"}
        assert "called from code" in server.lowlevel.create_initialization_options().instructions
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("n__t0", {})
        for tool in ("run_tool", "run_chain", "list_backends"):
            args = {"run_tool": {"tool_id": "n:t0"}, "run_chain": {"steps": [{"tool_id": "n:t0"}]}}.get(tool, {})
            assert not (await client.call_tool(tool, args)).is_error


async def test_many_tools_without_code() -> None:
    """Lists what finds them and runs them one by one."""
    ex = with_tools(90, enable_code_execution=False)
    async with serving(ex, expose="auto") as server, connect(server, "auto") as client:
        assert await listed(client) == {"search_tools", "describe_tool", "run_tool", "run_chain", "read_result"}
        assert "not listed one by one" in server.lowlevel.create_initialization_options().instructions


async def test_a_list_that_begins_empty() -> None:
    """Without any tool nothing is decided: the first few that come are listed themselves, and what was listed before
    can be called."""
    ex = Exec()
    async with serving(ex, expose="auto") as server, connect(server, "auto") as client:
        assert await listed(client) == {"find", "execute"}
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("n__t0", {})
        add(ex, 0)
        assert await listed(client) == {"n__t0", *BESIDE}
        assert not (await client.call_tool("find", {})).is_error


@both
async def test_the_choice_is_for_all_callers(era: str) -> None:
    """A caller who may see two of many tools has the same list as others, and reads of none but those."""
    ex = with_tools(90, gate=Gate(policy=Policy([Rule("allow", tools=["n:t1", "n:t2"])], default="deny")))
    async with serving(ex, expose="auto") as server, connect(server, era) as client:
        assert await listed(client) == {"find", "execute"}
        assert "2 tools" in server.lowlevel.create_initialization_options().instructions


@pytest.mark.parametrize("code", [True, False])
async def test_how_many_are_listed(code: bool) -> None:
    """The bound is where a task costs as much with the server's own tools; without code that is later."""
    room = room_for_tools(code_enabled=code)
    size = json_bytes(listing("n__t0", with_tools(1).index.find("n:t0").tool, MODERN_PROTOCOL_VERSIONS[-1]))
    for count, themselves in ((room // (size + 2), True), (room // size + 1, False)):
        ex = with_tools(count, enable_code_execution=code)
        async with serving(ex, expose="auto", page_size=500) as server, connect(server, "auto") as client:
            assert ("n__t0" in await listed(client)) is themselves
    assert room_for_tools(code_enabled=True) < room_for_tools(code_enabled=False)


async def test_a_list_that_grows_changes_once() -> None:
    """Tools that come make it the server's own; it stays so when they go, and what was listed can still be called."""
    ex = with_tools(2)
    async with serving(ex, expose="auto") as server, connect(server, "auto") as client:
        assert "n__t0" in await listed(client)
        for number in range(2, 90):
            add(ex, number)
        assert "find" in await listed(client)
        assert not (await client.call_tool("n__t0", {})).is_error
        for number in range(2, 90):
            ex.index.unregister(f"n:t{number}")
        assert "find" in await listed(client)


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


@pytest.mark.parametrize(("tools", "small"), [(2, True), (90, False)])
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
    for backends, wait, small in ((1, 0.05, True), (8, 60.0, False)):
        ex = with_tools(1)
        for number in range(backends):
            ex.add_mcp(f"dead{number}", command=hangs, connect_timeout=50)
        async with serving(ex, expose="auto", direct_wait=wait) as server, connect(server, "auto") as client:
            with anyio.fail_after(30):
                assert ("n__t0" in await listed(client)) is small
