"""Sandboxes in the Linux containers of a Proxmox VE cluster, which are started, cloned and removed by its API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import lazy_names

if TYPE_CHECKING:
    from toolexec.remote import ProxmoxSettings
    from toolexec_remote.proxmox.backend import ProxmoxBackend
    from toolexec_remote.proxmox.client import ProxmoxClient
    from toolexec_remote.proxmox.failures import ProxmoxError
    from toolexec_remote.proxmox.rights import MissingPrivilegeError
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.remote": ("ProxmoxSettings",),
            "toolexec_remote.proxmox.backend": ("ProxmoxBackend",),
            "toolexec_remote.proxmox.client": ("ProxmoxClient",),
            "toolexec_remote.proxmox.failures": ("ProxmoxError",),
            "toolexec_remote.proxmox.rights": ("MissingPrivilegeError",),
        },
    )

__all__ = ["MissingPrivilegeError", "ProxmoxBackend", "ProxmoxClient", "ProxmoxError", "ProxmoxSettings"]
