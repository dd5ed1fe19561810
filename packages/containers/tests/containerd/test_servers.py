"""MCP servers in containers of containerd."""

from __future__ import annotations

import pytest
from packages.containers.tests.engines import containerd as daemons
from packages.containers.tests.engines.containerd import ContainerdDaemon
from tests.engines.images import test_image
from tests.engines.tiny_server import TINY

from toolexec import Exec
from toolexec.errors import ConnectionLostError
from toolexec.machines import SandboxSettings

pytestmark = pytest.mark.full
containerd_daemon = daemons.containerd_daemon


async def test_a_server_in_a_container(containerd_daemon: ContainerdDaemon) -> None:
    """Its calls work, it sees nothing of the host, and its end is said; nothing of it stays."""

    box = {"engine": "containerd", "image": test_image().name, "memory_bytes": 64 << 20}
    async with Exec(runtime_backends=SandboxSettings(containerd_address=containerd_daemon.socket)) as ex:
        [status] = await ex.add_mcp("tiny", command=["python3", "-c", TINY], sandbox=box)
        assert status.available, status.reason
        assert (await ex.run_tool("tiny:user", {"of": ""})).value == 65534
        assert "root:" not in (await ex.run_tool("tiny:look", {"of": "/etc/shadow"})).value
        assert (await ex.run_tool("tiny:connect", {"of": "192.0.2.1:80"})).value in ("OSError", "TimeoutError")
        error = (await ex.run_tool("tiny:end", {"of": "3"})).error
        assert isinstance(error, ConnectionLostError)
        assert "exited with 3" in error.message
        assert "giving up" in error.message
    containerd_daemon.check_left()
