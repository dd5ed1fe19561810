"""From settings to the source of gRPC tools; what needs grpcio is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.backend.providers.grpc.config import GRPCProvider
from toolexec.backend.secrets import SecretResolver
from toolexec.errors.extras import extra_needed
from toolexec.model.json_value import JSONObject

if TYPE_CHECKING:
    from toolexec.backend.providers.grpc.source import GRPCSource

__all__ = ["grpc_source"]


def grpc_source(name: str, settings: JSONObject, *, secrets: SecretResolver | None = None) -> GRPCSource:
    """Return the source of the methods that *settings* describe; see `GRPCProvider` and `MakeSource`."""
    provider = GRPCProvider.from_settings(name, settings, secrets=secrets)
    with extra_needed("grpc", f"provider {name}"):
        from toolexec.backend.providers.grpc.source import GRPCSource
    return GRPCSource(provider)
