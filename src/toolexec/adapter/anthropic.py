"""Anthropic's form of a tool."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from toolexec.adapter.base import (
    Converted,
    FormOptions,
    converting,
    described_as,
    identity,
    keep,
    kept,
    lose_fields,
    plain,
)
from toolexec.adapter.dialects import DIALECTS
from toolexec.adapter.features import SchemaFeature
from toolexec.adapter.losses import Losses
from toolexec.adapter.names import NameMap, vendor_name
from toolexec.adapter.schemas import arguments
from toolexec.model.json_value import JSONDict
from toolexec.model.tool import Tool

_KEPT: Final = (
    "type",
    "strict",
    "input_examples",
    "cache_control",
    "defer_loading",
    "allowed_callers",
    "eager_input_streaming",
)
_CODE: Final = "code_execution_"


class AnthropicAdapter:
    """Anthropic's client tools: `{"name": ..., "description": ..., "input_schema": {...}}`.

    `input_examples`, `cache_control`, `defer_loading`, `allowed_callers`, `eager_input_streaming` and `strict` go
    through a tool and come back. The examples are the tool's examples, too: strings in the meta's `examples`.
    """

    @property
    def name(self) -> str:
        """`anthropic`."""
        return "anthropic"

    def supports(self, feature: SchemaFeature) -> bool:
        """Return whether a tool that is not strict can hold the keyword."""
        return feature in DIALECTS["anthropic"].features

    def to_tool(self, form: object, *, names: NameMap | None = None) -> Tool:
        """Implement `Adapter.to_tool`. A tool that Anthropic itself defines, such as `bash_20250124`, is none."""
        return converting(self.name, "to_tool", lambda: _read(form, names))

    def from_tool(self, tool: Tool, options: FormOptions | None = None) -> Converted:
        """Implement `Adapter.from_tool`. Code may call only tools that are not strict, so such a tool is written as
        one.
        """
        return converting(self.name, "from_tool", lambda: self._write(tool, options or FormOptions()), tool_id=tool.id)

    def _write(self, tool: Tool, options: FormOptions) -> Converted:
        losses = Losses(options.source, self.name, tool.id)
        name = options.name or vendor_name(tool.id)
        before = kept(tool, self.name)
        options = replace(options, strict=options.strict or before.get("strict") is True)
        callers = before.get("allowed_callers")
        if options.strict and isinstance(callers, list) and any(str(c).startswith(_CODE) for c in callers):
            options = replace(options, strict=False)
            losses.add("strict", "/strict", "dropped", "code can only call tools that are not strict")
        lose_fields(tool, {"examples"} if "input_examples" in before else (), name, self.name, losses)
        form: JSONDict = {"name": name}
        description = described_as(tool, 0, losses)
        if description:
            form["description"] = description
        fitted, strict = arguments(tool, self.name, losses, options)
        form["input_schema"] = fitted.schema
        if strict or "strict" in before:
            form["strict"] = strict
        form |= {key: before[key] for key in _KEPT if key in before and key != "strict"}
        if form.get("defer_loading") is True and form.pop("cache_control", None) is not None:
            losses.add("cache_control", "/anthropic/cache_control", "dropped", "a deferred tool cannot have it")
        warnings = losses.warnings()
        return Converted(
            form=form, name=name, tool_id=tool.id, strict=strict, warnings=warnings, renamed=fitted.renamed
        )


def _read(form: object, names: NameMap | None) -> Tool:
    data = plain(form)
    kind = data.get("type")
    if kind is not None and kind != "custom":
        raise ValueError(f"a tool of the type {kind!r:.50} has no schema of its own")
    description, schema = data.get("description"), data.get("input_schema")
    extra = {key: data[key] for key in _KEPT if data.get(key) is not None}
    examples = data.get("input_examples")
    meta: JSONDict = {}
    if isinstance(examples, list):
        meta["examples"] = [json.dumps(example, ensure_ascii=False) for example in examples]
    return Tool(
        **identity(data.get("name"), names),
        description=description if isinstance(description, str) else "",
        input_schema={"type": "object"} if schema is None else schema,
        meta=keep(meta, "anthropic", extra),
    )
