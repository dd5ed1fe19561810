"""Agents whose tools were recorded once need no server, and no network, to be run again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.shop import require
from tests.tiers import missing

for name, package in (("agents", "openai-agents"), ("pydantic_ai", "pydantic-ai"), ("langchain_core", "langchain")):
    require(name, package)

pytestmark = pytest.mark.full
TIMES = 10


def loops(mode: str, directory: Path, *before: str) -> Any:
    """Run the loops of all SDKs in a process, in what comes *before* its command; return what they have printed."""
    command = [*before, sys.executable, "-m", "tests.integrations.agent_loops", mode, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def without_network() -> list[str]:
    """Return the command that runs another one where there is no network, not even the loopback's."""
    program = shutil.which("unshare") or missing("there is no unshare", "apt-get install util-linux")
    own = [program, "--net"] if os.geteuid() == 0 else [program, "--user", "--map-root-user", "--net"]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        missing("no network namespace can be made here", "sysctl kernel.unprivileged_userns_clone=1")
    return own


def test_agents_of_three_sdks_are_recorded_once_and_run_ten_times_without_a_network(tmp_path: Path) -> None:
    """Each model gets the answers of three MCP servers, failures too, word by word as they were recorded: ten times, in
    a network namespace where nothing is up, without the repository that one of them looked at."""
    require("mcp_server_git", "mcp-server-git")
    require("mcp_server_time", "mcp-server-time")
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    [recorded] = loops("record", tmp_path)["answers"]
    assert len(recorded) == 3
    for answers in recorded.values():
        assert len(answers) == 5
        assert any("tea" in each for each in answers)
    shutil.rmtree(repository)
    again = loops("replay", tmp_path, *without_network())
    assert again["reached"] == "ENETUNREACH"
    assert again["answers"] == [recorded] * TIMES
