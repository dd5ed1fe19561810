"""Sandboxes in the Linux containers of a Proxmox VE cluster, which are started, cloned and removed by its API.

The extra `remote` has what this needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.runtime.remote.proxmox.backend import ProxmoxBackend
    from toolexec.runtime.remote.proxmox.client import ProxmoxClient
    from toolexec.runtime.remote.proxmox.failures import ProxmoxError
    from toolexec.runtime.remote.proxmox_settings import ProxmoxSettings
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.runtime.remote.proxmox.backend": ("ProxmoxBackend",),
            "toolexec.runtime.remote.proxmox.client": ("ProxmoxClient",),
            "toolexec.runtime.remote.proxmox.failures": ("ProxmoxError",),
            "toolexec.runtime.remote.proxmox_settings": ("ProxmoxSettings",),
        },
    )

__all__ = ["ProxmoxBackend", "ProxmoxClient", "ProxmoxError", "ProxmoxSettings"]
