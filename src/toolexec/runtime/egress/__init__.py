"""The only way from a sandbox to the network: a proxy on the host that knows which hosts and secrets are allowed."""

from __future__ import annotations

from toolexec.runtime.egress.authority import Authority
from toolexec.runtime.egress.environment import environment
from toolexec.runtime.egress.policy import Egress, EgressRecord, Secret
from toolexec.runtime.egress.proxy import EgressProxy
from toolexec.runtime.egress.secrets import ResolveSecret, resolve_with

__all__ = [
    "Authority",
    "Egress",
    "EgressProxy",
    "EgressRecord",
    "ResolveSecret",
    "Secret",
    "environment",
    "resolve_with",
]
