"""Write values, paths and names as a workflow has them; what is generated is made of these."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

from toolexec.errors import InvalidRequestError
from toolexec.workflow.functions import FUNCTIONS
from toolexec.workflow.tokens import KEYWORDS

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HIDDEN: Final = re.compile(r"[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_MAX_DEPTH: Final = 60
_MAX_NAME: Final = 40

Replace = Callable[[object, str], "str | None"]
"""Given a value and the name that it stands under, returns an expression in its place; None keeps the value."""


class Names:
    """Names for bindings, each once; none is a keyword or a function."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def reserve(self, name: str) -> None:
        """Leave *name* to what has it already."""
        self._taken.add(name)

    def take(self, wanted: str) -> str:
        """Return *wanted* as a name that is free: other characters become `_`, a number is added where needed."""
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", wanted)[:_MAX_NAME].strip("_").lower() or "value"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        plain = f"{plain}_result" if plain in KEYWORDS or plain in FUNCTIONS else plain
        name, number = plain, 1
        while name in self._taken:
            number += 1
            name = f"{plain}_{number}"
        self._taken.add(name)
        return name


def string_text(text: str) -> str:
    """Return a string literal; what could hide in it is escaped."""
    quoted = json.dumps(text, ensure_ascii=False).replace("${", "\\${")
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def value_text(value: object, replace: Replace | None = None, name: str = "", depth: int = 0) -> str:
    """Return a JSON value as an expression; *replace* may put other expressions in the place of parts.

    Raises InvalidRequestError for a value that is nested more than 60 levels deep.
    """
    if depth > _MAX_DEPTH:
        raise InvalidRequestError(f"a value is nested more than {_MAX_DEPTH} levels deep")
    instead = replace(value, name) if replace is not None else None
    if instead is not None:
        return instead
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        parts = [f"{key_text(key)}: {value_text(item, replace, key, depth + 1)}" for key, item in members.items()]
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return f"[{', '.join(value_text(item, replace, name, depth + 1) for item in items)}]"
    return string_text(value) if isinstance(value, str) else json.dumps(value)


def key_text(key: str) -> str:
    """Return a key of an object, in quotes where it needs them."""
    return key if _NAME.fullmatch(key) else string_text(key)


def path_text(base: str, steps: Iterable[str | int], *, safe: bool = False) -> str:
    """Return the part of *base* that the steps lead to; with *safe*, null where there is none."""
    dot, bracket = ("?.", "?[") if safe else (".", "[")
    parts = [base]
    for step in steps:
        if isinstance(step, str) and _NAME.fullmatch(step):
            parts.append(f"{dot}{step}")
        else:
            parts.append(f"{bracket}{string_text(step) if isinstance(step, str) else step}]")
    return "".join(parts)


def seconds_text(seconds: float) -> str:
    """Return a number of seconds as a duration: `2s`, `500ms`."""
    if float(seconds).is_integer():
        return f"{int(seconds)}s"
    milliseconds = seconds * 1000
    return f"{int(milliseconds)}ms" if milliseconds.is_integer() else str(seconds)
