"""Examples: calls that people wrote down, and calls made up from a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from toolexec.errors import ExampleTooLargeError
from toolexec.model.json_value import explain_not_json
from toolexec.model.schema import Schema

__all__ = ["MAX_EXAMPLE_DEPTH", "MAX_EXAMPLE_SIZE", "ToolExample", "args_size", "example_args"]

MAX_EXAMPLE_DEPTH = 5
MAX_EXAMPLE_SIZE = 50
MAX_EXAMPLE_TITLE = 200
MAX_EXAMPLE_DESCRIPTION = 300
MAX_RESULT_HINT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExample:
    """A call worth showing: what it does, its arguments, and what comes back."""

    title: str = ""
    description: str = ""
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    result_hint: str = ""
    id: str = ""

    def checked(self, position: int) -> ToolExample:
        """A copy with texts cut to their caps (title 200 characters, description 300, result hint 200) and its own
        arguments; raises ExampleTooLargeError when those are not JSON, over 5 levels deep or over 50 values."""
        label = f"example {position + 1}{f' ({self.title})' if self.title else ''}"
        problems = explain_not_json(dict(self.args))
        if problems:
            raise ExampleTooLargeError(f"{label}: its arguments are not JSON at {problems[0].path}")
        depth, size = args_size(self.args)
        if depth > MAX_EXAMPLE_DEPTH or size > MAX_EXAMPLE_SIZE:
            raise ExampleTooLargeError(
                f"{label}: its arguments have {depth} levels and {size} values; "
                f"{MAX_EXAMPLE_DEPTH} and {MAX_EXAMPLE_SIZE} are the most",
                details={"depth": depth, "size": size},
            )
        return replace(
            self,
            title=self.title[:MAX_EXAMPLE_TITLE],
            description=self.description[:MAX_EXAMPLE_DESCRIPTION],
            result_hint=self.result_hint[:MAX_RESULT_HINT],
            args=json.loads(json.dumps(dict(self.args))),
        )

    def to_dict(self) -> dict[str, Any]:
        """The example as JSON-able data, without what is empty."""
        data: dict[str, Any] = {"title": self.title, "description": self.description, "args": dict(self.args)}
        if self.id:
            data["id"] = self.id
        if self.result_hint:
            data["resultHint"] = self.result_hint
        return data


def args_size(args: Any) -> tuple[int, int]:
    """Levels of dicts and lists, and the number of their entries, all together."""
    if isinstance(args, Mapping):
        children = list(args.values())
    elif isinstance(args, list | tuple):
        children = list(args)
    else:
        return 0, 0
    sizes = [args_size(child) for child in children]
    return 1 + max((depth for depth, _ in sizes), default=0), len(children) + sum(size for _, size in sizes)


@lru_cache(maxsize=1024)
def example_args(schema_text: str) -> dict[str, Any] | None:
    """Arguments made up for a schema (as JSON text): the required ones, or all if none is; None when no guess fits."""
    schema = json.loads(schema_text)
    if not isinstance(schema, dict):
        return {}
    guess = _guess(schema, schema, 0)
    return guess if isinstance(guess, dict) and Schema(schema_text).accepts(guess) else None


_BY_FORMAT = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00",
    "email": "someone@example.com",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
}


def _guess(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > 8:
        return None
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#/"):
        target: Any = root
        for step in ref[2:].split("/"):
            target = target.get(step) if isinstance(target, dict) else None
        return _guess(target, root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return _guess(schema[key][0], root, depth + 1)
    return _guess_type(schema, root, depth)


def _guess_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match kind:
        case "object":
            properties = schema.get("properties")
            properties = properties if isinstance(properties, dict) else {}
            required = schema.get("required")
            names = [n for n in required if n in properties] if isinstance(required, list) else list(properties)
            return {name: _guess(properties[name], root, depth + 1) for name in names[:20]}
        case "array":
            return [_guess(schema.get("items", {}), root, depth + 1)] * max(int(schema.get("minItems", 1)), 0)
        case "integer" | "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum"))
            return 1 if low is None else low + (1 if "exclusiveMinimum" in schema else 0)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            text = _BY_FORMAT.get(str(schema.get("format")), "text")
            return text.ljust(min(int(schema.get("minLength", 0)), 100), "x")
