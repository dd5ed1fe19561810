"""The kind of sandbox `gvisor`: a kernel of its own, in software."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.plugin import SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.runtime.containers.gvisor import GvisorConfig
    from toolexec.runtime.sandboxes import SandboxSettings

__all__ = ["PLUGIN"]


def _read(settings: SandboxSettings) -> GvisorConfig:
    from toolexec.runtime.containers.gvisor import GvisorConfig

    return GvisorConfig(**settings.shared(), runsc=settings.runsc)


def _make(settings: GvisorConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec.runtime.containers.gvisor import GvisorBackend

    return GvisorBackend(settings)


PLUGIN = SandboxPlugin(
    kind="gvisor",
    api=1,
    settings="toolexec.runtime.containers.gvisor:GvisorConfig",
    make=_make,
    profiles={"hardened": 10},
    isolation="gvisor",
    read=_read,
)
