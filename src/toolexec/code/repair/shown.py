"""Values as a message shows them: their kind, with their keys or an example."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import Final

from toolexec.model.json_value import JSONValue

_MOST_SHOWN: Final = 20
_LONGEST_SHOWN: Final = 60
_LONGEST_WHOLE: Final = 160
_LEAST_BASE64: Final = 12
_MOST_BASE64: Final = 4_000
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def kind_of(value: JSONValue) -> str:
    """Return what a value is: its kind, with its keys, or with an example."""
    if isinstance(value, dict):
        return f"an object with {shown_keys([value])}"
    if isinstance(value, list):
        row = next((each for each in value if isinstance(each, dict)), None)
        return f"a list of objects with {shown_keys([row])}" if row is not None else f"a list, {shown_value(value)}"
    if value is None:
        return "null"
    name = {str: "text", bool: "a truth value"}.get(type(value), "a number")
    return f"{name}, such as {shown_value(value)}"


def shown_keys(values: Iterable[JSONValue]) -> str:
    """Return the keys of the first of these objects."""
    first = next((each for each in values if isinstance(each, dict)), {})
    return ", ".join([*first][:_MOST_SHOWN]) or "no keys"


def shown_value(value: JSONValue) -> str:
    """Return a value as JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def whole_value(value: JSONValue) -> str:
    """Return an object as JSON, where it is long with its plain values only; "" where that is long, too."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _LONGEST_WHOLE and isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_outline(part)}" for key, part in value.items()]
        text = f"{{{', '.join(parts)}}}"
    return text if len(text) <= _LONGEST_WHOLE else ""


def _outline(value: JSONValue) -> str:
    if isinstance(value, list):
        return f"[{len(value)} items]" if value else "[]"
    return "{...}" if isinstance(value, dict) and value else json.dumps(value, ensure_ascii=False)


def text_of_base64(value: JSONValue) -> str:
    """Return the text that a value is the Base64 of; "" where it is none."""
    if not isinstance(value, str) or len(value) < _LEAST_BASE64 or not _BASE64.fullmatch(value[:_MOST_BASE64]):
        return ""
    try:
        text = base64.b64decode(value[:_MOST_BASE64], validate=True).decode()
    except ValueError:
        return ""
    return text if text.replace("\n", "").replace("\t", "").isprintable() else ""


def parsed_strings(strings: Iterable[JSONValue]) -> list[JSONValue] | None:
    """Return the objects or lists that all of these strings are the JSON of."""
    found: list[JSONValue] = []
    for text in strings:
        try:
            value = json.loads(text) if isinstance(text, str) and text.lstrip()[:1] in ("{", "[") else None
        except (ValueError, RecursionError):
            return None
        if value is None:
            return None
        found.append(value)
    return found
