"""The kind of sandbox `proxmox_lxc`: containers of Proxmox VE, with a remote runtime in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.errors import ConfigurationError
from toolexec.sandbox import DoctorAdvice, SandboxBackend, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.remote import ProxmoxSettings, SandboxSettings


def _read(settings: SandboxSettings) -> ProxmoxSettings | None:
    return settings.proxmox


def _make(settings: ProxmoxSettings | None, _: SandboxContext) -> SandboxBackend:
    from toolexec_remote.proxmox.backend import ProxmoxBackend

    if settings is None:
        raise ConfigurationError(
            "the sandbox proxmox_lxc needs to know where Proxmox VE is: set sandboxes.proxmox.url, node, and vmid or "
            "template"
        )
    return ProxmoxBackend(settings)


PLUGIN = SandboxPlugin(
    kind="proxmox_lxc",
    api=1,
    settings="toolexec.remote:ProxmoxSettings",
    make=_make,
    profiles={"standard": 60},
    doctor=DoctorAdvice(set_up="set url, token_id, token_secret, node and vmid in [sandboxes.proxmox]"),
    read=_read,
)
