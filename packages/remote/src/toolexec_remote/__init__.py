"""Sandboxes of other machines: the server that lends them, and the backend that uses them.

`use = ["remote"]` in a settings file works once this package is installed, and so does `toolexec runtime serve`.
Nothing is sent anywhere before something is to run:

>>> from toolexec_remote import RemoteBackend, RemoteSettings
>>> settings = RemoteSettings(endpoints=("https://a.example.com",), key_id="agents", token="secretref:env:TOKEN")
>>> backend = RemoteBackend(settings)
>>> backend.kind, backend.isolation
('remote', 'wasm')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import lazy_names

if TYPE_CHECKING:
    from toolexec.remote import ProxmoxSettings, RemoteSettings, SigningKey
    from toolexec_remote.backend import RemoteBackend
    from toolexec_remote.gateway import HttpGateway
    from toolexec_remote.proxmox.backend import ProxmoxBackend
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.remote": ("ProxmoxSettings", "RemoteSettings", "SigningKey"),
            "toolexec_remote.backend": ("RemoteBackend",),
            "toolexec_remote.gateway": ("HttpGateway",),
            "toolexec_remote.proxmox.backend": ("ProxmoxBackend",),
        },
    )

__all__ = ["HttpGateway", "ProxmoxBackend", "ProxmoxSettings", "RemoteBackend", "RemoteSettings", "SigningKey"]
