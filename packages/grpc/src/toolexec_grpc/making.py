"""From settings to the source of gRPC tools; grpcio, which is large, is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.provider import JSONObject, SecretResolver
from toolexec_grpc.config import GRPCProvider

if TYPE_CHECKING:
    from toolexec_grpc.source import GRPCSource


def grpc_source(name: str, settings: JSONObject, *, secrets: SecretResolver | None = None) -> GRPCSource:
    """Return the source of the methods that *settings* describe; see `GRPCProvider` and `MakeSource`."""
    provider = GRPCProvider.from_settings(name, settings, secrets=secrets)
    from toolexec_grpc.source import GRPCSource

    return GRPCSource(provider)
