"""The kind of sandbox `remote`: sandboxes of other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.errors import ConfigurationError
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.plugin import DoctorAdvice, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.runtime.remote.settings import RemoteSettings
    from toolexec.runtime.sandboxes import SandboxSettings

__all__ = ["PLUGIN"]


def _read(settings: SandboxSettings) -> RemoteSettings | None:
    return settings.remote


def _make(settings: RemoteSettings | None, _: SandboxContext) -> SandboxBackend:
    from toolexec.runtime.remote.backend import RemoteBackend

    if settings is None:
        raise ConfigurationError(
            "the sandbox remote needs to know where its servers are: set sandboxes.remote.endpoints"
        )
    return RemoteBackend(settings)


PLUGIN = SandboxPlugin(
    kind="remote",
    api=1,
    settings="toolexec.runtime.remote.settings:RemoteSettings",
    make=_make,
    profiles={"standard": 70},
    doctor=DoctorAdvice(set_up="set endpoints, key_id and token in [sandboxes.remote]"),
    read=_read,
)
