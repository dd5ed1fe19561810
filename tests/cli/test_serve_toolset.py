"""`toolexec serve --toolset`: other tools are neither found nor runnable."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.config.commands import COMMAND, call
from tests.servers import server_environment

pytestmark = pytest.mark.full

FILE = """
[sources]
python = ["app.py"]

[toolsets.safe-read]
read_only = true

[toolsets.text]
namespaces = ["text"]
deny = ["text:plain"]
"""


@pytest.fixture
def served(tools_file: Path, tmp_path: Path) -> Path:
    """A configuration with tools and two toolsets."""
    path = tmp_path / "served.toml"
    path.write_text(FILE)
    return path


def client(file: Path, *words: str) -> Client:
    command, *args = [*COMMAND, "serve", "-c", str(file), *words]
    environment = server_environment(XDG_STATE_HOME=str(file.parent / "state"))
    return Client(
        stdio_client(StdioServerParameters(command=command, args=args, env=environment), errlog=sys.__stderr__)
    )


async def found(connected: Client, query: str) -> list[str]:
    args = {"query": query, "limit": 50, "as_json": True}
    reply: Any = (await connected.call_tool("search_tools", args)).structured_content
    return [tool["id"] for tool in reply["tools"]]


async def test_one_toolset(served: Path) -> None:
    """Tools outside are found by no search, and are not found when they are run."""
    async with client(served, "--toolset", "safe-read") as connected:
        assert await found(connected, "") == ["math:add"]
        assert await found(connected, "fail picture forever echo") == []
        ran = await connected.call_tool("run_tool", {"tool_id": "math:add", "args": {"a": 1, "b": 2}})
        assert ran.structured_content["structured"] == 3
        for tool_id in ("text:echo", "odd:fail", "slow:forever"):
            refused = await connected.call_tool("run_tool", {"tool_id": tool_id, "args": {"words": "x"}})
            assert refused.is_error
            assert "tool_not_found" in str(refused)


async def test_several_together(served: Path) -> None:
    """Serves the union of several toolsets; directly, too."""
    words = ("--toolset", "safe-read", "--toolset", "text", "--expose", "direct")
    async with client(served, *words) as connected:
        names = {tool.name for tool in (await connected.list_tools()).tools}
        assert names == {"math__add", "text__echo", "read_result"}


def test_an_unknown_toolset(served: Path) -> None:
    """The server does not start."""
    done = call("serve", "-c", served, "--toolset", "safe_reed")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "--toolset: there is no toolset 'safe_reed'; did you mean safe-read?" in done.stderr
