"""Keep the words of tools apart from the gateway's own, in what a model reads.

The gateway speaks in three ways: a note in a string, `[toolexec: ...]`; an object that reports a call, such as
`{"error": {...}}`; the outline of what was too long. What a tool says can be none of them: in its strings the mark of a
note is broken by a backslash, however its letters are written, and an object that could be taken for one of the others
is put under the key `structured`, where values of tools are. Whatever hides is escaped, see `model/visible.py`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.patterns import lazy_pattern
from toolexec.model.visible import visible, visible_json
from toolexec.run.outline import Outline

_STYLED: Final = r"\u24b6-\u24e9\uff21-\uff5a\U0001d400-\U0001d7ff"
_MARK: Final = lazy_pattern(
    r"[\[\uff3b\u3010\u3014\u3016\u27e6\u2772]"  # brackets of any script
    rf"(?=[^\w\[\]\"']{{0,16}}_{{0,4}}[t\u0163-\u0167\u021b\u1e6b-\u1e71\u0442\u03c4{_STYLED}]"
    rf"[^\]\"']{{0,4}}?[o0\u00f2-\u00f6\u014d-\u0151\u043e\u03bf\u0585\u03c3{_STYLED}])",
    re.IGNORECASE,
)
"""A bracket that a note could begin with, before something like a t and an o; `_is_mark` looks at the rest."""
_NAME: Final = "toolexec"
_SPREAD: Final = 64
"""Over how many characters the name is looked for."""
_SHAPES: Final = {
    "o": "0\u043e\u03bf\u0585\u03c3",
    "l": "1|i\u0456\u03b9\u04cf",
    "e": "\u0435\u0454\u03b5",
    "x": "\u0445\u03c7",
    "c": "\u0441\u03f2",
    "t": "\u0442\u03c4",
}
"""Digits, and Cyrillic, Greek and Armenian letters, that look like letters of the name."""
_LOOKALIKES: Final = {ord(other): letter for letter, others in _SHAPES.items() for other in others}
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
    shown = _MARK.sub(_broken, visible(text))
    if shown.lstrip().startswith("{") and ("\\u" in shown or any(key in shown for key in _OWN_KEYS)):
        value = _parsed(shown)
        if _could_be_own(value):
            shown = visible_json({"structured": value})
    return Framed(shown)


def framed_value(value: JSONValue) -> str:
    """Return a tool's value as a model reads it: a string as `framed` has it, anything else as JSON."""
    if isinstance(value, str):
        return framed(value)
    own = not isinstance(value, Outline) and _could_be_own(value)
    return _MARK.sub(_escaped, visible_json({"structured": value} if own else value))


def framed_parts(parts: Iterable[JSONObject]) -> list[JSONDict]:
    """Return the parts of a tool's reply, those of text as `framed` has them."""
    return [_framed_part(part) for part in parts]


def _framed_part(part: JSONObject) -> JSONDict:
    text = part.get("text")
    return {**part, "text": framed(text)} if part.get("type") == "text" and isinstance(text, str) else dict(part)


def _broken(bracket: re.Match[str]) -> str:
    """Return the bracket as a model may read it in a string."""
    return f"\\{bracket[0]}" if _is_mark(bracket) else bracket[0]


def _escaped(bracket: re.Match[str]) -> str:
    """Return the bracket as a model may read it in JSON."""
    return f"\\u{ord(bracket[0]):04x}" if _is_mark(bracket) else bracket[0]


def _is_mark(bracket: re.Match[str]) -> bool:
    """Return whether what follows the bracket reads like the mark of a note: with other letters of the same shape, with
    accents, spaces or emphasis."""
    following = bracket.string[bracket.end() : bracket.end() + _SPREAD]
    plain = unicodedata.normalize("NFKD", following).casefold().translate(_LOOKALIKES)
    return "".join([letter for letter in plain if letter.isalpha()]).startswith(_NAME)


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
