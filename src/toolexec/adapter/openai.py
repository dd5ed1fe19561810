"""OpenAI's forms of a tool: Chat Completions puts a function into an entry, Responses makes it the entry."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

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
from toolexec.adapter.schemas import arguments, result
from toolexec.model.json_value import JSONDict
from toolexec.model.tool import Tool

OpenAIAPI: TypeAlias = Literal["chat", "responses"]

_MAX_DESCRIPTION: Final = 1024
_KEPT: Final = ("strict", "defer_loading", "allowed_callers", "async")


class OpenAIAdapter:
    """OpenAI's function tools.

    *api* says which form `from_tool` writes: `chat` is `{"type": "function", "function": {...}}`, `responses` is
    `{"type": "function", "name": ...}`, which has the output schema, too, and always says whether it is strict. Both
    read both, and a bare function.
    """

    def __init__(self, api: OpenAIAPI = "chat") -> None:
        self.api: OpenAIAPI = api

    @property
    def name(self) -> str:
        """`openai`, or `openai-responses`."""
        return "openai" if self.api == "chat" else "openai-responses"

    def supports(self, feature: SchemaFeature) -> bool:
        """Return whether a function that is not strict can hold the keyword."""
        return feature in DIALECTS["openai"].features

    def to_tool(self, form: object, *, names: NameMap | None = None) -> Tool:
        """Implement `Adapter.to_tool`."""
        return converting(self.name, "to_tool", lambda: _read(form, names))

    def from_tool(self, tool: Tool, options: FormOptions | None = None) -> Converted:
        """Implement `Adapter.from_tool`."""
        return converting(self.name, "from_tool", lambda: self._write(tool, options or FormOptions()), tool_id=tool.id)

    def _write(self, tool: Tool, options: FormOptions) -> Converted:
        losses = Losses(options.source, self.name, tool.id)
        name = options.name or vendor_name(tool.id)
        before = kept(tool, "openai")
        if before.get("strict") is True:
            options = FormOptions(name=name, strict=True, describe=options.describe, source=options.source)
        responses = self.api == "responses"
        lose_fields(tool, {"outputSchema"} if responses else (), name, "openai", losses)
        function: JSONDict = {"name": name}
        description = described_as(tool, _MAX_DESCRIPTION, losses)
        if description:
            function["description"] = description
        fitted, strict = arguments(tool, "openai", losses, options)
        function["parameters"] = fitted.schema
        if strict or "strict" in before or responses:
            function["strict"] = strict
        if responses:
            output = result(tool, DIALECTS["mcp"], losses, options)
            function |= {"output_schema": output.schema} if output is not None else {}
            function |= {key: before[key] for key in _KEPT[1:] if key in before}
            form = {"type": "function", **function}
        else:
            for key in _KEPT[1:]:
                if key in before:
                    losses.add(key, f"/openai/{key}")
            form = {"type": "function", "function": function}
        warnings = losses.warnings()
        return Converted(
            form=form, name=name, tool_id=tool.id, strict=strict, warnings=warnings, renamed=fitted.renamed
        )


def _read(form: object, names: NameMap | None) -> Tool:
    data = plain(form)
    kind = data.get("type", "function")
    if kind != "function":
        raise ValueError(f"a tool of the type {kind!r:.50} is not a function")
    function = data.get("function", data)
    if not isinstance(function, dict):
        raise ValueError("`function` is not an object")
    description = function.get("description")
    parameters = function.get("parameters")
    extra = {key: function[key] for key in _KEPT if function.get(key) is not None}
    return Tool(
        **identity(function.get("name"), names),
        description=description if isinstance(description, str) else "",
        input_schema={"type": "object"} if parameters is None else parameters,
        output_schema=function.get("output_schema"),
        meta=keep({}, "openai", extra),
    )
