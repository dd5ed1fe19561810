"""Code that calls tools: its limits, its tools, its trace."""

from toolexec.code.engine import Engine, Engines
from toolexec.code.executor import CodeConfig, Executor
from toolexec.code.gateway import Gateway
from toolexec.code.handles import Handle, Handles
from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.code.tools import Tools
from toolexec.code.types import BackendInfo, CodeEvent, CodeParams, CodeResult, ExecuteRequest, Output, ToolCallRecord

__all__ = [
    "BackendInfo",
    "CodeConfig",
    "CodeEvent",
    "CodeParams",
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
