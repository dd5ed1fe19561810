"""The settings of a sandbox around an MCP server, and what becomes of one that cannot be started in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec
from toolexec.backend.mcp import MCPBackend, MCPServer, ServerSandboxSettings, read_mcp_servers
from toolexec.errors import ConfigurationError
from toolexec.runtime.containers.checks import why_not_shared
from toolexec.runtime.sandbox_settings import SandboxSettings


def test_the_name_of_an_engine_is_enough() -> None:
    """A mapping and the object itself say the same with more in it; without any there is no sandbox."""
    given = [MCPServer(name="s", command="c", sandbox=each) for each in ("bubblewrap", {}, ServerSandboxSettings())]
    assert {each.boxed for each in given} == {ServerSandboxSettings()}
    assert MCPServer(name="s", command="c").boxed is None


def test_paths_count_from_the_file_and_sizes_have_units(tmp_path: Path) -> None:
    """As they do for all other settings of files."""
    box = {"read": ["lib", "/opt/more"], "write": ["~/notes"], "memory_bytes": "64M", "hosts": ["api.example.com"]}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"s": {"command": "c", "sandbox": box}}}))
    [server] = read_mcp_servers(file)
    assert server.boxed is not None
    assert server.boxed.readable == (tmp_path / "lib", Path("/opt/more"))
    assert server.boxed.writable == (Path.home() / "notes",)
    assert server.boxed.memory_bytes == 64 << 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sandbox": {"raed": []}}, "did you mean read"),
        ({"sandbox": {"read": ["lib"]}}, "absolute paths, not 'lib'"),
        ({"sandbox": {"read": "/opt"}}, "read"),
        ({"sandbox": {"memory_bytes": "much"}}, '"512M"'),
        ({"sandbox": {"memory_bytes": 1}}, "memory_bytes"),
        ({"sandbox": {"pids": 0}}, "pids"),
        ({"sandbox": 1}, "sandbox must be"),
        ({"sandbox": "bubblewarp"}, "engine must be one of bubblewrap, docker"),
        ({"sandbox": {"engine": "wasm", "image": "i"}}, "engine must be one of bubblewrap, docker"),
        ({"sandbox": "docker"}, "docker needs an image"),
        ({"sandbox": {"engine": "docker", "image": "i", "hosts": ["a.example"]}}, "hosts is for bubblewrap only"),
        ({"sandbox": {"engine": "docker", "image": "i", "read": ["/opt"]}}, "read is for bubblewrap only"),
        ({"sandbox": {"write": ["/opt/w"]}, "isolation": "caller"}, "is the same for each caller"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], message: str) -> None:
    """By a message that names the server and the setting."""
    with pytest.raises(ConfigurationError, match=f"^MCP server.*{message}"):
        MCPServer(name="s", command="c", **settings)


def test_a_server_elsewhere_has_no_sandbox() -> None:
    """A sandbox for a URL would have no effect."""
    with pytest.raises(ConfigurationError, match="runs elsewhere"):
        MCPServer(name="s", url="https://example.com/mcp", sandbox="bubblewrap")


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ({"read": ["/etc"]}, "sandbox.read: /etc belongs to the host"),
        ({"read": ["/"]}, "sandbox.read: / belongs to the host"),
        ({"write": ["/run/docker.sock"]}, "sandbox.write: /run/docker.sock is the socket of a container engine"),
        ({"hosts": ["!a.example"]}, "excludes hosts"),
    ],
    ids=str,
)
async def test_what_no_server_gets_is_refused_where_it_is_added(box: dict[str, Any], message: str) -> None:
    """The operator learns it at once, and not by a server that is down."""
    async with Exec() as ex:
        with pytest.raises(ConfigurationError, match=message):
            ex.add_mcp("s", command="c", sandbox=box)


def test_all_of_a_home_is_not_shared_and_a_part_of_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys are in a home; what its owner names in it is theirs to give, but no socket of an engine."""
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    (home / "link").symlink_to("/etc")
    monkeypatch.setenv("HOME", str(home))
    assert why_not_shared(home / "project") == ""
    assert "belongs to the host" in why_not_shared(home / "link")
    assert "socket" in why_not_shared(home / "docker.sock")
    monkeypatch.setenv("HOME", "/root")
    assert "belongs to the host" in why_not_shared(Path("/root"))
    assert why_not_shared(Path("/root") / "project") == ""


def test_without_what_makes_sandboxes_one_cannot_be_asked_for() -> None:
    """The sandbox is never left out instead."""
    with pytest.raises(ConfigurationError, match=r"MCP server s: there are no sandboxes .* Exec.add_mcp"):
        MCPBackend(MCPServer(name="s", command="true", sandbox="bubblewrap"))


async def test_without_the_engine_the_server_is_unavailable(tmp_path: Path) -> None:
    """Nothing is started without; the reason says what to install."""
    mark = tmp_path / "started"
    settings = SandboxSettings(bwrap=str(tmp_path / "no-bwrap"))
    async with Exec(runtime_backends=settings) as ex:
        [status] = await ex.add_mcp("s", command=["touch", str(mark)], sandbox="bubblewrap")
        assert not status.available
        assert "cannot be started" in (status.reason or "")
        assert "apt-get install bubblewrap" in (status.reason or "")
    assert not mark.exists()
