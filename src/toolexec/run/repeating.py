"""Which calls may be made again after a failure."""

from __future__ import annotations

import math

from toolexec.errors import Outcome, ToolExecError
from toolexec.model.tool import Tool


def is_of_runs(tool_id: str) -> bool:
    """Return whether an ID that no index has is that of a tool of durable runs, which waits and changes nothing."""
    return tool_id.startswith("run:")


def is_repeatable(tool: Tool) -> bool:
    """Return whether calling the tool again does no harm: it is marked read-only or idempotent, and not destructive."""
    hints = tool.annotations
    return (hints.read_only or hints.idempotent) and not hints.destructive


def may_repeat(tool: Tool, failure: ToolExecError) -> bool:
    """Return whether a call of the tool that failed may be made again.

    The failure must be one that another attempt may not meet, and either the tool is repeatable, or the call certainly
    never began. A refusal is not enough: it is the tool's own word, which may have done other things before. A call of
    a destructive tool is never repeated.
    """
    if not failure.retryable or tool.annotations.destructive:
        return False
    return is_repeatable(tool) or failure.outcome is Outcome.NOT_SENT


def outcome_of(failure: BaseException | None) -> Outcome:
    """Return what became of a call that ended with *failure*: of one that was stopped, such as by a cancellation,
    nothing is known."""
    if failure is None:
        return Outcome.DONE
    return failure.outcome if isinstance(failure, ToolExecError) else Outcome.UNKNOWN


def retry_after(failure: ToolExecError) -> float:
    """Return the seconds that a failure says to wait; 0 where it says nothing that can be read."""
    seconds = failure.details.get("retry_after")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return 0.0
    return max(float(seconds), 0.0)
