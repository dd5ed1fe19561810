"""Every tool of the npm servers, run by the command itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.servers import EVERYTHING, filesystem_calls, require_npm_server

pytestmark = pytest.mark.full


def run(directory: Path, tool_id: str, args: dict[str, object]) -> dict[str, Any]:
    """`toolexec run` in a process of its own; its one JSON document."""
    command = [sys.executable, "-m", "toolexec", "run", tool_id, json.dumps(args), "--json"]
    done = subprocess.run(
        [*command, "-c", "mcp.json"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"{tool_id}: {done.stdout} {done.stderr}"
    return json.loads(done.stdout)


def configure(directory: Path, name: str, command: list[str]) -> None:
    """Write the config as other programs write it."""
    # This server does not end when its stdin does; the shorter patience keeps thirty runs of it short.
    servers = {name: {"command": command[0], "args": command[1:], "stop_timeout": 0.2}}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": servers}))


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_tool_of_everything(tmp_path: Path, name: str) -> None:
    """Each tool of the everything server runs and succeeds."""
    configure(tmp_path, "all", require_npm_server("everything"))
    assert run(tmp_path, f"all:{name}", EVERYTHING[name])["ok"]


def test_every_tool_of_filesystem(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tool runs and succeeds, one command after the other, in this process: to start one takes longer than a call."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "files"
    root.mkdir()
    configure(tmp_path, "fs", [*require_npm_server("filesystem"), str(root.resolve())])
    allowed = {"TOOLEXEC_POLICY__REMOTE_DESTRUCTIVE": "allow"}  # some of them are marked as destructive
    values: dict[str, Any] = {}
    for name, args in filesystem_calls(root.resolve()):
        done = cli("run", f"fs:{name}", json.dumps(args), "--json", "-c", "mcp.json", **allowed)
        assert done.exit_code == 0, f"{name}: {done.stdout} {done.stderr}"
        values[name] = json.loads(done.stdout)["value"]
    assert "three" in json.dumps(values["read_file"])
