"""A tool as text: its arguments as JSON Schema, its result as a short type, and what else there is to know of it."""

from __future__ import annotations

from typing import Final

from toolexec.code.compact import result_type
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.tool import Tool
from toolexec.model.visible_schema import visible_schema
from toolexec.server.tools.base import MetaCall
from toolexec.server.tools.schemas import brief
from toolexec.server.tools.values import as_json

_MAX_SCHEMA: Final = 6_000
"""How many bytes of the schema of its arguments are shown of a tool."""
_INDENT: Final = "\n  "
_HINTS: Final = {
    ("readOnlyHint", True): "read only",
    ("destructiveHint", True): "destructive",
    ("destructiveHint", False): "not destructive",
    ("idempotentHint", True): "idempotent",
}
_PARTS: Final = ("items", "additionalProperties", "not", "if", "then", "else")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions")
_HANDLED: Final = frozenset({"$schema", "title", *_PARTS, *_LISTS, *_NAMED})


def described(call: MetaCall, doc: JSONObject, tool: Tool | None) -> str:
    """Return the text of a description *doc* (its JSON), with the schema of the arguments if there is the *tool*."""
    data: JSONObject = doc.get("tool", {})
    words = (data.get("description") or doc["summary"]).replace("\n", _INDENT)  # no line of it is taken for another one
    lines = [f"{doc['id']}: {words}".removesuffix(": ")]
    notes: list[str] = []
    if tool is not None:
        schema = arguments_of(tool)
        shown = call.results.show(schema, call.origin, _MAX_SCHEMA)
        lines.append(f"args {as_json(shown.value)}")
        if shown.bytes:
            where = f"read_result(handle={shown.handle!r}, path=…) or " if shown.handle else ""
            notes.append(f"args are cut: {where}describe_tool(tool_id={doc['id']!r}, path='properties.…') has the rest")
        if gives := result_type(tool):
            lines.append(f"gives {gives}")
    hints = data.get("annotations") or doc.get("annotations") or {}
    notes.append(", ".join(word for (name, value), word in _HINTS.items() if hints.get(name) is value))
    notes += [f"unavailable: {doc['unavailable']}" if "unavailable" in doc else ""]
    notes += [f"example: {one['title']}: {as_json(one['args'])}" for one in doc.get("examples", ())]
    return "\n".join([*lines, *(f"# {note}" for note in notes if note)])


def arguments_of(tool: Tool) -> JSONValue:
    """Return the schema of a tool's arguments as a model needs it: without titles, and without what `brief` leaves out;
    control characters in it can be seen."""
    return _needed(visible_schema(tool.input_schema.to_json()))


def _needed(schema: JSONValue) -> JSONValue:
    if not isinstance(schema, dict):
        return schema
    shown: JSONDict = brief({key: part for key, part in schema.items() if key not in _HANDLED})
    for key in _NAMED:
        if isinstance(named := schema.get(key), dict):
            shown[key] = {name: _needed(part) for name, part in named.items()}
    for key in _PARTS:
        if isinstance(part := schema.get(key), dict) and part:
            shown[key] = _needed(part)
    for key in _LISTS:
        if isinstance(parts := schema.get(key), list):
            shown[key] = [_needed(part) for part in parts]
    return shown
