"""Where code runs: sandboxes, and the router that chooses among them by security profile."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
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
    from toolexec.runtime.router import CANDIDATES, Runtime
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.runtime.base": (
                "Availability",
                "ExecuteRequest",
                "ExecuteResult",
                "SandboxBackend",
                "SandboxSession",
                "SessionBackend",
            ),
            "toolexec.runtime.engine": ("RuntimeEngine",),
            "toolexec.runtime.outcome": ("Ending", "judge"),
            "toolexec.runtime.router": ("CANDIDATES", "Runtime"),
        },
    )

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

import_module("toolexec.runtime.moved")  # the former paths of modules, for one release
