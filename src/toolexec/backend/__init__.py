"""Where a tool's implementation lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.backend.aggregator import Aggregator, CollisionPolicy, HostedTool, Listing
    from toolexec.backend.base import Backend, BackendFactory, BackendStatus, LiveBackend, StreamingBackend
    from toolexec.backend.catalog import Catalog
    from toolexec.backend.local import LocalBackend
    from toolexec.backend.provider import ProviderBackend
    from toolexec.backend.registry import BackendRegistry
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.backend.aggregator": ("Aggregator", "CollisionPolicy", "HostedTool", "Listing"),
            "toolexec.backend.base": ("Backend", "BackendFactory", "BackendStatus", "LiveBackend", "StreamingBackend"),
            "toolexec.backend.catalog": ("Catalog",),
            "toolexec.backend.local": ("LocalBackend",),
            "toolexec.backend.provider": ("ProviderBackend",),
            "toolexec.backend.registry": ("BackendRegistry",),
        },
    )

__all__ = [
    "Aggregator",
    "Backend",
    "BackendFactory",
    "BackendRegistry",
    "BackendStatus",
    "Catalog",
    "CollisionPolicy",
    "HostedTool",
    "Listing",
    "LiveBackend",
    "LocalBackend",
    "ProviderBackend",
    "StreamingBackend",
]
