"""What spans and metrics say of a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolexec.discovery.index import Registered
from toolexec.errors import ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.redaction import Redactor
from toolexec.run.resolve import Find, resolved

__all__ = ["FactBook", "ToolFacts"]

MOST_DESCRIPTION: Final = 256
MOST_TOOLS: Final = 2000
_MOST_KEPT: Final = 10_000
_MOST_ID: Final = 200
_OPERATION: Final = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}


class ToolFacts:
    """The attributes of one tool's spans (at their start) and metrics, and the name of its spans."""

    __slots__ = ("attributes", "entry", "labels", "name", "schema")

    def __init__(self, name: str, attributes: dict[str, Any], label: str, entry: Registered | None) -> None:
        self.name = name
        self.attributes = attributes
        self.entry = entry
        self.schema: Any = None
        tool = label if label.startswith("(") else attributes["gen_ai.tool.name"]
        self.labels: dict[str, Any] = {**_OPERATION, "gen_ai.tool.name": tool, "toolexec.tool.id": label}

    def marks(self) -> Mapping[str, Any] | None:
        """The tool's input schema, which may mark arguments as secret."""
        if self.schema is None and self.entry is not None:
            self.schema = self.entry.tool.input_schema.to_json()
        return self.schema if isinstance(self.schema, dict) else None


class FactBook:
    """The facts of every tool that was called, made once.

    Metrics tell at most 2,000 tools apart: the rest are `(other)`, and an ID that no tool has is `(unknown)`. So nobody
    can fill the memory of a metrics system by inventing or renaming tools.
    """

    def __init__(self, find: Find, redact: Redactor) -> None:
        self._find = find
        self._redact = redact
        self._known: dict[str, ToolFacts] = {}
        self._labels: set[str] = set()

    def of(self, call: ToolCall) -> ToolFacts:
        """Return the facts of the tool that the call means."""
        tool_id = call.tool_id
        try:
            entry = resolved(call, self._find)
        except ToolExecError:
            shown = self._redact.text(str(tool_id))[:_MOST_ID]
            attributes = {**_OPERATION, "gen_ai.tool.name": "(unknown)", "toolexec.tool.id": shown}
            return ToolFacts("execute_tool", attributes, "(unknown)", None)
        facts = self._known.get(tool_id)
        if facts is None or facts.entry is not entry:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            facts = self._known[tool_id] = self._facts(entry)
        return facts

    def _facts(self, entry: Registered) -> ToolFacts:
        tool = entry.tool
        attributes: dict[str, Any] = {
            **_OPERATION,
            "gen_ai.tool.name": tool.name,
            "toolexec.tool.id": tool.id,
            "toolexec.backend": entry.binding.backend,
        }
        if tool.description:
            attributes["gen_ai.tool.description"] = self._redact.text(tool.description)[:MOST_DESCRIPTION]
        if tool.namespace:
            attributes["toolexec.tool.namespace"] = tool.namespace
        if tool.version:
            attributes["toolexec.tool.version"] = str(tool.version)
        if tool.id in self._labels or len(self._labels) < MOST_TOOLS:
            self._labels.add(tool.id)
            label = tool.id
        else:
            label = "(other)"
        return ToolFacts(f"execute_tool {tool.name}", attributes, label, entry)
