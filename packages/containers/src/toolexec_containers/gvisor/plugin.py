"""The kind of sandbox `gvisor`: a kernel of its own, in software."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import SandboxBackend, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.machines import SandboxSettings
    from toolexec_containers.gvisor import GvisorConfig


def _read(settings: SandboxSettings) -> GvisorConfig:
    from toolexec_containers.gvisor import GvisorConfig

    return GvisorConfig(**settings.shared(), runsc=settings.runsc)


def _make(settings: GvisorConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec_containers.gvisor import GvisorBackend

    return GvisorBackend(settings)


PLUGIN = SandboxPlugin(
    kind="gvisor",
    api=1,
    settings="toolexec_containers.gvisor:GvisorConfig",
    make=_make,
    profiles={"hardened": 10},
    isolation="gvisor",
    runs_servers=True,
    read=_read,
)
