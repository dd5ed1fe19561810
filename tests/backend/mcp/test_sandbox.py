"""The settings of a sandbox around an MCP server, and what becomes of one that cannot be started in it."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec
from toolexec.backend.mcp import MCPBackend, MCPServer, ServerSandboxSettings, read_mcp_servers
from toolexec.backend.mcp.sandbox import ServerProgram
from toolexec.errors import ConfigurationError
from toolexec.process.child import Child
from toolexec.runtime.containers.checks import why_not_shared
from toolexec.runtime.sandbox_settings import SandboxSettings
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool


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
        ({"engine": "bubblewarp"}, "did you mean bubblewrap"),
        ({"engine": "docker"}, "docker needs an image"),
        ({"engine": "wasm", "image": "i"}, "no MCP server runs in wasm; use bubblewrap"),
        ({"engine": "kubernetes", "image": "i"}, "no MCP server runs in kubernetes; use bubblewrap"),
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


class Here(Child):
    """A server without walls, whose sandbox has something to say."""

    def explain(self) -> str:
        return "it wants the moon, and the word hunter22"


@dataclass
class Fake:
    """A sandbox that starts servers here, and notes which."""

    settings: ServerSandboxSettings
    started: list[ServerProgram] = field(default_factory=list)
    closed: int = 0

    async def check(self, program: ServerProgram | None = None) -> None:
        pass

    async def start(self, program: ServerProgram) -> Here:
        self.started.append(program)
        return Here(program.argv, env=program.env, cwd=program.cwd)

    async def aclose(self) -> None:
        self.closed += 1


async def test_each_connection_has_a_sandbox_that_gets_what_is_named() -> None:
    """The variables of `env` and no others; what it says of an end is in the reason, without secrets, and it is closed
    with its connection."""
    made: list[Fake] = []

    def make(settings: ServerSandboxSettings) -> Fake:
        made.append(Fake(settings))
        return made[-1]

    command, *args = ScriptedServer(tools=[ScriptedTool("echo", "Echo.")]).command()
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "WORD": "hunter22"}
    server = MCPServer(name="s", command=command, args=args, env=env, sandbox={"pids": 7}, stop_timeout=0.5)
    backend = MCPBackend(server, sandboxes=make)
    await backend.start()
    try:
        status = backend.status()
        assert status.available, status.reason
        assert (status.info["sandbox"], status.info["lacks"]) == ("bubblewrap", "it wants the moon, and the word ***")
        os.kill(int(str(status.info["pid"])), signal.SIGKILL)
        await until(lambda: len([each for each in made if each.started]) == 2 and backend.status().available)
        assert "it wants the moon" in str(backend.status().info["last_error"])
    finally:
        await backend.aclose()
    used = [each for each in made if each.started]
    assert [each.started for each in used] == [[ServerProgram(argv=[command, *args], env=env)]] * 2
    assert [(each.settings.pids, each.closed) for each in used] == [(7, 1)] * 2
