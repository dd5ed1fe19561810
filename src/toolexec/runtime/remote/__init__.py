"""Sandboxes of other machines: the server that lends them, and the backend that uses them.

The extra `remote` has what both need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.runtime.remote.backend import RemoteBackend
    from toolexec.runtime.remote.gateway import HttpGateway
    from toolexec.runtime.remote.keys import SigningKey
    from toolexec.runtime.remote.settings import RemoteSettings
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.runtime.remote.backend": ("RemoteBackend",),
            "toolexec.runtime.remote.gateway": ("HttpGateway",),
            "toolexec.runtime.remote.settings": ("RemoteSettings",),
            "toolexec.runtime.remote.keys": ("SigningKey",),
        },
    )

__all__ = ["HttpGateway", "RemoteBackend", "RemoteSettings", "SigningKey"]
