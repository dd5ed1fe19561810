"""Templates of requests: where arguments go in a path, a query, headers and a body."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from toolexec.backend.providers.paths import filled_path
from toolexec.errors import ConfigurationError, InputValidationError, Violation
from toolexec.model.json_value import JSONObject, JSONValue

_HOLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_VALUE: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}", re.ASCII)
LEFT_OUT: Final = object()
"""Stands for a value whose argument was not given."""


class PathTemplate:
    """The path of a URL with `{name}` where arguments go, each percent-encoded as a part of one segment.

    Raises ConfigurationError, which begins with *where*, for braces that are not placeholders.
    """

    def __init__(self, text: str, where: str) -> None:
        rest = _HOLE.sub("", text)
        if "{" in rest or "}" in rest:
            raise ConfigurationError(f"{where}: a placeholder in {text.partition('?')[0]!r} is not written {{name}}")
        self._text = text
        self.names: tuple[str, ...] = tuple(dict.fromkeys(_HOLE.findall(text)))

    def fill(self, args: JSONObject) -> str:
        """Return the path. Raises InputValidationError for an argument that cannot be a part of a path."""
        return filled_path(self._text, lambda name: _written(name, args.get(name)))


def _written(name: str, value: object) -> str:
    text = as_text(value)
    if text is None:
        raise refused(name, "must be a string that is not empty, a number or a boolean: it is a part of the path")
    return quote(text, safe="", errors="replace")


def as_text(value: object) -> str | None:
    """Return a string, a number or a boolean as it is written in a URL or a header; None for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value if isinstance(value, str) else None


def placeholders(template: object) -> Iterator[tuple[str, bool]]:
    """Yield the name of each `{{name}}` in a template, and whether it is a whole string."""
    if isinstance(template, str):
        whole = _VALUE.fullmatch(template)
        yield from [(whole[1], True)] if whole else [(match[1], False) for match in _VALUE.finditer(template)]
    elif isinstance(template, Mapping):
        for item in template.values():
            yield from placeholders(item)
    elif isinstance(template, Sequence):
        for item in template:
            yield from placeholders(item)


def filled(template: JSONValue, args: JSONObject) -> JSONValue:
    """Return *template* with its placeholders replaced, and `LEFT_OUT` for a whole placeholder without an argument.

    A placeholder that is the whole string becomes the argument, of whatever type; one inside a longer string is
    written as text, and so must be a string, a number or a boolean. Keys and items that are left out are not there.
    Raises InputValidationError.
    """
    if isinstance(template, str):
        whole = _VALUE.fullmatch(template)
        if whole is not None:
            return args.get(whole[1], LEFT_OUT)
        return _VALUE.sub(lambda match: _inside(match[1], args), template)
    if isinstance(template, Mapping):
        pairs = ((key, filled(item, args)) for key, item in template.items())
        return {key: value for key, value in pairs if value is not LEFT_OUT}
    if isinstance(template, list | tuple):
        return [value for item in template if (value := filled(item, args)) is not LEFT_OUT]
    return template


def _inside(name: str, args: JSONObject) -> str:
    text = as_text(args.get(name, ""))
    if text is None:
        raise refused(name, "must be a string, a number or a boolean: it is put into a text")
    return text


def refused(name: str, problem: str) -> InputValidationError:
    """Return the error for an argument that cannot be used where it goes."""
    return InputValidationError([Violation(path=f"/{name}", keyword="format", message=problem)], op="send")
