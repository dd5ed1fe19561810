"""What a search finds, and what a tool's documentation says, as HTML for notebooks; all of it is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolexec.model.html import badge, block, card, table, text

if TYPE_CHECKING:
    from toolexec.discovery.docs import ToolDoc
    from toolexec.discovery.results import SearchResults


def results_html(found: SearchResults) -> str:
    """Return what was found, a row for each tool."""
    rows = (
        (
            summary.id,
            summary.short_description,
            ", ".join(summary.bindings),
            f"{summary.score:.2f}" if summary.score is not None else "",
        )
        for summary in found
    )
    note = f"did you mean: {found.did_you_mean}" if found.did_you_mean else found.note
    made = table(("Tool", "What it does", "Where", "Score"), rows, total=len(found)) if found else ""
    return card(text(note) if note else "", made or ("" if note else text("nothing found")))


def doc_html(doc: ToolDoc) -> str:
    """Return a tool's documentation: what it does, its parameters, and an example."""
    unavailable = f"{badge('unavailable', 'failed')} {text(doc.unavailable)}" if doc.unavailable else ""
    description = doc.tool.description if doc.tool is not None else ""
    example = dict(doc.example_call) if doc.example_call is not None else None
    return card(
        f"<code>{text(doc.id)}</code> {text(doc.summary)}",
        unavailable,
        block(description) if description and description != doc.summary else "",
        _parameters(doc.tool.input_schema.to_json()) if doc.tool is not None else "",
        block(doc.notes) if doc.notes else "",
        f"Example {block(example)}" if example is not None else "",
    )


def _parameters(schema: Any) -> str:
    """Return the parameters of an input schema, a row for each."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        return ""
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    rows = [
        (
            name,
            _kind(entry),
            "yes" if name in needed else _default(entry),
            entry.get("description", "") if isinstance(entry, Mapping) else "",
        )
        for name, entry in properties.items()
    ]
    return table(("Parameter", "Type", "Required", "What it is"), rows, total=len(rows))


def _kind(entry: Any) -> str:
    if not isinstance(entry, Mapping):
        return ""
    if "enum" in entry:
        return "one of " + ", ".join(map(str, entry["enum"])) if isinstance(entry["enum"], list) else "enum"
    kind = entry.get("type", "")
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _default(entry: Any) -> str:
    return f"no, {entry['default']!r}" if isinstance(entry, Mapping) and "default" in entry else "no"
