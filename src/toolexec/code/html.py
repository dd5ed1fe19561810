"""A run of code as HTML, for notebooks; all that the code and its tools said is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.model.html import badge, block, card, lines, table, text, value_html
from toolexec.run.html import error_html, milliseconds

if TYPE_CHECKING:
    from toolexec.code.types import CodeResult


def code_html(result: CodeResult) -> str:
    """Return how a run ended, what it printed, its value, and its trace: a row for each tool call."""
    state = badge("✓ done", "ok") if result.ok else badge("✗ failed", "failed")
    where = f" in {result.backend.kind}" if result.backend is not None else ""
    calls = (
        (
            call.tool_id,
            "✗ failed" if call.error is not None else "✓ ok",
            milliseconds(call.started),
            milliseconds(call.duration),
            dict(call.args or {}),
            call.error if call.error is not None else call.value,
        )
        for call in result.tool_calls
    )
    headers = ("Tool", "Status", "Begun after", "Time", "Arguments", "Value")
    return card(
        f"{state} {text(result.language)}{text(where)} · {text(milliseconds(result.duration))}",
        error_html(result.error) if result.error is not None else "",
        block(result.stdout) if result.stdout else "",
        block(result.stderr) if result.stderr else "",
        value_html(result.value),
        lines(result.notes) if result.notes else "",
        table(headers, calls, total=len(result.tool_calls)) if result.tool_calls else "",
        lines(f"{name}: {len(data)} bytes" for name, data in result.files.items()) if result.files else "",
    )
