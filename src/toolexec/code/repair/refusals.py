"""What a tool that refused its arguments says of them: its description, theirs, and keys that it does not know."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolexec.code.repair.bare_names import catalogue_of
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.shown import shown_value
from toolexec.code.repair.signatures import signature_of
from toolexec.code.repair.source import instead
from toolexec.code.repair.tables import parts_of
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_RAISED: Final = re.compile(r"(?:Handler|Tool)Error: ([\w:.-]+) raised ")
_MOST: Final = 200
_MOST_SHOWN: Final = 6


def about_refusals(failure: Failure, tools: Tools) -> str:
    """Return what the tool that raised takes and how its arguments are described; "" for any other failure."""
    found = _RAISED.match(failure.message)
    call = next(
        (each for each in reversed(tools.tool_calls()) if found and each.tool_id == found[1] and each.error), None
    )
    entry = tools.index.find(found[1]) if found is not None and call is not None else None
    if found is None or call is None or entry is None:
        return ""
    inside = [
        *unknown_inside(found[1], call.args or {}, failure, tools),
        *_by_other_key(call.args or {}, failure, tools),
    ]
    properties = _mapping(_mapping(entry.tool.input_schema.to_json()).get("properties"))
    said = [
        f"{name}: {' '.join(text.split())[:_MOST]}"
        for name in [*(call.args or {})][:_MOST_SHOWN]
        if isinstance(text := _mapping(properties.get(name)).get("description"), str)
    ]
    about = " ".join((entry.tool.description or "").split())[:_MOST]
    listing = [*_listing(found[1], tools)] if not inside and entry.tool.annotations.read_only else []
    return "; ".join([*inside, signature_of(found[1], tools), *said, *([about] if about else []), *listing])


def _by_other_key(args: Mapping[str, JSONValue], failure: Failure, tools: Tools) -> Iterator[str]:
    """Yield what to say of each argument that was given one part of an object whose ID is another one."""
    results = [call.value for call in tools.tool_calls()[:_MOST] if call.error is None and not call.is_open]
    objects = [part for part in parts_of(results) if isinstance(part, dict) and isinstance(part.get("id"), str | int)]
    for name, value in args.items():
        found = [(key, each) for each in objects for key, part in each.items() if part == value and key != "id"]
        if not isinstance(value, str) or not found:
            continue
        key, of = found[0]
        about = f"`{name}` was given the `{key}` of an object whose `id` is {shown_value(of['id'])}"
        read = re.search(rf"(?<![\w.])[\w.]+(?:\[(['\"]){key}\1\]|\.{key}\b)(?!\()", failure.source)
        new = read[0].replace(key, "id") if read else ""
        yield f"{about}: {instead(read[0], new)}" if read else about


def _listing(tool_id: str, tools: Tools) -> Iterator[str]:
    """Yield the call by which the namespace of a tool says what there is."""
    space = tool_id.rpartition(":")[0]
    for path in (path for group in catalogue_of(tools.index).tools.values() for path in group):
        if path.startswith(f"{space}:list") and path != tool_id and tools.allows(path):
            yield f"what there is: {signature_of(path, tools)}"
            return


def unknown_inside(tool_id: str, args: Mapping[str, JSONValue], failure: Failure, tools: Tools) -> Iterator[str]:
    """Yield what to say of each key within an argument that its schema has not: the one that is missing, if one is."""
    entry = tools.index.find(tool_id)
    schema = _mapping(entry.tool.input_schema.to_json()) if entry is not None else {}
    known = _mapping(schema.get("$defs"))
    for name, value in args.items():
        inner = _object_of(_mapping(_mapping(schema.get("properties")).get(name)), known)
        properties = _mapping(inner.get("properties"))
        unknown = [key for key in value if key not in properties] if isinstance(value, dict) and properties else []
        if not isinstance(value, dict) or not unknown:
            continue
        about = f"`{name}` has no `{unknown[0]}`, but {', '.join(f'`{key}`' for key in [*properties][:_MOST_SHOWN])}"
        left = [key for key in properties if key not in value]
        written = re.findall(rf"(?<![\w.])(['\"]?){re.escape(unknown[0])}\1(?=\s*:)", failure.code)
        if len(unknown) == len(left) == 1 and len(written) == 1:
            quote = written[0]
            about = f"{about}: {instead(f'{quote}{unknown[0]}{quote}:', f'{quote}{left[0]}{quote}:')}"
        yield about


def _object_of(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the one object among the ways in which an argument may be given."""
    ways = schema.get("anyOf")
    for each in [schema, *(ways if isinstance(ways, list) else [])]:
        target = _mapping(each).get("$ref")
        found = _mapping(known.get(target.removeprefix("#/$defs/"))) if isinstance(target, str) else _mapping(each)
        if found.get("type") == "object":
            return found
    return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
