"""Find tools, read about them, run them, chain them, stream them, wherever they live.

The names below are the front door; everything else is one package deeper. They are loaded at their first use, so that
importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolexec.version import __version__

if TYPE_CHECKING:
    from toolexec.backend import BackendStatus, LocalBackend, ProviderBackend
    from toolexec.backend.mcp import MCPBackend, MCPServer
    from toolexec.code import CodeEvent, CodeResult, Limits
    from toolexec.discovery import (
        BM25Searcher,
        Discovery,
        DocEntry,
        Filters,
        InMemoryDocStore,
        InMemoryIndex,
        LexicalSearcher,
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
        MCPBinding,
        Progress,
        ProviderBinding,
        Tool,
        ToolAnnotations,
        ToolBuilder,
        ToolContext,
        ToolReply,
        tool,
    )
    from toolexec.run import Result, StepResult, StreamEvent, TraceEvent
    from toolexec.run.gate import Gate
    from toolexec.run.policy import Policy, Rule
    from toolexec.runtime import Runtime
    from toolexec.runtime.backend.wasm import WasmBackend, WasmConfig

_HOMES: dict[str, tuple[str, ...]] = {
    "toolexec.backend": ("BackendStatus", "LocalBackend", "ProviderBackend"),
    "toolexec.backend.mcp": ("MCPBackend", "MCPServer"),
    "toolexec.discovery": (
        "BM25Searcher",
        "Discovery",
        "DocEntry",
        "Filters",
        "InMemoryDocStore",
        "InMemoryIndex",
        "LexicalSearcher",
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
    "toolexec.code": ("CodeEvent", "CodeResult", "Limits"),
    "toolexec.runtime": ("Runtime",),
    "toolexec.runtime.backend.wasm": ("WasmBackend", "WasmConfig"),
    "toolexec.exec": ("ChainResult", "Exec", "Options", "Step", "SyncExec"),
    "toolexec.model": (
        "LocalBinding",
        "MCPBinding",
        "Progress",
        "ProviderBinding",
        "Tool",
        "ToolAnnotations",
        "ToolBuilder",
        "ToolContext",
        "ToolReply",
        "tool",
    ),
    "toolexec.run.gate": ("Gate",),
    "toolexec.run.policy": ("Policy", "Rule"),
    "toolexec.run": ("Result", "StepResult", "StreamEvent", "TraceEvent"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BM25Searcher",
    "BackendStatus",
    "BackendUnavailableError",
    "ChainResult",
    "CodeError",
    "CodeEvent",
    "CodeResult",
    "ConfigurationError",
    "Discovery",
    "DocEntry",
    "Exec",
    "ExecutionError",
    "Filters",
    "Gate",
    "InMemoryDocStore",
    "InMemoryIndex",
    "InputValidationError",
    "LexicalSearcher",
    "LimitExceededError",
    "Limits",
    "LocalBackend",
    "LocalBinding",
    "MCPBackend",
    "MCPBinding",
    "MCPServer",
    "Options",
    "Policy",
    "Progress",
    "ProviderBackend",
    "ProviderBinding",
    "Result",
    "Rule",
    "Runtime",
    "SandboxUnavailableError",
    "Step",
    "StepResult",
    "StreamEvent",
    "Summary",
    "SyncExec",
    "Tool",
    "ToolAnnotations",
    "ToolBuilder",
    "ToolContext",
    "ToolDoc",
    "ToolExample",
    "ToolExecError",
    "ToolNotFoundError",
    "ToolReply",
    "ToolTimeoutError",
    "Toolset",
    "TraceEvent",
    "WasmBackend",
    "WasmConfig",
    "__version__",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'toolexec' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
