"""The kind of sandbox `kata`: virtual machines through containerd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.plugin import SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.runtime.containers.kata import KataConfig
    from toolexec.runtime.sandboxes import SandboxSettings

__all__ = ["PLUGIN"]


def _read(settings: SandboxSettings) -> KataConfig:
    from toolexec.runtime.containers.kata import KataConfig

    return KataConfig(**settings.shared(), address=settings.containerd_address)


def _make(settings: KataConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec.runtime.containers.kata import KataBackend

    return KataBackend(settings)


PLUGIN = SandboxPlugin(
    kind="kata",
    api=1,
    settings="toolexec.runtime.containers.kata:KataConfig",
    make=_make,
    profiles={"hardened": 20},
    isolation="vm",
    experimental=True,
    read=_read,
)
