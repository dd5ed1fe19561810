"""Keep the words of tools apart from the gateway's own, in what a model reads.

The gateway speaks in three ways: a note in a string, `[toolexec: ...]`; an object that reports a call, such as
`{"error": {...}}`; the outline of what was too long. What a tool says can be none of them: in its strings the mark of a
note is broken by a backslash, and an object that could be taken for one of the others is put under the key
`structured`, where values of tools are. Whatever hides is escaped, see `model/visible.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.patterns import lazy_pattern
from toolexec.model.visible import visible, visible_json
from toolexec.run.outline import Outline

__all__ = ["Framed", "framed", "framed_parts", "framed_value", "note"]

_MARK: Final = lazy_pattern(r"\[(?=[\s_]*tool[\s_-]*exec)", re.IGNORECASE)
_OUTLINE: Final = frozenset(("handle", "about"))
_BESIDE: Final = frozenset(("structured", "durationMs", "warnings"))
_OWN_KEYS: Final = ('"error"', '"handle"', *(f'"{key}"' for key in sorted(_BESIDE)))


class Framed(str):
    """A string that was framed already; it may have notes of the gateway in it."""

    __slots__ = ()


def note(words: str) -> str:
    """Return *words* as a note of the gateway."""
    return f"[toolexec: {words}]"


def framed(text: str) -> Framed:
    """Return a tool's string as a model may read it beside words of the gateway."""
    if isinstance(text, Framed):
        return text
    shown = _MARK.sub(r"\\[", visible(text))
    if shown.lstrip().startswith("{") and any(key in shown for key in _OWN_KEYS):
        value = _parsed(shown)
        if _could_be_own(value):
            shown = visible_json({"structured": value})
    return Framed(shown)


def framed_value(value: JSONValue) -> str:
    """Return a tool's value as a model reads it: a string as `framed` has it, anything else as JSON."""
    if isinstance(value, str):
        return framed(value)
    own = not isinstance(value, Outline) and _could_be_own(value)
    return _MARK.sub(r"\\u005b", visible_json({"structured": value} if own else value))


def framed_parts(parts: Iterable[JSONObject]) -> list[JSONDict]:
    """Return the parts of a tool's reply, those of text as `framed` has them."""
    return [_framed_part(part) for part in parts]


def _framed_part(part: JSONObject) -> JSONDict:
    text = part.get("text")
    return {**part, "text": framed(text)} if part.get("type") == "text" and isinstance(text, str) else dict(part)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _could_be_own(value: object) -> bool:
    """Return whether *value* looks like something that the gateway says of a call."""
    if not isinstance(value, Mapping):
        return False
    keys = cast("Mapping[str, object]", value)
    return isinstance(keys.get("error"), Mapping) or keys.keys() >= _OUTLINE or not _BESIDE.isdisjoint(keys)
