"""Where code runs: sandboxes, and the router that chooses among them by security profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.code.types import ExecuteRequest
    from toolexec.runtime.base import Availability, SandboxBackend, SandboxSession, SessionBackend
    from toolexec.runtime.outcome import Ending, judge
    from toolexec.runtime.router import CANDIDATES, Runtime
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.code.types": ("ExecuteRequest",),
            "toolexec.runtime.base": ("Availability", "SandboxBackend", "SandboxSession", "SessionBackend"),
            "toolexec.runtime.outcome": ("Ending", "judge"),
            "toolexec.runtime.router": ("CANDIDATES", "Runtime"),
        },
    )

__all__ = [
    "CANDIDATES",
    "Availability",
    "Ending",
    "ExecuteRequest",
    "Runtime",
    "SandboxBackend",
    "SandboxSession",
    "SessionBackend",
    "judge",
]
