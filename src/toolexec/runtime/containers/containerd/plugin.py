"""The kind of sandbox `containerd`: containers of a containerd daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.plugin import SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.runtime.containers.containerd import ContainerdConfig
    from toolexec.runtime.sandboxes import SandboxSettings

__all__ = ["PLUGIN"]


def _read(settings: SandboxSettings) -> ContainerdConfig:
    from toolexec.runtime.containers.containerd import ContainerdConfig

    return ContainerdConfig(**settings.shared(), address=settings.containerd_address)


def _make(settings: ContainerdConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec.runtime.containers.containerd import ContainerdBackend

    return ContainerdBackend(settings)


PLUGIN = SandboxPlugin(
    kind="containerd",
    api=1,
    settings="toolexec.runtime.containers.containerd:ContainerdConfig",
    make=_make,
    profiles={"standard": 40, "hardened": 60},
    isolation="container",
    read=_read,
)
