"""Methods of gRPC services as tools, by server reflection or from a descriptor set.

`Exec.add_grpc` and `kind = "grpc"` in a settings file work once this package is installed. What is checked without a
server is checked at once:

>>> from toolexec import Exec
>>> with Exec().sync as ex:
...     ex.add_grpc("shop", "unix:/nowhere/shop.sock").available
False
"""

from __future__ import annotations

from toolexec_grpc.config import AddedGRPC, GRPCProvider, GRPCSettings
from toolexec_grpc.making import grpc_source

__all__ = ["AddedGRPC", "GRPCProvider", "GRPCSettings", "grpc_source"]
