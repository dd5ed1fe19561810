"""The outcomes of calls and chains as HTML, for notebooks; all that tools said is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolexec.model.html import badge, block, card, image_data, images_html, lines, table, text, value_html

if TYPE_CHECKING:
    from toolexec.errors import ToolExecError
    from toolexec.run.types import Result, StepResult


def result_html(result: Result) -> str:
    """Return one call: how it ended, its error, its value, and its images."""
    state = badge("✓ done", "ok") if result.ok else badge("✗ failed", "failed")
    facts = [milliseconds(result.duration), *(["cached"] if result.cached else [])]
    facts += [f"{result.attempts} attempts"] if result.attempts > 1 else []
    return card(
        f"{state} <code>{text(result.tool_id)}</code> · {text(' · '.join(facts))}",
        error_html(result.error) if result.error is not None else "",
        lines(str(each) for each in result.warnings) if result.warnings else "",
        value_html(_shown(result.value)),
        *images_html(result.content),
    )


def result_bundle(result: Result) -> dict[str, Any]:
    """Return what a notebook may show of one call: HTML, and the image of a reply that has just one."""
    bundle: dict[str, Any] = {"text/html": result_html(result)}
    images = [found for part in result.content if (found := image_data(part)) is not None]
    if len(images) == 1:
        kind, data = images[0]
        bundle[kind] = data
    return bundle


def steps_html(steps: Sequence[StepResult], value: Any = None, error: ToolExecError | None = None) -> str:
    """Return a chain: a row for each step, then its value or its error."""
    rows = (
        (
            step.index,
            f"{step.tool_id} as {step.name}" if step.name else step.tool_id,
            "- skipped" if step.skipped else "✗ failed" if step.error is not None else "✓ ok",
            "" if step.skipped else milliseconds(step.duration),
            step.error if step.error is not None else step.value,
        )
        for step in steps
    )
    made = table(("#", "Tool", "Status", "Time", "Value"), rows, total=len(steps))
    return card(made, error_html(error) if error is not None else value_html(_shown(value)))


def error_html(error: ToolExecError) -> str:
    """Return an error: its code and its message."""
    return f"{badge(error.code, 'failed')} {block(error)}"


def milliseconds(seconds: float) -> str:
    """Return a duration as it is read."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _shown(value: Any) -> Any:
    """Return a value without the data of images, which are shown as such."""
    if isinstance(value, dict) and value.get("type") == "image" and "data" in value:
        return {**value, "data": f"{len(str(value['data']))} characters of Base64"}
    return [_shown(each) for each in value] if isinstance(value, list) else value
