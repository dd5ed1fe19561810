"""How tools are called, as advice says it: their arguments with their kinds, and those that take a value alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from toolexec.code.repair.bare_names import catalogue_of
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_MOST_SHOWN: Final = 12
_MOST_CALLS: Final = 200
_MOST_CHOICES: Final = 5


def signature_of(tool_id: str, tools: Tools | None) -> str:
    """Return what a tool takes, as "math:add takes a (number), b (number)"; "" where it is not known."""
    entry = tools.index.find(tool_id) if tools is not None and tools.allows(tool_id) else None
    schema = entry.tool.input_schema.to_json() if entry is not None else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping):
        return ""
    needed = schema.get("required")
    required = needed if isinstance(needed, list) else []
    known = schema.get("$defs")
    names = sorted(properties, key=lambda name: name not in required)
    shown = [
        f"{name} ({_kind(properties[name], known if isinstance(known, Mapping) else {})}"
        f"{'' if name in required else ', optional'})"
        for name in names[:_MOST_SHOWN]
    ]
    return f"{tool_id} takes {', '.join(shown)}" if shown else f"{tool_id} takes no arguments"


def _kind(schema: JSONValue, known: Mapping[str, JSONValue]) -> str:
    """Return the kind of an argument in a few words."""
    if not isinstance(schema, Mapping):
        return "anything"
    target = schema.get("$ref")
    if isinstance(target, str):
        return _kind(known.get(target.removeprefix("#/$defs/")), {})
    if isinstance(ways := schema.get("anyOf"), list):
        found = [_kind(each, known) for each in ways[:_MOST_CHOICES]]
        return " or ".join(dict.fromkeys(each for each in found if each != "null"))
    if isinstance(choices := schema.get("enum"), list):
        return " or ".join(f'"{each}"' for each in choices[:_MOST_SHOWN])
    kind = schema.get("type")
    if kind == "array" and "items" in schema:
        return f"list of {_kind(schema['items'], known)}"
    inner = schema.get("properties")
    if kind == "object" and isinstance(inner, Mapping) and inner:
        return f"object with {', '.join([*inner][:_MOST_SHOWN])}"
    return kind if isinstance(kind, str) else "anything"


def takers_of(value: JSONValue, name: str, tools: Tools) -> str:
    """Return the calls of tools that take such a value alone, of the namespaces of the tools that were called."""
    kind = {int: "integer", str: "string"}.get(type(value), "")
    spaces = {call.tool_id.rpartition(":")[0] for call in tools.tool_calls()[:_MOST_CALLS]}
    found: list[str] = []
    for paths in catalogue_of(tools.index).tools.values() if kind else ():
        for path in paths:
            entry = tools.index.find(path) if path.rpartition(":")[0] in spaces and tools.allows(path) else None
            only = _only_argument(entry.tool.input_schema.to_json(), kind) if entry is not None else ""
            if only:
                found.append(f"`tools.{path.replace(':', '.')}({only}={name})`")
    return " or ".join(sorted(found)[:3])


def _only_argument(schema: JSONValue, kind: str) -> str:
    """Return the one argument that is required, where it is of a kind."""
    needed = schema.get("required") if isinstance(schema, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(needed, Sequence) or len(needed) != 1 or not isinstance(properties, Mapping):
        return ""
    only = properties.get(str(needed[0]))
    return str(needed[0]) if isinstance(only, Mapping) and only.get("type") == kind else ""
