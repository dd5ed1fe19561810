"""What settings say of sandboxes of other machines: where they are, the keys, and how a server lends them.

The package toolexec-remote does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.runtime.remote.keys import SigningKey
    from toolexec.runtime.remote.proxmox_settings import ProxmoxSettings
    from toolexec.runtime.remote.server_settings import RuntimeServerSettings, TenantQuota
    from toolexec.runtime.remote.settings import RemoteSettings
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.runtime.remote.keys": ("SigningKey",),
            "toolexec.runtime.remote.proxmox_settings": ("ProxmoxSettings",),
            "toolexec.runtime.remote.server_settings": ("RuntimeServerSettings", "TenantQuota"),
            "toolexec.runtime.remote.settings": ("RemoteSettings",),
        },
    )

__all__ = ["ProxmoxSettings", "RemoteSettings", "RuntimeServerSettings", "SigningKey", "TenantQuota"]
