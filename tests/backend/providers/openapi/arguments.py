"""Arguments that fit the input schema of a tool, the same each time."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Any

from hypothesis import find, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument, NoSuchExample

_LEVELS = 4
_FORMATS = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:30:00Z",
    "email": "a@example.com",
    "uri": "https://example.com/a",
    "url": "https://example.com/a",
    "uuid": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "ipv4": "192.0.2.1",
    "ip": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
    "byte": "aGVsbG8=",
}
_SETTINGS = settings(derandomize=True, database=None, max_examples=30)
_PARTS = ("oneOf", "anyOf")


class Ungiven(Exception):
    """No value was found for a schema."""


def arguments_for(schema: dict[str, Any], *, full: bool) -> dict[str, Any]:
    """Return the arguments that *schema* requires, or with *full* all that it names. Raises Ungiven."""
    made = _Values(schema.get("$defs", {}), full=full).of(schema)
    if not isinstance(made, dict):
        raise Ungiven
    return made


@cache
def _matching(pattern: str, least: int) -> str:
    """Return the simplest text that matches a regular expression."""
    with suppress(re.error, NoSuchExample, InvalidArgument):
        strings = st.from_regex(re.compile(pattern, re.ASCII)).map(str.strip)
        fits = re.compile(pattern, re.ASCII).search
        return find(strings, lambda text: bool(fits(text)) and len(text) >= least, settings=_SETTINGS)
    raise Ungiven


class _Values:
    def __init__(self, definitions: dict[str, Any], *, full: bool) -> None:
        self._definitions = definitions
        self._full = full

    def of(self, schema: Any, level: int = 0) -> Any:
        """Return a value for *schema*."""
        if level > 2 * _LEVELS:
            raise Ungiven
        if not isinstance(schema, dict):
            return "anything"
        schema = self._whole(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return next((each for each in schema["enum"] if each not in (None, "")), schema["enum"][0])
        given = schema.get("type")
        types = given if isinstance(given, list) else [given]
        kind = next((each for each in types if each not in (None, "null")), None)
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        return getattr(self, f"_{kind}")(schema, level)

    def _whole(self, schema: dict[str, Any], level: int = 0) -> dict[str, Any]:
        """Return *schema* with what it refers to, all that it consists of, and its first alternative."""
        if level > 10:
            raise Ungiven
        parts = [self._definitions[schema["$ref"].removeprefix("#/$defs/")]] if "$ref" in schema else []
        parts += schema.get("allOf", [])
        for key in _PARTS:
            alternatives = [each for each in schema.get(key, []) if each != {"type": "null"}]
            parts += alternatives[:1]
        whole = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", *_PARTS)}
        for part in parts:
            if not isinstance(part, dict):
                continue
            for key, value in self._whole(part, level + 1).items():
                if key == "properties":
                    whole[key] = {**value, **whole.get(key, {})}
                elif key == "required":
                    whole[key] = [*whole.get(key, []), *value]
                else:
                    whole.setdefault(key, value)
        return whole

    def _object(self, schema: dict[str, Any], level: int) -> Any:
        properties = schema.get("properties", {})
        names = set(schema.get("required", ()))
        if self._full and level < _LEVELS:
            names |= set(properties)
        made: dict[str, Any] = {}
        for name in [*properties, *sorted(names - set(properties))]:
            if name in names:
                try:
                    made[name] = self.of(properties.get(name, True), level + 1)
                except Ungiven:
                    if name in schema.get("required", ()):
                        raise
        if len(made) < schema.get("minProperties", 0):
            made |= {f"k{n}": self.of(schema.get("additionalProperties"), level + 1) for n in range(2)}
        return made

    def _array(self, schema: dict[str, Any], level: int) -> Any:
        count = max(schema.get("minItems", 0), 1)
        if count > 1 and schema.get("uniqueItems"):
            raise Ungiven
        if level >= 2 * _LEVELS - 1 and not schema.get("minItems"):
            return []
        return [self.of(schema.get("items", True), level + 1) for _ in range(min(count, schema.get("maxItems", count)))]

    def _string(self, schema: dict[str, Any], level: int) -> Any:
        examples = [each for each in (*schema.get("examples", ()), schema.get("default")) if isinstance(each, str)]
        if "pattern" in schema:
            return examples[0] if examples else _matching(schema["pattern"], schema.get("minLength", 0))
        if schema.get("contentEncoding") == "base64":
            return "aGVsbG8="
        text = _FORMATS.get(schema.get("format", ""), "text")
        if schema.get("format") not in _FORMATS:
            text = text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
        return text

    def _number(self, schema: dict[str, Any], level: int) -> Any:
        least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        most = schema.get("maximum", schema.get("exclusiveMaximum", least + 9) - 1)
        value = max(least, min(1, most)) if "minimum" in schema or "exclusiveMinimum" in schema else min(1, most)
        step = schema.get("multipleOf")
        if step and value % step:
            value = (value // step + 1) * step
        return value

    def _integer(self, schema: dict[str, Any], level: int) -> Any:
        return int(self._number(schema, level))

    def _boolean(self, schema: dict[str, Any], level: int) -> Any:
        return True

    def _null(self, schema: dict[str, Any], level: int) -> Any:
        return None
