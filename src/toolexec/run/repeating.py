"""Which calls may be made again, and what a failure says about the tool's backend."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from toolexec.discovery.index import Registered
from toolexec.errors import (
    BackendError,
    ConfigurationError,
    Outcome,
    OutputValidationError,
    RateLimitedError,
    ToolExecError,
)
from toolexec.model.tool import Tool

__all__ = ["above_zero", "backend_failed", "circuit_key", "is_repeatable", "may_repeat", "outcome_of"]


def is_repeatable(tool: Tool) -> bool:
    """Return whether calling the tool again does no harm: it is marked read-only or idempotent, and not destructive."""
    hints = tool.annotations
    return (hints.read_only or hints.idempotent) and not hints.destructive


def may_repeat(tool: Tool, failure: ToolExecError) -> bool:
    """Return whether a call of the tool that failed may be made again.

    The failure must be one that another attempt may not meet, and either the tool is repeatable, or the call certainly
    never began. A call of a destructive tool is never repeated.
    """
    if not failure.retryable or tool.annotations.destructive:
        return False
    return is_repeatable(tool) or failure.outcome is Outcome.NOT_SENT


def backend_failed(failure: ToolExecError) -> bool | None:
    """Return whether the failure is the backend's: True for one that is down, overloaded or late, False for an answer
    that says no, None where the backend was not asked."""
    if failure.retryable:
        return None if isinstance(failure, RateLimitedError) else True
    if isinstance(failure, BackendError):
        return None
    return None if failure.never_began else False


def outcome_of(failure: BaseException) -> Literal["done", "failed", "not_done", "unknown"]:
    """Return what a failure says about the work of the call: whether that was done."""
    if type(failure) is ToolExecError or not isinstance(failure, ToolExecError):  # such as of a call that was stopped
        return "unknown"
    if failure.never_began:
        return "not_done"
    if isinstance(failure, OutputValidationError):
        return "done"
    lost = isinstance(failure.__cause__, ConnectionError | TimeoutError)
    return "unknown" if failure.retryable or lost else "failed"


def circuit_key(entry: Registered) -> Hashable:
    """Return what shares a fate with the tool: its backend. Each local tool stands for itself."""
    binding = entry.binding
    return ("local", entry.tool.id) if binding.kind == "local" else (binding.kind, binding.backend)


def above_zero(what: str, value: float, least: float = 0) -> None:
    """Raise ConfigurationError for a number of seconds or of calls that is not above 0, or below *least*."""
    if not value > 0 or value < least:
        raise ConfigurationError(f"{what} must be {f'{least:g} or more' if least else 'above 0'}, not {value!r}")
