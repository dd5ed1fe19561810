"""Find tools, read about them, run them, chain them, stream them, wherever they live.

The names below are the front door; everything else is one package deeper. They are loaded at their first use, so that
importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names
from toolexec.version import __version__

if TYPE_CHECKING:
    from toolexec.backend import LocalBackend
    from toolexec.backend.mcp import MCPServer
    from toolexec.code import CodeResult, Limits
    from toolexec.discovery import (
        DocEntry,
        Filters,
        InMemoryIndex,
        Summary,
        ToolDoc,
        ToolExample,
        Toolset,
    )
    from toolexec.errors import (
        BackendUnavailableError,
        CodeError,
        ConfigurationError,
        ExecutionError,
        InputValidationError,
        LimitExceededError,
        SandboxUnavailableError,
        ToolExecError,
        ToolNotFoundError,
        ToolTimeoutError,
    )
    from toolexec.exec import ChainResult, Exec, Options, Step, SyncExec
    from toolexec.model import (
        LocalBinding,
        Progress,
        Tool,
        ToolAnnotations,
        ToolContext,
        ToolReply,
        tool,
    )
    from toolexec.run import Result, StreamEvent
    from toolexec.run.gate import Gate
    from toolexec.run.policy import Policy, Rule
    from toolexec.runtime import Runtime
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "toolexec.backend": ("LocalBackend",),
            "toolexec.backend.mcp": ("MCPServer",),
            "toolexec.code": ("CodeResult", "Limits"),
            "toolexec.discovery": (
                "DocEntry",
                "Filters",
                "InMemoryIndex",
                "Summary",
                "ToolDoc",
                "ToolExample",
                "Toolset",
            ),
            "toolexec.errors": (
                "BackendUnavailableError",
                "CodeError",
                "ConfigurationError",
                "ExecutionError",
                "InputValidationError",
                "LimitExceededError",
                "SandboxUnavailableError",
                "ToolExecError",
                "ToolNotFoundError",
                "ToolTimeoutError",
            ),
            "toolexec.exec": ("ChainResult", "Exec", "Options", "Step", "SyncExec"),
            "toolexec.model": (
                "LocalBinding",
                "Progress",
                "Tool",
                "ToolAnnotations",
                "ToolContext",
                "ToolReply",
                "tool",
            ),
            "toolexec.run": ("Result", "StreamEvent"),
            "toolexec.run.gate": ("Gate",),
            "toolexec.run.policy": ("Policy", "Rule"),
            "toolexec.runtime": ("Runtime",),
        },
    )[0]

__all__ = [
    "BackendUnavailableError",
    "ChainResult",
    "CodeError",
    "CodeResult",
    "ConfigurationError",
    "DocEntry",
    "Exec",
    "ExecutionError",
    "Filters",
    "Gate",
    "InMemoryIndex",
    "InputValidationError",
    "LimitExceededError",
    "Limits",
    "LocalBackend",
    "LocalBinding",
    "MCPServer",
    "Options",
    "Policy",
    "Progress",
    "Result",
    "Rule",
    "Runtime",
    "SandboxUnavailableError",
    "Step",
    "StreamEvent",
    "Summary",
    "SyncExec",
    "Tool",
    "ToolAnnotations",
    "ToolContext",
    "ToolDoc",
    "ToolExample",
    "ToolExecError",
    "ToolNotFoundError",
    "ToolReply",
    "ToolTimeoutError",
    "Toolset",
    "__version__",
    "tool",
]


def __dir__() -> list[str]:
    return sorted(__all__)
