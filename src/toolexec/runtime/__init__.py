"""Where code runs: sandboxes, and the router that chooses among them by security profile."""

from toolexec.runtime.base import (
    Availability,
    ExecuteRequest,
    ExecuteResult,
    SandboxBackend,
    SandboxSession,
    SessionBackend,
)
from toolexec.runtime.engine import RuntimeEngine
from toolexec.runtime.outcome import Ending, judge
from toolexec.runtime.runtime import CANDIDATES, Runtime

__all__ = [
    "CANDIDATES",
    "Availability",
    "Ending",
    "ExecuteRequest",
    "ExecuteResult",
    "Runtime",
    "RuntimeEngine",
    "SandboxBackend",
    "SandboxSession",
    "SessionBackend",
    "judge",
]
