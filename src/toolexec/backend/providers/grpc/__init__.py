"""Methods of gRPC services as tools, by server reflection or from a descriptor set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.backend.providers.grpc.config import GRPCProvider, GRPCSettings
    from toolexec.backend.providers.grpc.making import grpc_source
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.backend.providers.grpc.config": ("GRPCProvider", "GRPCSettings"),
            "toolexec.backend.providers.grpc.making": ("grpc_source",),
        },
    )

__all__ = ["GRPCProvider", "GRPCSettings", "grpc_source"]
