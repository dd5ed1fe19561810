"""The kind of sandbox `bubblewrap`: Linux namespaces, without a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.plugin import SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.runtime.containers.bubblewrap import BubblewrapConfig
    from toolexec.runtime.sandboxes import SandboxSettings


def _read(settings: SandboxSettings) -> BubblewrapConfig:
    from toolexec.runtime.containers.bubblewrap import BubblewrapConfig

    return BubblewrapConfig(**settings.shared(), bwrap=settings.bwrap)


def _make(settings: BubblewrapConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec.runtime.containers.bubblewrap import BubblewrapBackend

    return BubblewrapBackend(settings)


PLUGIN = SandboxPlugin(
    kind="bubblewrap",
    api=1,
    settings="toolexec.runtime.containers.bubblewrap:BubblewrapConfig",
    make=_make,
    profiles={"standard": 20},
    isolation="container",
    runs_servers=True,
    read=_read,
)
