"""Tools of MCP servers stand beside Python functions, and are used in the same way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from toolexec import Exec, Step, tool

TIME_SERVER = [sys.executable, "-m", "mcp_server_time"]


async def test_add_a_server() -> None:
    """A server is a command to start; its tools are `name:tool`."""
    async with Exec() as ex:
        await ex.add_mcp("time", command=TIME_SERVER)

        found = await ex.search_tools("current time")
        result = await ex.run_tool(found[0].id, {"timezone": "Europe/Oslo"})

        assert found[0].id == "time:get_current_time"
        assert result.value["timezone"] == "Europe/Oslo"


async def test_chain_across_servers() -> None:
    """A chain can lead from a server's tool to a Python function."""

    @tool
    def year(moment: str) -> int:
        return int(moment[:4])

    async with Exec() as ex:
        ex.add(year)
        ex.add_mcp("time", command=TIME_SERVER)
        result = await ex.run_chain(
            [
                Step("time:get_current_time", {"timezone": "UTC"}, name="now"),
                Step("year", {"moment": {"$ref": "now.datetime"}}),
            ]
        )
        assert result.raise_for_error().value >= 2025


async def test_a_server_that_does_not_start() -> None:
    """Everything else works, and the server's status has the reason."""
    async with Exec() as ex:
        ex.add(lambda: "fine", "mine")
        await ex.add_mcp("broken", command="no-such-server")

        status = next(status for status in ex.backend_statuses() if status.name == "broken")

        assert not status.available
        assert "no-such-server" in (status.reason or "")
        assert (await ex.run_tool("mine")).value == "fine"


async def test_the_usual_config_file(tmp_path: Path) -> None:
    """The `mcpServers` files of other programs are read as they are."""
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"time": {"command": TIME_SERVER[0], "args": TIME_SERVER[1:]}}}))
    async with Exec() as ex:
        await ex.add_config(path)
        assert (await ex.get_tool_doc("time:convert_time", "summary")).id == "time:convert_time"
