"""Arguments as other APIs pass them: in one that holds them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolexec.model.json_value import JSONObject
from toolexec.model.tool import Tool

WRAPPING: Final = frozenset({"args", "arguments", "input", "kwargs", "parameters", "params"})
"""Where other APIs have the arguments of a call."""


def unwrapped(args: JSONObject, tool: Tool) -> JSONObject:
    """Return the arguments in *args*, a single one, if that is `{"arguments": {...}}` and *tool* does not take it."""
    name, inner = next(iter(args.items()))
    if not isinstance(inner, Mapping) or tool.input_schema.accepts(args):
        return args
    schema = tool.input_schema.to_json()
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return args if isinstance(properties, Mapping) and name in properties else inner
