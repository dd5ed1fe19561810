"""MCP servers in gVisor."""

from __future__ import annotations

import pytest
from packages.containers.tests.engines.containerd import require_runsc
from tests.engines.images import TEST_IMAGE, test_image
from tests.engines.tiny_server import TINY

from toolexec import Exec
from toolexec.errors import ConnectionLostError

pytestmark = pytest.mark.full


async def test_a_server_in_gvisor() -> None:
    """Its calls work, it sees nothing of the host, and its end is said."""
    require_runsc()
    test_image()
    box = {"engine": "gvisor", "image": TEST_IMAGE}
    async with Exec() as ex:
        [status] = await ex.add_mcp("tiny", command=["python3", "-c", TINY], sandbox=box)
        assert status.available, status.reason
        assert (await ex.run_tool("tiny:user", {"of": ""})).value == 65534
        assert "root:" not in (await ex.run_tool("tiny:look", {"of": "/etc/shadow"})).value
        assert (await ex.run_tool("tiny:connect", {"of": "192.0.2.1:80"})).value in ("OSError", "TimeoutError")
        error = (await ex.run_tool("tiny:end", {"of": "3"})).error
        assert isinstance(error, ConnectionLostError)
        assert "exited with 3" in error.message
        assert "giving up" in error.message
