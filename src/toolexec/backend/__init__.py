"""Where a tool's implementation lives."""

from toolexec.backend.aggregator import Aggregator, CollisionPolicy, HostedTool, Listing
from toolexec.backend.base import Backend, BackendFactory, BackendStatus, LiveBackend, StreamingBackend
from toolexec.backend.catalog import Catalog
from toolexec.backend.local import LocalBackend
from toolexec.backend.provider import ProviderBackend
from toolexec.backend.registry import BackendRegistry

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
