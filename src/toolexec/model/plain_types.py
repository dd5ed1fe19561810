"""The JSON Schemas of the types that most functions have, as pydantic writes them: to import it takes a third of the
time of a program that makes one call."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, Final

from toolexec.model.json_value import JSONDict

_SCHEMAS: Final[Mapping[Any, JSONDict]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list: {"items": {}, "type": "array"},
    dict: {"additionalProperties": True, "type": "object"},
    Any: {},
    object: {},
}
_NULL: Final[JSONDict] = {"type": "null"}


def plain_schema(annotation: object) -> JSONDict | None:
    """Return the schema of a JSON type, of a list or a dict of these, or of one of them or None; a new one each time.
    None for every other annotation: pydantic decides about that."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None:
        try:
            known = _SCHEMAS.get(annotation)
        except TypeError:  # it has no hash
            return None
        return None if known is None else {**known}
    if origin is list:
        items = plain_schema(arguments[0])
        return None if items is None else {"items": items, "type": "array"}
    if origin is dict and arguments[0] is str:
        values = plain_schema(arguments[1])
        return None if values is None else {"additionalProperties": values or True, "type": "object"}
    if origin in (typing.Union, types.UnionType) and len(arguments) == 2 and arguments[1] is type(None):
        value = plain_schema(arguments[0])
        return None if value is None else {"anyOf": [value, {**_NULL}]}
    return None
