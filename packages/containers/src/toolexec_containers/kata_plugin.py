"""The kind of sandbox `kata`: virtual machines through containerd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import SandboxBackend, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.machines import SandboxSettings
    from toolexec_containers.kata import KataConfig


def _read(settings: SandboxSettings) -> KataConfig:
    from toolexec_containers.kata import KataConfig

    return KataConfig(**settings.shared(), address=settings.containerd_address)


def _make(settings: KataConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec_containers.kata import KataBackend

    return KataBackend(settings)


PLUGIN = SandboxPlugin(
    kind="kata",
    api=1,
    settings="toolexec_containers.kata:KataConfig",
    make=_make,
    profiles={"hardened": 20},
    isolation="vm",
    experimental=True,
    read=_read,
)
