"""The contract suite and the escape battery in a container of Proxmox VE: through its API, and the runtime inside."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
from packages.remote.tests.pve.cluster import ProxmoxCluster, proxmox_cluster
from tests.contract.afar import parts_from_afar
from tests.held_out.running import escaped

from toolexec.sandbox import SandboxBackend
from toolexec.testing.escape_battery import run_battery
from toolexec.testing.escapes import Escape
from toolexec.testing.sandbox_snippets import JAVASCRIPT, PYTHON, Snippets
from toolexec.testing.sandbox_suite import SANDBOX_CHECKS, MakeSandbox, run_sandbox_check
from toolexec_remote.proxmox.backend import ProxmoxBackend

__all__ = ["proxmox_cluster"]
pytestmark = pytest.mark.full


def maker(cluster: ProxmoxCluster) -> MakeSandbox:
    """Make the sandbox that the suite checks; the container stays up for the next check."""

    @asynccontextmanager
    async def make() -> AsyncGenerator[SandboxBackend]:
        backend = ProxmoxBackend(cluster.settings(vmid=100))
        found = await backend.check()
        assert found.ok, found
        try:
            yield backend
        finally:
            await backend.aclose()

    return make


@pytest.mark.parametrize(
    "snippets", [pytest.param(PYTHON, id="python"), pytest.param(JAVASCRIPT, id="javascript", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("check", SANDBOX_CHECKS)
async def test_containers_of_proxmox_keep_the_contract(
    proxmox_cluster: ProxmoxCluster, check: str, snippets: Snippets
) -> None:
    """Each check passes with bubblewrap in a Linux container at the other end."""
    await run_sandbox_check(maker(proxmox_cluster), check, snippets)


@pytest.mark.parametrize("escapes", parts_from_afar())
async def test_nothing_escapes_from_containers_of_proxmox(
    proxmox_cluster: ProxmoxCluster, escapes: Sequence[Escape]
) -> None:
    """Hostile programs harm neither the container nor the client."""
    async with maker(proxmox_cluster)() as backend:
        (await run_battery(backend, escapes=escapes)).raise_for_gaps()


async def test_no_attack_of_others_gets_out(proxmox_cluster: ProxmoxCluster) -> None:
    """Attacks that are not of the battery get nothing out of a sandbox in a container of Proxmox VE."""
    async with maker(proxmox_cluster)() as backend:
        assert await escaped(backend) == {}
