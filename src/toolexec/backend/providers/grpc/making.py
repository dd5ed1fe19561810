"""From settings to the source of gRPC tools; what needs grpcio is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolexec.backend.providers.grpc.config import GRPCProvider
from toolexec.backend.secrets import SecretResolver
from toolexec.errors.extras import extra_needed

if TYPE_CHECKING:
    from toolexec.backend.providers.grpc.source import GRPCSource

__all__ = ["grpc_source"]


def grpc_source(name: str, settings: Mapping[str, Any], *, secrets: SecretResolver | None = None) -> GRPCSource:
    """Return the source of the methods that *settings* describe; see `GRPCProvider` and `MakeSource`."""
    provider = GRPCProvider.from_settings(name, settings, secrets=secrets)
    with extra_needed("grpc", f"provider {name}"):
        from toolexec.backend.providers.grpc.source import GRPCSource
    return GRPCSource(provider)
