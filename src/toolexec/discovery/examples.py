"""Examples: calls that people wrote down, and calls made up from a schema."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeGuard

from toolexec.errors import InvalidSchemaError, InvalidToolError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, NotJSONError, to_json
from toolexec.model.schema import Schema

MAX_EXAMPLE_DEPTH = 5
MAX_EXAMPLE_SIZE = 50
MAX_EXAMPLE_TITLE = 200
MAX_EXAMPLE_DESCRIPTION = 300
MAX_RESULT_HINT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExample:
    """A call worth showing: what it does, its arguments, and what comes back.

    >>> from toolexec import DocEntry, Exec
    >>> with Exec().sync as ex:
    ...     example = ToolExample(title="Small numbers", args={"a": 1, "b": 2}, result_hint="3")
    ...     _ = ex.add(lambda a, b: a + b, "math:add", doc=DocEntry(examples=(example,)))
    ...     [(example.title, dict(example.args)) for example in ex.get_tool_doc("math:add").examples]
    [('Small numbers', {'a': 1, 'b': 2})]
    """

    title: str = ""
    description: str = ""
    args: JSONObject = field(default_factory=JSONDict)
    result_hint: str = ""
    id: str = ""

    def checked(self, position: int) -> ToolExample:
        """Return a copy with strings cut to their caps (title 200 characters, description 300, result hint 200) and its
        own arguments; raises InvalidToolError when those are not JSON, over 5 levels deep or over 50 values."""
        label = f"example {position + 1}{f' ({self.title})' if self.title else ''}"
        try:
            args = to_json(self.args)
        except NotJSONError as error:
            raise InvalidToolError(f"{label}: its arguments are {error}", code="example_too_large") from None
        depth, size = args_size(args)
        if depth > MAX_EXAMPLE_DEPTH or size > MAX_EXAMPLE_SIZE:
            raise InvalidToolError(
                f"{label}: its arguments have {depth} levels and {size} values; "
                f"{MAX_EXAMPLE_DEPTH} and {MAX_EXAMPLE_SIZE} are the most",
                details={"depth": depth, "size": size},
                code="example_too_large",
            )
        return replace(
            self,
            title=self.title[:MAX_EXAMPLE_TITLE],
            description=self.description[:MAX_EXAMPLE_DESCRIPTION],
            result_hint=self.result_hint[:MAX_RESULT_HINT],
            args=args,
        )

    def copy(self) -> ToolExample:
        """Return the same with arguments of its own, yours to change."""
        return replace(self, args=copy_json(self.args))

    def to_dict(self) -> JSONDict:
        """Return the example as JSON-able data, without what is empty."""
        data: JSONDict = {"title": self.title, "description": self.description, "args": copy_json(self.args)}
        if self.id:
            data["id"] = self.id
        if self.result_hint:
            data["resultHint"] = self.result_hint
        return data


def args_size(args: JSONValue) -> tuple[int, int]:
    """Levels of dicts and lists, and the number of their entries, all together."""
    if isinstance(args, Mapping):
        children = list(args.values())
    elif isinstance(args, list | tuple):
        children = list(args)
    else:
        return 0, 0
    sizes = [args_size(child) for child in children]
    return 1 + max((depth for depth, _ in sizes), default=0), len(children) + sum(size for _, size in sizes)


def copy_json(value: JSONValue) -> JSONValue:
    """Return a copy of a JSON value that shares no dict or list with it."""
    if isinstance(value, Mapping):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_json(item) for item in value]
    return value


def example_args(schema_text: str) -> JSONDict | None:
    """Arguments made up for a schema (as JSON text): the required ones, or all if none is; None when no guess fits."""
    return copy_json(_cached_args(schema_text))


@lru_cache(maxsize=1024)
def _cached_args(schema_text: str) -> JSONDict | None:
    schema = json.loads(schema_text)
    if not isinstance(schema, dict):
        return {} if schema is True else None
    try:
        guess = _Guess(schema).value(schema, 0)
        return guess if isinstance(guess, dict) and Schema(schema_text).accepts(guess) else None
    except InvalidSchemaError:  # found only when it is compiled; the documentation of the tool does not depend on it
        return None


_BY_FORMAT = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00",
    "email": "someone@example.com",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
}
_MAX_PARTS = 200
_MAX_LEVELS = 8
_MAX_ITEMS = 20
_MAX_LENGTH = 100


class _Guess:
    """Makes up one value for a schema, of at most 200 parts; whether it fits is for others to check."""

    def __init__(self, root: JSONObject) -> None:
        self.root = root
        self.left = _MAX_PARTS

    def value(self, schema: JSONValue, level: int) -> JSONValue:
        """Return a value that *schema* might accept."""
        self.left -= 1
        if not isinstance(schema, dict) or level > _MAX_LEVELS or self.left < 0:
            return None
        for key in ("default", "const"):
            if key in schema:
                return schema[key]
        for key in ("examples", "enum"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][0]
        parts = self._parts(schema)
        if not parts:
            return self._typed(schema, level)
        guesses = [self.value(part, level + 1) for part in parts]
        if any(key in schema for key in ("type", "properties")):
            guesses.append(self._typed(schema, level))
        if all(isinstance(guess, dict) for guess in guesses):
            return {name: item for guess in guesses for name, item in guess.items()}
        return guesses[0]

    def _parts(self, schema: JSONObject) -> list[JSONValue]:
        """Return the subschemas that must accept the same value, with the first of each set of alternatives."""
        found: list[JSONValue] = []
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref.startswith("#"):
            target: JSONValue = self.root
            for step in ref[2:].split("/") if len(ref) > 1 else ():
                name = step.replace("~1", "/").replace("~0", "~")
                target = target.get(name) if isinstance(target, dict) else None
            found.append(target)
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                found.extend(schema[key][:1])
        if isinstance(schema.get("allOf"), list):
            found.extend(schema["allOf"])
        return found

    def _typed(self, schema: JSONObject, level: int) -> JSONValue:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        match kind:
            case "object":
                return self._object(schema, level)
            case "array":
                return self._array(schema, level)
            case "integer" | "number":
                return _number(schema)
            case "boolean":
                return True
            case "null":
                return None
            case _:
                text = _BY_FORMAT.get(str(schema.get("format")), "text")
                low, high = _count(schema, "minLength", 0), _count(schema, "maxLength", _MAX_LENGTH)
                return text.ljust(min(low, _MAX_LENGTH), "x")[: max(high, 0)]

    def _object(self, schema: JSONObject, level: int) -> JSONDict:
        properties, required = schema.get("properties"), schema.get("required")
        properties = properties if isinstance(properties, dict) else {}
        names = required if isinstance(required, list) else list(properties)
        wanted = [name for name in names if isinstance(name, str)][:_MAX_ITEMS]
        return {name: self.value(properties.get(name, {}), level + 1) for name in wanted}

    def _array(self, schema: JSONObject, level: int) -> list[JSONValue]:
        first = schema.get("prefixItems", schema.get("items"))
        first = first if isinstance(first, list) else []
        wanted = max(_count(schema, "minItems", 1), 0)
        wanted = min(wanted, _count(schema, "maxItems", _MAX_ITEMS), _MAX_ITEMS)
        parts = [*first, *[schema.get("items", {})] * max(wanted - len(first), 0)]
        return [self.value(part if isinstance(part, dict) else {}, level + 1) for part in parts[: max(wanted, 0)]]


def _number(schema: JSONObject) -> JSONValue:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    if _is_number(above):
        return above + 1
    if _is_number(low):
        step = schema.get("multipleOf")
        return -(-low // step) * step if _is_number(step) and step > 0 else low
    high, below, step = schema.get("maximum"), schema.get("exclusiveMaximum"), schema.get("multipleOf")
    if _is_number(below) and below <= 1:
        return below - 1
    if _is_number(high) and high < 1:
        return high
    return step if _is_number(step) else 1


def _is_number(value: JSONValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(schema: JSONObject, key: str, otherwise: int) -> int:
    value = schema.get(key)
    return int(value) if _is_number(value) else otherwise
