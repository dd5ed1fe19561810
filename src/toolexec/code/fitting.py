"""Arguments that a tool has refused, as it takes them: where what is meant is certain, and only there.

A name may be spelled in another way (`maxWords`), have a word of the tool's own name more or less (`order_id` for the
`id` of `get_order`), or be a shorter or longer form of the same words (`target_language`). A number, a truth value or
JSON may have been given as text, and a list of one as its only item. Only for tools that change nothing may the one
name that is unknown be the one that is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from toolexec.errors import InvalidSchemaError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.tool import Tool

_MOST_ARGUMENTS: Final = 50
_MOST_TEXT: Final = 10_000
_LONG_SCHEMA: Final = 16_384
"""Characters beyond which a schema is not remembered."""

_INTEGER: Final = re.compile(r"-?(?:0|[1-9]\d{0,14})")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?")
_KINDS: Final[Mapping[type, str]] = {
    str: "text",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    list: "a list",
}
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def fitted(args: JSONObject, tool: Tool) -> tuple[JSONDict, list[str]] | None:
    """Return arguments that *tool* takes, and for each change what was done; None where nothing certain can be done."""
    schema = tool.input_schema.to_json()
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping) or len(args) > _MOST_ARGUMENTS:
        return None
    required = schema.get("required")
    named, said = _named(args, properties, required if isinstance(required, list) else [], tool)
    found: JSONDict = {}
    for name, value in named.items():
        new = _converted(value, properties.get(name))
        if new is not value:
            said.append(f"`{name}` of {tool.id} was given as {_kind(value)}, and passed as {_kind(new)}")
        found[name] = new
    try:
        return (found, said) if said and tool.input_schema.accepts(found) else None
    except InvalidSchemaError:
        return None


def positional(tool: Tool) -> list[str]:
    """Return the arguments that values without a name certainly stand for, in order: the only one that is required,
    or, for a tool that changes nothing, all of them, those that are required first."""
    text = tool.input_schema.text
    order = _order if len(text) <= _LONG_SCHEMA else _order.__wrapped__
    return [*order(text, tool.annotations.read_only is True)]


@lru_cache(maxsize=256)  # each program asks for each of the tools that it calls
def _order(schema_text: str, read_only: bool) -> tuple[str, ...]:
    """Return what `positional` gives for a tool with this schema."""
    schema = json.loads(schema_text)
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping):
        return ()
    required = schema.get("required")
    needed = [name for name in properties if name in required] if isinstance(required, list) else []
    if read_only:
        return (*needed, *(name for name in properties if name not in needed))
    only = needed or list(properties)
    return tuple(only) if len(only) == 1 else ()


def _named(
    args: JSONObject, properties: Mapping[str, Any], required: Iterable[object], tool: Tool
) -> tuple[JSONDict, list[str]]:
    """Return the arguments by the names that *tool* knows, and what was done for that."""
    free = [name for name in properties if name not in args]
    unknown = [name for name in args if name not in properties]
    missing = [name for name in required if isinstance(name, str) and name in free]
    new: dict[str, str] = {}
    for name in unknown:
        found = [other for other in free if _fold(other) == _fold(name)]
        found = found or [other for other in free if _same_words(name, other)]
        found = found or [other for other in missing if _with_own_word(name, other, tool)]
        if not found and len(unknown) == len(missing) == 1 and tool.annotations.read_only:
            found = missing
        if len(found) == 1 and found[0] not in new.values():
            new[name] = found[0]
    said = [f"`{name}` of {tool.id} was passed as `{other}`" for name, other in new.items()]
    return {new.get(name, name): value for name, value in args.items()}, said


def _fold(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _same_words(name: str, other: str) -> bool:
    """Return whether each word of one begins a word of the other, as in `target_lang` and `target_language`."""
    pairs = list(zip(_words(name), _words(other), strict=False))
    is_whole = len(pairs) == len(_words(name)) == len(_words(other))
    return is_whole and all(a[:3] == b[:3] and len(a) > 2 < len(b) and _begins(a, b) for a, b in pairs)


def _begins(a: str, b: str) -> bool:
    return a.startswith(b) or b.startswith(a)


def _with_own_word(name: str, other: str, tool: Tool) -> bool:
    """Return whether one is the other with words of the tool's own name before it, as in `order_id` and `id`."""
    longer, shorter = sorted((_words(name), _words(other)), key=len, reverse=True)
    before = longer[: len(longer) - len(shorter)]
    if not shorter or not before or longer[-len(shorter) :] != shorter:
        return False
    own = {_singular(word) for word in _words(tool.name)}
    return all(_singular(word) in own for word in before)


def _singular(word: str) -> str:
    return word.removesuffix("s")


def _converted(value: Any, schema: object) -> Any:
    """*value* as its only type asks for; as it is where that is not certain."""
    kinds = _kinds(schema)
    if isinstance(value, str) and kinds and "string" not in kinds and len(value) <= _MOST_TEXT:
        return _from_text(value, kinds)
    if kinds == {"string"} and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _from_text(value: str, kinds: set[str]) -> Any:
    text = value.strip()
    if "integer" in kinds and _INTEGER.fullmatch(text):
        return int(text)
    if "number" in kinds and _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    if kinds == {"boolean"} and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if (kinds == {"array"} and text[:1] == "[") or (kinds == {"object"} and text[:1] == "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return value
    return [value] if kinds == {"array"} and not re.search(r"[,;\n\[]", value) else value


def _kinds(schema: object) -> set[str]:
    """Return the types that a schema names, without null; none where it may be anything."""
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type")
    ways = schema.get("anyOf")
    if named is None and isinstance(ways, list):
        found = [_kinds(way) for way in ways if not (isinstance(way, Mapping) and way.get("type") == "null")]
        return found[0] if len(found) == 1 else set()
    kinds: set[object] = set(named) if isinstance(named, list) else {named}
    return {kind for kind in kinds if isinstance(kind, str) and kind != "null"}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "an object")
