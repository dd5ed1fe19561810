"""Show what hides in a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.visible import visible

_SHOWN: Final = frozenset({"title", "description", "$comment"})
_MAX_TEXT: Final = 2000


def visible_schema(schema: JSONValue) -> JSONValue:
    """Return a copy of a JSON Schema in whose strings nothing hides, names and values among them; titles, descriptions
    and comments are cut at 2,000 characters.

    A value with a character that is not seen is shown with its escape, and is not accepted in that form.
    """
    if isinstance(schema, str):
        return visible(schema)
    if isinstance(schema, list):
        return [visible_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made: JSONDict = {}
    for key, part in schema.items():
        limit = _MAX_TEXT if key in _SHOWN else 0
        made[visible(key)] = visible(part, limit) if isinstance(part, str) else visible_schema(part)
    return made
