"""MCP servers in containers of Docker."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.engines.docker import IMAGE, DockerDaemon, docker_daemon, request
from tests.engines.tiny_server import TINY

from toolexec import Exec
from toolexec.errors import ConnectionLostError
from toolexec.machines import SandboxSettings

pytestmark = pytest.mark.full

__all__ = ["docker_daemon"]

BOX = {"engine": "docker", "image": IMAGE, "memory_bytes": 64 << 20, "pids": 32}


@pytest.fixture
async def ex(docker_daemon: DockerDaemon) -> AsyncIterator[Exec]:
    async with Exec(runtime_backends=SandboxSettings(docker_host=docker_daemon.host)) as ex:
        yield ex


async def call(ex: Exec, name: str, of: str = "") -> Any:
    """Return what a tool of the server gives, or its error."""
    result = await ex.run_tool(f"tiny:{name}", {"of": of})
    return result.value if result.error is None else result.error


def containers(daemon: DockerDaemon) -> list[Any]:
    """Return the containers that there are."""
    return json.loads(request(daemon.socket, "GET", "/containers/json?all=1")[1])


async def test_a_server_in_a_container_has_what_its_image_has(ex: Exec, docker_daemon: DockerDaemon) -> None:
    """No network, no variable of ours, no root; over its limits it is ended and said so; nothing of it stays."""
    [status] = await ex.add_mcp("tiny", command=["python3", "-c", TINY], env={"WORD": "named"}, sandbox=BOX)
    assert status.available, status.reason
    assert status.info["sandbox"] == "docker"
    assert await call(ex, "user") == 65534
    variables = await call(ex, "variables")
    assert variables["WORD"] == "named"
    assert "PYTEST_CURRENT_TEST" not in variables
    assert "root:" not in await call(ex, "look", "/etc/shadow")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert await call(ex, "connect", f"127.0.0.1:{listener.getsockname()[1]}") == "ConnectionRefusedError"
    assert await call(ex, "connect", "192.0.2.1:80") in ("OSError", "TimeoutError")
    assert await call(ex, "keep", "a") == "a"
    assert int(await call(ex, "multiply")) < 32
    error = await call(ex, "grow")
    assert isinstance(error, ConnectionLostError)
    assert "killed for its memory: sandbox.memory_bytes is 64 MiB" in error.message
    assert await call(ex, "keep", "b") == "b"  # a new container, which has nothing of the former
    error = await call(ex, "end", "3")
    assert isinstance(error, ConnectionLostError)
    assert "exited with 3" in error.message
    assert "giving up" in error.message
    await ex.remove("tiny")
    assert containers(docker_daemon) == []


async def test_an_image_that_is_not_there(ex: Exec, docker_daemon: DockerDaemon) -> None:
    """The server is unavailable, and why is said; so it is for a command that its image does not have."""
    [status] = await ex.add_mcp("none", command="python3", sandbox={"engine": "docker", "image": "toolexec-none"})
    assert not status.available
    assert "toolexec-none" in (status.reason or "")
    [status] = await ex.add_mcp("wrong", command="no-such-server", sandbox=BOX)
    assert not status.available
    assert "no-such-server" in (status.reason or "")
    assert containers(docker_daemon) == []


async def test_one_that_goes_on_is_removed_by_the_next(ex: Exec, docker_daemon: DockerDaemon) -> None:
    """A server that ignores the end of its input outlives a toolexec that is killed, until another one starts."""
    box = {**BOX, "image": IMAGE}
    program = f"""
        import asyncio
        from toolexec import Exec
        from toolexec.machines import SandboxSettings

        async def main():
            async with Exec(runtime_backends=SandboxSettings(docker_host={docker_daemon.host!r})) as ex:
                [status] = await ex.add_mcp(
                    "tiny", command=["python3", "-c", {TINY + "time.sleep(600)"!r}], sandbox={box!r}
                )
                print(status.available, flush=True)
                await asyncio.sleep(600)

        asyncio.run(main())
    """
    ran = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE)
    try:
        assert ran.stdout is not None
        assert await asyncio.to_thread(ran.stdout.readline) == b"True\n"
    finally:
        ran.kill()
        ran.communicate()
    [left] = containers(docker_daemon)
    [status] = await ex.add_mcp("tiny", command=["python3", "-c", TINY], sandbox=BOX)
    assert status.available
    [own] = containers(docker_daemon)
    assert own["Id"] != left["Id"]
