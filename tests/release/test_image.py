"""The container images, built from the wheels and run as operators do: sealed, not as root, and asked by a client."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from release.image import SEALED, TARGETS, bill_of, build_images
from release.projects import version
from tests.engines.docker import DockerDaemon
from tests.engines.programs import free_port, require_program
from tests.tiers import missing
from tests.waiting import until_blocking

from toolexec.runtime.images.store import ImageStore

pytestmark = [pytest.mark.soak, pytest.mark.anyio]

BASE = "toolexec-test-base"
KEY = "k" * 32
TOOLS = '''from toolexec import tool


@tool("team:offices", read_only=True)
def offices() -> dict[str, str]:
    """Lists our offices."""
    return {"Bern": "Europe/Zurich"}
'''
SERVE = f"""[server]
transport = "http"
host = "0.0.0.0"
expose = "meta"

[http]
behind_proxy = true
allowed_hosts = ["127.0.0.1"]

[sources]
python = ["/etc/toolexec/app.py"]

[[auth.api_keys]]
id = "ci"
sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"
"""
RUNTIME = f"""[sandboxes]
use = ["wasm"]

[[runtime_server.keys]]
id = "agents"
token = "{KEY}"
"""


class Engine:
    """A daemon's own command, and the containers that it has started."""

    def __init__(self, daemon: DockerDaemon) -> None:
        self._words = [require_program("docker", "docker.io"), "--host", daemon.host]

    def run(self, *words: str) -> str:
        """Return what a command prints."""
        done = subprocess.run([*self._words, *words], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout.strip()

    def health(self, container: str) -> str:
        """Return what the image's own check has found out, and fail with the log of a container that has ended."""
        state = json.loads(self.run("inspect", "--format", "{{json .State}}", container))
        assert state["Running"], self.run("logs", container)
        return state["Health"]["Status"]


@pytest.fixture(scope="session")
def base() -> str:
    """Return the image that both are built on, where it is; that is known before the wheels are built."""
    if ImageStore().find(BASE) is None:
        missing(f"there is no image {BASE}", f"toolexec image build --name {BASE} --with pip")
    return BASE


@pytest.fixture(scope="module")
def engine(base: str, wheels: Path) -> Iterator[Engine]:
    """Give a daemon that has both images, each built on Debian's packages without a network."""
    daemon = DockerDaemon()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", daemon.host)
        patch.setenv("DOCKER_BUILDKIT", "0")  # what Debian has of Docker comes without the other builder
        try:
            daemon.start()
            assert build_images(wheels, base) == [f"{name}:{version()}" for name in TARGETS.values()]
            yield Engine(daemon)
        finally:
            daemon.stop()


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    """Return the options that mount a directory of settings, which the image's user can read."""
    tmp_path.chmod(0o755)
    for name, text in (("app.py", TOOLS), ("toolexec.toml", SERVE)):
        (tmp_path / name).write_text(text)
    return ["--volume", f"{tmp_path}:/etc/toolexec:ro"]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_says_how_it_is(engine: Engine, target: str, settings: list[str], tmp_path: Path) -> None:
    """Its own check finds it healthy, in a container without a network, rights or root, whose file system it cannot
    write to."""
    if target == "runtime":
        (tmp_path / "toolexec.toml").write_text(RUNTIME)
    tag = f"{TARGETS[target]}:{version()}"
    container = engine.run(
        "run", "--detach", "--network", "none", "--health-interval", "1s", *SEALED, *settings, "--log-driver",
        "json-file", tag,
    )  # fmt: skip
    try:
        until_blocking(lambda: engine.health(container) == "healthy", 0.5)
        asked = "import os, sys; print(os.getuid(), os.getgid(), os.access('/', os.W_OK), os.path.exists('/wheels'))"
        assert engine.run("exec", container, "python", "-c", asked) == "10001 10001 False False"
        tools = "import importlib.util as u, shutil; print(u.find_spec('pip'), shutil.which('pip'), shutil.which('cc'))"
        assert engine.run("exec", container, "python", "-c", tools) == "None None None"
    finally:
        engine.run("rm", "--force", "--volumes", container)


async def test_an_image_serves_a_client(engine: Engine, settings: list[str]) -> None:
    """A client of MCP calls a tool, and has a program run that calls it; nothing is compiled for that."""
    port = free_port()
    container = engine.run(
        "run", "--detach", "--network", "host", "--health-interval", "1s", *SEALED, *settings, "--log-driver",
        "json-file", "--health-cmd", f"python -I /usr/local/lib/toolexec/probe.py http://127.0.0.1:{port}/healthz",
        f"toolexec:{version()}", "serve", "-c", "/etc/toolexec/toolexec.toml", "--port", str(port),
    )  # fmt: skip
    try:
        until_blocking(lambda: engine.health(container) == "healthy", 0.5)
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=120) as http:
            transport: Any = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
            async with Client(transport) as client:
                called = await client.call_tool("run_tool", {"tool_id": "team:offices", "args": {}})
                assert "Europe/Zurich" in str(called.content)
                code = "return [name for name in tools.team.offices()]"
                ran = await client.call_tool("execute_code", {"code": code})
                assert "Bern" in str(ran.content), ran
        assert "compiling" not in engine.run("logs", container)
    finally:
        engine.run("rm", "--force", "--volumes", container)


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_says_what_is_inside(engine: Engine, target: str) -> None:
    """Its bill of materials has each distribution that its Python finds, at that version, and no installer."""
    name = f"{TARGETS[target]}:{version()}"
    program = "import importlib.metadata as m, json; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
    found = json.loads(engine.run("run", "--rm", "--network", "none", "--entrypoint", "python", name, "-c", program))
    listed = {each["name"]: each["version"] for each in bill_of(name)["components"]}
    assert {
        each.replace("_", "-").replace(".", "-"): number for each, number in found.items()
    }.items() <= listed.items()
    assert listed["toolexec"] == version()
    assert "pip" not in listed
