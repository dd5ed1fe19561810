"""`toolexec serve`, driven by the official TypeScript clients and the inspector, over both transports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers import npm_directory, require_modern_node, require_npm_entry, server_environment

pytestmark = pytest.mark.full
CLIENTS = Path(__file__).parent / "clients"
CONFIG = """
[sources]
python = ["tools.py"]

[server]
expose = "meta"

[[policy.rules]]
effect = "ask"
tools = ["files:*"]
reason = "Files do not come back."
"""
SERVE = [sys.executable, "-m", "toolexec", "serve", "-c", "toolexec.toml"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a configuration and its tools."""
    (tmp_path / "toolexec.toml").write_text(CONFIG)
    (tmp_path / "tools.py").write_text((CLIENTS / "tools.py").read_text())
    return tmp_path


def _environment(directory: Path) -> dict[str, str]:
    return server_environment(XDG_STATE_HOME=str(directory / "state"))


@pytest.fixture
def url(directory: Path) -> Iterator[str]:
    """The address of a server over HTTP."""
    command = [*SERVE, "--transport", "http", "--port", "0"]
    process = subprocess.Popen(command, cwd=directory, env=_environment(directory), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "http://" in line:
                yield "http://" + line.split("http://", 1)[1].split()[0].rstrip(",.;)")
                break
        else:
            pytest.fail("the server ended without saying where it is")
    finally:
        process.terminate()
        rest = process.communicate(timeout=30)[1]
    assert "Traceback" not in rest


def _drive(kind: str, answer: str, directory: Path, *target: str) -> dict[str, Any]:
    require_npm_entry("@modelcontextprotocol/client/package.json")
    script = [require_modern_node(), str(CLIENTS / "drive.mjs"), kind, str(npm_directory() / "node_modules"), answer]
    done = subprocess.run(
        [*script, *target],
        cwd=directory,
        env=_environment(directory),
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _check(said: dict[str, Any], answer: str) -> None:
    assert said["tools"] == ["search_tools", "describe_tool", "run_tool", "execute_code", "read_result"]
    assert said["search"]["tools"][0]["id"] == "math:add"
    assert said["describe"]["tool"]["inputSchema"]["required"] == ["a", "b"]
    assert said["run"]["structured"] == 8
    assert said["wrong"]["isError"] is True
    assert {v["keyword"] for v in said["wrong"]["structuredContent"]["error"]["details"]["violations"]} == {
        "required",
        "type",
    }
    assert said["chain"]["final"] == 6
    guarded = said["guarded"]
    if answer == "accept":
        assert guarded["structuredContent"]["structured"] == "erased a"
        assert "files:erase" in said["asked"][0]["message"]
        return
    assert guarded["isError"] is True
    assert guarded["structuredContent"]["error"]["code"] == (
        "approval_denied" if answer == "decline" else "approval_required"
    )


@pytest.mark.parametrize("answer", ["accept", "decline", "none"])
@pytest.mark.parametrize("kind", ["v1", "legacy", "modern"])
def test_typescript_over_stdio(kind: str, answer: str, directory: Path) -> None:
    """The TypeScript clients of both generations find, read, run, chain and approve in both eras."""
    _check(_drive(kind, answer, directory, "stdio", *SERVE), answer)


@pytest.mark.parametrize("kind", ["v1", "legacy", "modern"])
def test_typescript_over_http(kind: str, directory: Path, url: str) -> None:
    """Clients in TypeScript work over streamable HTTP as well."""
    _check(_drive(kind, "accept", directory, "http", url), "accept")


def _inspect(directory: Path, *words: str) -> Any:
    entry = require_npm_entry("@modelcontextprotocol/inspector-cli/build/cli.js")
    done = subprocess.run(
        [require_modern_node(), str(entry), "--cli", *words],
        cwd=entry.parent,  # it looks for its own package.json beside the current directory
        env=_environment(directory),
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_inspector(directory: Path, url: str) -> None:
    """The inspector lists the tools over stdio and calls one over HTTP."""
    config = {
        "mcpServers": {"toolexec": {"command": SERVE[0], "args": [*SERVE[1:-1], str(directory / "toolexec.toml")]}}
    }
    (directory / "mcp.json").write_text(json.dumps(config))
    listed = _inspect(
        directory, "--config", str(directory / "mcp.json"), "--server", "toolexec", "--method", "tools/list"
    )
    assert "search_tools" in {tool["name"] for tool in listed["tools"]}
    call = ["--method", "tools/call", "--tool-name", "search_tools", "--tool-arg", "query=two numbers"]
    found = _inspect(directory, url, "--transport", "http", *call)
    assert found["content"][0]["text"].startswith("math:add(")
