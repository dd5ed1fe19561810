"""A backend on a Proxmox VE with tools that count, as the tests of containers and clones use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from packages.remote.tests.pve.cluster import ProxmoxCluster
from packages.remote.tests.tools import Workshop
from tests.waiting import reached

from toolexec.errors import SandboxFailedError
from toolexec.sandbox import CodeResult
from toolexec_remote.proxmox.backend import ProxmoxBackend

ONE = "return tools.shop.count(item=1)"
WAITS = "print('begun')\nreturn tools.shop.wait(item=7)"


class Stand:
    """A backend, its tools, and the cluster around it."""

    def __init__(self, node: ProxmoxCluster, backend: ProxmoxBackend) -> None:
        self.node = node
        self.backend = backend
        self.shop = Workshop()

    async def run(self, code: str = "return 6 * 7", **fields: Any) -> CodeResult:
        """Run a program."""
        return await self.backend.execute(self.shop.request(code, **fields))

    async def works(self) -> int:
        """Require that a program runs, and return the number of its container."""
        result = (await self.run()).raise_for_error()
        assert result.value == 42
        assert result.backend is not None
        return int(result.backend.details["vmid"])

    async def begin(self) -> asyncio.Task[CodeResult]:
        """Start a program that waits in a tool until the gate is open."""
        running = asyncio.create_task(self.run(WAITS))
        await reached(self.shop.begun, running)
        return running

    async def lost(self, take: Callable[[], Any]) -> SandboxFailedError:
        """Return the error of a program whose container is taken away in the middle; its output is in the result."""
        running = await self.begin()
        await asyncio.to_thread(take)
        result = await running
        assert isinstance(result.error, SandboxFailedError), result.error
        assert result.stdout == "begun\n"
        assert [call.tool_id for call in result.tool_calls] == ["shop:wait"]
        assert result.error.details["began"] is True
        assert result.error.outcome != "not_sent"
        assert result.error.backend == "proxmox_lxc"
        return result.error

    async def api(self, method: str, path: str, **fields: Any) -> Any:
        """Make a request as root, as another user of the cluster."""
        return await asyncio.to_thread(self.node.api, method, path, **fields)

    async def state(self, vmid: int = 100) -> str:
        """Return the status of a container."""
        return await asyncio.to_thread(self.node.state, vmid)

    def starts(self) -> int:
        """Return how often a container was started, or asked to."""
        return sum(line.endswith("/status/start") for line in self.node.control("log"))


@asynccontextmanager
async def stand(node: ProxmoxCluster, **fields: Any) -> AsyncGenerator[Stand]:
    """Give a backend with such settings, the container 100 unless a template is named; it is closed at the end."""
    backend = ProxmoxBackend(node.settings(**({} if "template" in fields else {"vmid": 100}) | fields))
    try:
        yield Stand(node, backend)
    finally:
        await backend.aclose()
