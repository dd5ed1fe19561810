"""How a parameter's value is written in a path, a query, a header or a cookie (RFC 6570, and OpenAPI's own styles)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

from toolexec.errors import InputValidationError, Violation
from toolexec.model.json_value import JSONObject, JSONValue

Place: TypeAlias = Literal["path", "query", "header", "cookie", "querystring"]

_RESERVED: Final = ":/?@!$'()*,="
"""What `allowReserved` leaves as it is. `&`, `#`, `+` and `;` would begin something else in most servers' eyes, and
square brackets are not allowed in a query."""
_DELIMITERS: Final[Mapping[str, str]] = {"spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of an operation: its `name` in the request, and the `argument` that has its value.

    `media_type` is set for one whose value is written as a document, in JSON or as text.
    """

    name: str
    place: Place
    argument: str
    style: str
    explode: bool
    required: bool = False
    allow_reserved: bool = False
    media_type: str = ""


def refused(parameter: str, keyword: str, message: str) -> InputValidationError:
    """Return the error for an argument that must not be sent as it is."""
    return InputValidationError([Violation(path=f"/{parameter}", keyword=keyword, message=message)])


def plain_text(value: JSONValue) -> str:
    """Return one value as text: numbers and booleans as in JSON, and so are arrays and objects inside of others."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encoded(value: JSONValue, *, allow_reserved: bool = False) -> str:
    """Return one value percent-encoded: nothing of it can be taken for the structure of a URL."""
    return quote(plain_text(value), safe=_RESERVED if allow_reserved else "", errors="replace")


def written(parameter: Parameter, value: JSONValue) -> str:
    """Return a value in a path, or in a header (there without percent-encoding)."""
    as_text: Callable[[JSONValue], str] = plain_text if parameter.place == "header" else encoded
    if parameter.media_type:
        return as_text(_document(parameter, value))
    if parameter.style == "label":
        return _label(parameter, value, as_text)
    if parameter.style == "matrix":
        return _matrix(parameter, value, as_text)
    if isinstance(value, dict):
        pairs = _pairs(value, as_text)
        return ",".join(f"{key}={item}" if parameter.explode else f"{key},{item}" for key, item in pairs)
    return ",".join(_listed(value, as_text))


def query_pairs(parameter: Parameter, value: JSONValue) -> list[tuple[str, str]]:
    """Return a value of a query or a cookie as names and values, both percent-encoded; none for an empty array."""

    def as_text(item: JSONValue) -> str:
        return encoded(item, allow_reserved=parameter.allow_reserved)

    name = encoded(parameter.name)
    if parameter.media_type:
        return [(name, as_text(_document(parameter, value)))]
    if parameter.style == "deepObject" and isinstance(value, dict | list):
        return [(encoded(path), as_text(item)) for path, item in _deep(parameter.name, value)]
    if isinstance(value, dict):
        pairs = _pairs(value, as_text)
        if parameter.explode and parameter.style not in _DELIMITERS:
            return pairs
        delimiter = _DELIMITERS.get(parameter.style, ",")
        return [(name, delimiter.join(part for pair in pairs for part in pair))] if pairs else []
    if isinstance(value, list):
        parts = _listed(value, as_text)
        if parameter.explode:
            return [(name, part) for part in parts]
        return [(name, _DELIMITERS.get(parameter.style, ",").join(parts))] if parts else []
    return [(name, as_text(value))]


def querystring(parameter: Parameter, value: JSONValue) -> str:
    """Return a value as a whole query, percent-encoded: a form, or a document of the parameter's media type."""
    if parameter.media_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        return encoded(_document(parameter, value))
    if not isinstance(value, dict):
        message = "a query in the form of pairs is made of an object"
        raise refused(parameter.argument, "type", message)
    pairs = [
        (encoded(name), encoded(item))
        for name, given in value.items()
        for item in (given if isinstance(given, list) else [given])
        if given is not None
    ]
    return "&".join(f"{name}={item}" for name, item in pairs)


def _document(parameter: Parameter, value: JSONValue) -> str:
    """Return a value as a document of the parameter's media type: JSON, or text as it is."""
    if is_json_type(parameter.media_type) or not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value


def is_json_type(media_type: str) -> bool:
    """Return whether what has *media_type* is written as JSON, also where it may be anything."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind in ("", "*/*", "application/*") or kind.endswith(("/json", "+json"))


def _label(parameter: Parameter, value: JSONValue, as_text: Callable[[JSONValue], str]) -> str:
    """Write `.3.4.5`, `.3,4,5`, `.a=1.b=2` or `.a,1,b,2`."""
    between = "." if parameter.explode else ","
    if isinstance(value, dict):
        joint = "=" if parameter.explode else ","
        return "." + between.join(f"{key}{joint}{item}" for key, item in _pairs(value, as_text))
    return "." + between.join(_listed(value, as_text))


def _matrix(parameter: Parameter, value: JSONValue, as_text: Callable[[JSONValue], str]) -> str:
    """Write `;id=3;id=4`, `;id=3,4`, `;a=1;b=2` or `;id=a,1,b,2`."""
    name = encoded(parameter.name)
    if isinstance(value, dict):
        pairs = _pairs(value, as_text)
        if parameter.explode:
            return "".join(f";{key}={item}" for key, item in pairs)
        return f";{name}={','.join(part for pair in pairs for part in pair)}"
    parts = _listed(value, as_text)
    if parameter.explode:
        return "".join(f";{name}={part}" for part in parts)
    return f";{name}={','.join(parts)}"


def _listed(value: JSONValue, as_text: Callable[[JSONValue], str]) -> list[str]:
    return [as_text(item) for item in value if item is not None] if isinstance(value, list) else [as_text(value)]


def _pairs(value: JSONObject, as_text: Callable[[JSONValue], str]) -> list[tuple[str, str]]:
    """Return the members of an object as text, without those that are null: they are not there."""
    return [(as_text(key), as_text(item)) for key, item in value.items() if item is not None]


def _deep(path: str, value: JSONValue) -> list[tuple[str, JSONValue]]:
    """Return the leaves of an object with their paths: `filter[owner][name]`, and `tags[]` for items of an array.

    Items that have members of their own carry their number, `lines[0][price]`: servers would merge them otherwise.
    """
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in _deep(f"{path}[{key}]", item)]
    if isinstance(value, list):
        nested = any(isinstance(item, dict | list) for item in value)
        marked = ((f"{path}[{number}]" if nested else f"{path}[]", item) for number, item in enumerate(value))
        return [pair for name, item in marked for pair in _deep(name, item)]
    return [] if value is None else [(path, value)]
