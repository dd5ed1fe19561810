"""Turn one validation failure into a `Violation` that a model or a person can act on."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from toolexec.errors import Violation
from toolexec.model.json_value import pointer, shorten

__all__ = ["describe_error"]

_REDACTED = "***"


def describe_error(error: jsonschema_rs.ValidationError, schema: Any) -> Violation:
    """Path, keyword, what was expected and what was found; *schema* is the root that *error* came from."""
    path = list(error.instance_path)
    keyword = error.kind.name
    detail = error.kind.as_dict()
    expected = next(iter(detail.values()), None) if len(detail) == 1 else (detail or None)
    if keyword in ("anyOf", "oneOf", "oneOfNotValid", "oneOfMultipleValid"):
        expected = None
    secret = _is_secret(schema, path)
    message = error.message if not secret else f"the value does not satisfy {keyword}"
    if keyword == "additionalProperties":
        expected, message = _unexpected(detail.get("unexpected") or [], error.schema_path, schema, message)
    return Violation(
        path="".join(f"/{pointer(step)}" for step in path),
        keyword=keyword,
        message=shorten(message, 300),
        expected=_bounded(expected),
        got=_REDACTED if secret else _found(error.instance),
    )


def _unexpected(
    names: Sequence[str], schema_path: Sequence[str | int], schema: Any, message: str
) -> tuple[list[str], str]:
    parent = _at(schema, list(schema_path)[:-1])
    known = list(parent.get("properties", {})) if isinstance(parent, dict) else []
    hints: list[str] = []
    for name in names[:5]:
        close = difflib.get_close_matches(name, known, n=1)
        hints.append(f"{shorten(name)!r} is not a known name" + (f"; did you mean {close[0]!r}?" if close else ""))
    return known, "; ".join(hints) if hints else message


def _at(node: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            return None
    return node


def _is_secret(schema: Any, path: Sequence[str | int]) -> bool:
    node = schema
    for step in path:
        if not isinstance(node, dict):
            return False
        node = node.get("items") if isinstance(step, int) else (node.get("properties") or {}).get(step)
    return isinstance(node, dict) and (node.get("writeOnly") is True or node.get("format") == "password")


def _found(value: Any) -> Any:
    """Small values as they are; containers and long text as a short description, so that errors stay small."""
    if isinstance(value, dict):
        return f"object with {len(value)} keys"
    if isinstance(value, list | tuple):
        return f"array of {len(value)}"
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"integer of {value.bit_length()} bits"
    return value


def _bounded(expected: Any) -> Any:
    try:
        text = json.dumps(expected, ensure_ascii=False)
    except (TypeError, ValueError):
        return shorten(str(expected))
    return expected if len(text) <= 1000 else shorten(text, 1000)
