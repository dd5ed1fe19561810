"""The kind of sandbox `containerd`: containers of a containerd daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import SandboxBackend, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.machines import SandboxSettings
    from toolexec_containers.containerd import ContainerdConfig


def _read(settings: SandboxSettings) -> ContainerdConfig:
    from toolexec_containers.containerd import ContainerdConfig

    return ContainerdConfig(**settings.shared(), address=settings.containerd_address)


def _make(settings: ContainerdConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec_containers.containerd import ContainerdBackend

    return ContainerdBackend(settings)


PLUGIN = SandboxPlugin(
    kind="containerd",
    api=1,
    settings="toolexec_containers.containerd:ContainerdConfig",
    make=_make,
    profiles={"standard": 40, "hardened": 60},
    isolation="container",
    runs_servers=True,
    read=_read,
)
