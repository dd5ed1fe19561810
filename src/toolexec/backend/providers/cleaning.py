"""Answers and errors of services without the credentials that they may repeat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toolexec.backend.secrets import Scrubber
from toolexec.errors import ToolExecError
from toolexec.errors.base import reworded
from toolexec.model.content import ToolReply


def clean_answer(answer: Any, scrubber: Scrubber) -> Any:
    """Return an answer without secrets: JSON, or a `ToolReply`."""
    if not scrubber or answer is None:
        return answer
    if not isinstance(answer, ToolReply):
        return scrubber.value(answer)
    content = [scrubber.value(part) for part in answer.content]
    meta = scrubber.value(answer.meta)
    return replace(answer, content=content, structured=scrubber.value(answer.structured), meta=meta)


def clean_error(error: ToolExecError, scrubber: Scrubber, before: str = "") -> ToolExecError:
    """Return an error without secrets, with *before* at the start of its message."""
    message = error.message if error.message.startswith(before) else before + error.message
    clean = scrubber.text(message)
    details = scrubber.value(error.details) if scrubber and error.details else error.details
    if clean == error.message and details is error.details:
        return error
    made = reworded(error, clean)
    made.details = dict(details)
    return made
