"""Real MCP servers behind an Exec: running, hanging, missing, from a config file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec
from toolexec.errors import BackendUnavailableError, ConfigurationError

pytestmark = pytest.mark.full

HANGING = [sys.executable, "-c", "import time; time.sleep(60)"]
TIME = [sys.executable, "-m", "mcp_server_time"]
LONG = 60.0


class TestServers:
    """Real MCP servers."""

    async def test_one_that_runs(self) -> None:
        """Its tools are found, described and run."""
        async with Exec() as ex:
            statuses = await ex.add_mcp("time", command=TIME)
            assert statuses[0].available, statuses[0].reason
            result = await ex.run_tool("time:get_current_time", {"timezone": "UTC"})
            assert result.ok, result.error
            assert result.value["timezone"] == "UTC"

    async def test_a_command_line(self) -> None:
        """A command may be written as one line; arguments may come apart."""
        async with Exec() as ex:
            one = await ex.add_mcp("one", command=f"'{sys.executable}' -m mcp_server_time")
            two = await ex.add_mcp("two", command=sys.executable, args=["-m", "mcp_server_time"])
            assert [one[0].available, two[0].available] == [True, True]

    @pytest.mark.parametrize(
        "settings", [{}, {"command": "a", "url": "http://localhost"}, {"command": "a 'b"}, {"command": []}]
    )
    async def test_settings_that_make_no_sense(self, settings: Any) -> None:
        """Refuses invalid settings with nothing added."""
        async with Exec() as ex:
            with pytest.raises(ConfigurationError):
                ex.add_mcp("server", **settings)
            assert ex.backends.get("server") is None

    async def test_a_program_with_blanks_in_its_path(self, tmp_path: Path) -> None:
        """A path with blanks is one program, not a command line."""
        program = tmp_path / "my time server"
        program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m mcp_server_time\n")
        program.chmod(0o755)
        async with Exec() as ex:
            statuses = await ex.add_mcp("time", command=str(program))
            assert statuses[0].available, statuses[0].reason

    async def test_one_that_hangs(self) -> None:
        """Starting goes on without it; its tools are unavailable with the reason; closing ends its process."""
        async with Exec(start_timeout=0.2) as ex:
            ex.add(lambda: 1, "mine")
            statuses = await ex.add_mcp("hanging", command=HANGING)
            assert (statuses[0].available, statuses[0].reason) == (False, "connecting")
            assert (await ex.run_tool("mine")).value == 1
            with pytest.raises(BackendUnavailableError, match="hanging"):
                await ex.run_tool("hanging:anything")

    async def test_one_that_is_not_there(self) -> None:
        """A command that does not exist is a reason, not an exception."""
        async with Exec() as ex:
            statuses = await ex.add_mcp("missing", command="no-such-command-anywhere")
            assert not statuses[0].available
            assert "no-such-command-anywhere" in (statuses[0].reason or "")

    async def test_a_config_file(self, tmp_path: Path) -> None:
        """The usual `mcpServers` file is read as it is."""
        path = tmp_path / "servers.json"
        path.write_text(json.dumps({"mcpServers": {"my time": {"command": TIME[0], "args": TIME[1:]}}}))
        async with Exec() as ex:
            statuses = await ex.add_config(path)
            assert [(s.name, s.available) for s in statuses] == [("my-time", True)]
            assert ex.index.find("my-time:get_current_time") is not None

    async def test_a_config_file_that_is_not_there(self, tmp_path: Path) -> None:
        """The error names the file."""
        async with Exec() as ex:
            with pytest.raises(ConfigurationError, match=r"nothing\.json"):
                ex.add_config(tmp_path / "nothing.json")
