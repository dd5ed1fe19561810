"""Which limits hold in a guest, whatever its language."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from toolexec.code.limits import CountedGateway, LimitsEnforced
from toolexec.code.tools import Tools
from toolexec.code.types import ExecuteRequest
from toolexec.runtime.claims import claim_limits

_COUNTED: Final = claim_limits(
    timeout=True, tool_calls=True, chain_steps=True, memory=True, cpu=True, cpus=False, pids=True, disk=True
)
_UNCOUNTED: Final = replace(_COUNTED, tool_calls=False, chain_steps=False)


def enforced_by_wasm(request: ExecuteRequest) -> LimitsEnforced:
    """Return all limits but a rate of CPU, and those of calls where the gateway counts them; a guest has no processes
    at all."""
    return _COUNTED if isinstance(request.gateway, Tools | CountedGateway) else _UNCOUNTED
