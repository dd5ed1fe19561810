"""Calls that a program made wrongly and went on, where its value has nothing: the first of their errors."""

from __future__ import annotations

from typing import Final

from toolexec.code.tools import Tools
from toolexec.errors import InputValidationError, ToolNotFoundError

_MOST: Final = 200


def about_swallowed(tools: Tools) -> str:
    """Return the error of the first call that was refused for how it was written; "" where none was."""
    calls = tools.tool_calls()[:_MOST]
    refused = [call for call in calls if isinstance(call.error, InputValidationError | ToolNotFoundError)]
    if not refused:
        return ""
    return f"{len(refused)} of {len(calls)} calls were refused, and the program went on: {refused[0].error}"
