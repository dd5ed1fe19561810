"""A node whose containers are entries alone, for tests of the API and of who may use it: nothing runs in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packages.remote.tests.pve.lxc import Container, LxcNode


class PlainNode(LxcNode):
    """Containers without volumes and processes. Each has the address of this machine, where a test may have a runtime
    that stands for the one in all of them."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"), "192.0.2", {})
        self._running: set[int] = set()

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    def create(self, vmid: int, *, sandbox: str = "", template: bool = False, broken: str = "") -> None:
        """Make a container."""
        config: dict[str, Any] = {"hostname": f"CT{vmid}", "memory": 512, "ostype": "debian"}
        self._add(vmid, {**config, **({"template": 1} if template else {})}, None)

    async def copy(self, source: Container, made: Container) -> None:
        """Do nothing: a clone is its entry."""

    async def snapshot(self, container: Container, name: str) -> None:
        """Do nothing: there is nothing to keep."""

    async def rollback(self, container: Container, name: str) -> None:
        """Stop it."""
        await self.stop(container.vmid)

    async def destroy(self, container: Container) -> None:
        """Remove it."""
        del self.containers[container.vmid]

    async def start(self, container: Container) -> None:
        """Have it run."""
        self._running.add(container.vmid)

    async def stop(self, vmid: int) -> None:
        """Have it run no longer."""
        self._running.discard(vmid)

    async def shutdown(self, vmid: int, seconds: int, *, force: bool) -> None:
        """Have it run no longer."""
        await self.stop(vmid)

    async def pid(self, vmid: int) -> int:
        """Return its number while it runs."""
        return vmid if vmid in self._running else 0

    async def interfaces(self, vmid: int) -> list[dict[str, Any]] | None:
        """Return its interface; None while it does not run."""
        return [{"name": "eth0", "inet": "127.0.0.1/8"}] if vmid in self._running else None
