"""Code that calls tools: its limits, its tools, its trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.code.engine import Engine, Engines
    from toolexec.code.executor import CodeConfig, Executor
    from toolexec.code.gateway import Gateway
    from toolexec.code.handles import Handle, Handles
    from toolexec.code.limits import Limits, LimitsEnforced
    from toolexec.code.tools import Tools
    from toolexec.code.types import (
        BackendInfo,
        CodeEvent,
        CodeResult,
        ExecuteRequest,
        Output,
        ToolCallRecord,
    )
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.code.engine": ("Engine", "Engines"),
            "toolexec.code.executor": ("CodeConfig", "Executor"),
            "toolexec.code.gateway": ("Gateway",),
            "toolexec.code.handles": ("Handle", "Handles"),
            "toolexec.code.limits": ("Limits", "LimitsEnforced"),
            "toolexec.code.tools": ("Tools",),
            "toolexec.code.types": (
                "BackendInfo",
                "CodeEvent",
                "CodeResult",
                "ExecuteRequest",
                "Output",
                "ToolCallRecord",
            ),
        },
    )

__all__ = [
    "BackendInfo",
    "CodeConfig",
    "CodeEvent",
    "CodeResult",
    "Engine",
    "Engines",
    "ExecuteRequest",
    "Executor",
    "Gateway",
    "Handle",
    "Handles",
    "Limits",
    "LimitsEnforced",
    "Output",
    "ToolCallRecord",
    "Tools",
]
