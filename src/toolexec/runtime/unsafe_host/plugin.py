"""The kind of sandbox `unsafe_host`: none at all, for the profile `dev` only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.plugin import SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.runtime.sandboxes import SandboxSettings
    from toolexec.runtime.unsafe_host import UnsafeConfig


def _read(_: SandboxSettings) -> UnsafeConfig:
    from toolexec.runtime.unsafe_host import UnsafeConfig

    return UnsafeConfig()


def _make(settings: UnsafeConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec.runtime.unsafe_host import UnsafeHostBackend

    return UnsafeHostBackend(settings)


PLUGIN = SandboxPlugin(
    kind="unsafe_host",
    api=1,
    settings="toolexec.runtime.unsafe_host:UnsafeConfig",
    make=_make,
    profiles={"dev": 10},
    isolation="none",
    read=_read,
)
