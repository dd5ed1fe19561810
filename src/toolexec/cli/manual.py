"""A tool's documentation, laid out for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from toolexec.cli.schema_text import Parameter, parameters, type_words
from toolexec.cli.tables import command_line, hints_text, plain_table
from toolexec.model.visible import visible, visible_line

if TYPE_CHECKING:
    from toolexec.discovery import ToolDoc
    from toolexec.model import Tool


def manual(doc: ToolDoc, config: Sequence[Path] = (), *, stub: str = "") -> RenderableType:
    """Return the documentation, with what its level includes; *config* goes into the example command, *stub* shows how
    code calls the tool.
    """
    parts: list[RenderableType] = [_head(doc)]
    schema: object = {}
    if doc.tool is not None:
        schema = doc.tool.input_schema.to_json()
        rows = parameters(schema)
        parts += _section("Parameters", _parameter_table(rows) if rows else _without_names(schema))
        parts += _section("Result", _result(doc.tool))
    if stub:
        parts += _section("Call from code", Text(visible(stub.rstrip())))
    if doc.notes:
        parts += _section("Notes", Text(visible(doc.notes)))
    for example in doc.examples:
        parts += _section("Example", Text(visible_line(example.title or example.description or "Example")))
        parts.append(_command(command_line(doc.id, example.args, schema, config)))
        if example.result_hint:
            parts.append(_indented(Text(f"→ {visible_line(example.result_hint)}", style="dim")))
    if doc.producers:
        parts += _section("Arguments that other tools produce", _producers(doc))
    if doc.external_refs:
        parts += _section("See also", Text("\n".join(visible_line(ref) for ref in doc.external_refs)))
    if doc.example_call is not None and not doc.examples:
        parts.append(_heading("Try it"))
        parts.append(_command(command_line(doc.id, doc.example_call, schema, config)))
    return Group(*parts)


def _producers(doc: ToolDoc) -> Table:
    table = plain_table(("Name", {"overflow": "fold"}), ("From", {"overflow": "fold"}))
    for name, producers in doc.producers.items():
        places = [visible_line(f"{found.tool_id} {found.path or ''}".strip()) for found in producers]
        table.add_row(Text(visible_line(name), style="cyan"), Text("\n".join(places)))
    return table


def _head(doc: ToolDoc) -> RenderableType:
    tool = doc.tool or doc.described
    text = Text(visible_line(doc.id), style="bold cyan")
    title = visible_line(tool.title or tool.annotations.title) if tool is not None else ""
    if title:
        text.append(f"  {title}", style="default")
    description = visible(doc.tool.description) if doc.tool is not None else ""
    text.append(f"\n{description or visible(doc.summary) or '(no description)'}", style="not bold default")
    facts = [hints_text(tool.annotations)] if tool is not None else []
    facts += [" ".join(dict.fromkeys((b.kind, b.backend))) for b in doc.bindings]
    facts += [f"tags: {', '.join(tool.tags)}"] if tool is not None and tool.tags else []
    if any(facts):
        text.append(f"\n{visible_line(' · '.join(filter(None, facts)))}", style="not bold dim")
    if doc.unavailable:
        text.append(f"\nunavailable: {visible_line(doc.unavailable)}", style="not bold red")
    return text


def _section(title: str, body: RenderableType) -> list[RenderableType]:
    return [_heading(title), _indented(body)]


def _heading(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def _indented(body: RenderableType) -> RenderableType:
    return Padding(body, (0, 0, 0, 2))


def _command(line: str) -> Text:
    """Return a line to copy, however long it is; not in a Padding, which would cut it."""
    return Text(f"  {line}", style="green", no_wrap=True, overflow="ignore")


def _parameter_table(rows: Sequence[Parameter]) -> Table:
    table = plain_table(
        ("Name", {"overflow": "fold"}),
        ("Type", {"overflow": "fold", "max_width": 36}),
        ("Default", {"overflow": "fold", "max_width": 24}),
        ("Description", {"overflow": "fold"}),
    )
    for row in rows:
        default = Text("required", style="yellow") if row.required else Text(visible_line(row.default), style="dim")
        table.add_row(
            Text(visible_line(row.name), style="cyan"),
            Text(visible_line(row.type)),
            default,
            Text(visible_line(row.description)),
        )
    return table


def _without_names(schema: object) -> Text:
    """Return what to say of arguments that the schema does not name."""
    if (isinstance(schema, Mapping) and schema.get("additionalProperties") is False) or schema is False:
        return Text("none", style="dim")
    return Text(f"{visible_line(type_words(schema, schema))}, as the tool pleases: its schema names none", style="dim")


def _result(tool: Tool) -> RenderableType:
    if tool.output_schema is None:
        return Text("not declared", style="dim")
    schema = tool.output_schema.to_json()
    rows = parameters(schema)
    if not rows:
        return Text(visible_line(type_words(schema, schema)))
    table = plain_table(("Name", {"overflow": "fold"}), ("Type", {"overflow": "fold"}), ("Description", {}))
    for row in rows:
        table.add_row(
            Text(visible_line(row.name), style="cyan"),
            Text(visible_line(row.type)),
            Text(visible_line(row.description)),
        )
    return table
