"""JSON Schemas of protobuf messages, as the JSON mapping of protobuf reads and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolexec.provider import JSONDict, JSONObject
from toolexec_grpc.json_mapping import is_repeated

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP, _MESSAGE, _BYTES = range(1, 13)
_UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(13, 19)
_SIGNED64: Final = (_INT64, _SFIXED64, _SINT64)
_UNSIGNED64: Final = (_UINT64, _FIXED64)
_SIGNED32: Final = (_INT32, _SFIXED32, _SINT32)
_UNSIGNED32: Final = (_UINT32, _FIXED32)
_INTEGERS: Final = (*_SIGNED32, *_UNSIGNED32, *_SIGNED64, *_UNSIGNED64)
_UNSIGNED: Final = (*_UNSIGNED32, *_UNSIGNED64)
_FLOATS: Final = (_DOUBLE, _FLOAT)
_WHOLE: Final = r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?"
"""An integer in a string, such as `1e3`; whether the number is an integer is left to the conversion."""
_INTEGER_STRING: Final = f"^{_WHOLE}$"
_NUMBER_STRING: Final = f"^({_WHOLE}|NaN|-?Infinity)$"
_OTHERS: Final[Mapping[int, JSONObject]] = {
    _BOOL: {"type": "boolean"},
    _STRING: {"type": "string"},
    _BYTES: {"type": "string", "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/_-]*={0,2}$"},
}
_WRAPPED: Final = {
    "Bool": _BOOL,
    "Bytes": _BYTES,
    "Double": _DOUBLE,
    "Float": _FLOAT,
    "Int32": _INT32,
    "Int64": _INT64,
    "String": _STRING,
    "UInt32": _UINT32,
    "UInt64": _UINT64,
}
_WELL_KNOWN: Final[Mapping[str, JSONObject]] = {
    "google.protobuf.Any": {
        "type": "object",
        "description": "`@type` is the URL of a type; its fields stand beside it, or its JSON form as `value`.",
        "properties": {"@type": {"type": "string"}},
    },
    "google.protobuf.Duration": {"type": "string", "pattern": r"^[-+]?[0-9]+(\.[0-9]*)?s$"},
    "google.protobuf.Empty": {"type": "object", "additionalProperties": False},
    "google.protobuf.FieldMask": {"type": "string", "description": "Names of fields, separated by commas."},
    "google.protobuf.ListValue": {"type": "array"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Value": {},
}
_EXTENSIONS: Final = {r"^\[[a-zA-Z0-9._]*\]$": {}}
_MOST_CHOICES: Final = 16


def message_schema(message: Any, comments: Mapping[str, str], *, output: bool = False) -> JSONDict:
    """Return the schema of a message (its descriptor); messages inside it are in `$defs`.

    An input takes every spelling that protobuf's JSON mapping has: a field by its lowerCamelCase name or the one in the
    `.proto` file, null for what is not given, integers and numbers as such or in strings, enumerations by name or
    number. An *output* has every field that cannot be absent, 64-bit integers as strings, and unknown values of
    enumerations as integers. One that is not an object in JSON is the property `value` of an input.
    """
    schemas = _Schemas(comments, output=output)
    schema = schemas.well_known(message)
    if schema is not None:
        wrap = not output and is_wrapped(message)
        return {"type": "object", "properties": {"value": _or_null(schema)}} if wrap else schema
    schema = schemas.object(message)
    schemas.finish()
    return {**schema, "$defs": schemas.definitions} if schemas.definitions else schema


def is_wrapped(message: Any) -> bool:
    """Return whether a message is not an object in JSON, so that as arguments it is the value of `value`."""
    known = _Schemas({}, output=False).well_known(message)
    return known is not None and known.get("type") != "object"


def takes_null(message: Any) -> bool:
    """Return whether null is a value of a message, not its absence."""
    return message.full_name == "google.protobuf.Value"


class _Schemas:
    """The messages of one schema."""

    def __init__(self, comments: Mapping[str, str], *, output: bool) -> None:
        self._comments = comments
        self._output = output
        self._pending: list[Any] = []
        self.definitions: JSONDict = {}

    def finish(self) -> None:
        """Add the messages that are referred to, however deep."""
        while self._pending:
            message = self._pending.pop()
            self.definitions[message.full_name] = self.object(message)

    def object(self, message: Any) -> JSONDict:
        """Return the schema of a message's fields."""
        properties = {field.json_name: self._field(field) for field in message.fields}
        rules: list[JSONDict] = []
        required: list[str] = []
        for field in message.fields:
            if not self._output and field.name not in properties:
                properties[field.name] = _alias(properties[field.json_name], field.json_name)
            if self._is_required(field):
                names = self._names(field)
                if len(names) == 1:
                    required += names
                else:
                    rules.append({"anyOf": [{"required": [name]} for name in names]})
        schema: JSONDict = {"type": "object", "properties": properties, "additionalProperties": False}
        if message.is_extendable:
            schema["patternProperties"] = _EXTENSIONS
        if required:
            schema["required"] = required
        rules += [self._one_of(each) for each in message.oneofs if 1 < len(each.fields) <= _MOST_CHOICES]
        if rules:
            schema["allOf"] = rules
        return self._described(schema, message.full_name)

    def well_known(self, message: Any) -> JSONDict | None:
        """Return the schema of a message that JSON writes in a way of its own."""
        package, _, name = message.full_name.rpartition(".")
        if package != "google.protobuf":
            return None
        if name.endswith("Value") and name.removesuffix("Value") in _WRAPPED:
            return self._scalar(_WRAPPED[name.removesuffix("Value")])
        found = _WELL_KNOWN.get(message.full_name)
        return dict(found) if found is not None else None

    def _field(self, field: Any) -> JSONDict:
        entry = field.message_type if field.type == _MESSAGE else None
        if entry is not None and entry.GetOptions().map_entry:
            names = _map_names(entry.fields_by_name["key"])
            values = self._single(entry.fields_by_name["value"])
            schema = {"type": "object", **names, "additionalProperties": values}
        elif is_repeated(field):
            schema = {"type": "array", "items": self._single(field)}
        else:
            schema = self._single(field)
        if not self._output:
            schema = _or_null(schema)
        return self._described(schema, field.full_name)

    def _single(self, field: Any) -> JSONDict:
        if field.type == _ENUM:
            return self._enumeration(field.enum_type)
        if field.type not in (_MESSAGE, _GROUP):
            return self._scalar(field.type)
        message = field.message_type
        known = self.well_known(message)
        if known is not None:
            return known
        if message.full_name not in self.definitions:
            self.definitions[message.full_name] = {}
            self._pending.append(message)
        return {"$ref": f"#/$defs/{message.full_name}"}

    def _scalar(self, kind: int) -> JSONDict:
        if kind in _FLOATS:
            if self._output:
                return {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
            return {"type": ["number", "string"], "pattern": _NUMBER_STRING}
        if kind not in _INTEGERS:
            return dict(_OTHERS[kind])
        if self._output and kind in (*_SIGNED64, *_UNSIGNED64):
            return {"type": "string", "pattern": "^[0-9]+$" if kind in _UNSIGNED else "^-?[0-9]+$"}
        spelled = {"type": "integer"} if self._output else {"type": ["integer", "string"], "pattern": _INTEGER_STRING}
        return {**spelled, **_bounds(kind)}

    def _enumeration(self, enumeration: Any) -> JSONDict:
        if enumeration.full_name == "google.protobuf.NullValue":
            return {"type": "null"} if self._output else {"enum": [None, "NULL_VALUE", 0, "0"]}
        named = {"type": "string", "enum": [value.name for value in enumeration.values]}
        number = {"type": "integer"} if self._output else {"type": ["integer", "string"], "pattern": "^[-+]?[0-9]+$"}
        return self._described({"anyOf": [named, number]}, enumeration.full_name)

    def _is_required(self, field: Any) -> bool:
        required = getattr(field, "is_required", None)  # older releases of protobuf have only the label
        needed = field.label == field.LABEL_REQUIRED if required is None else required
        return needed or (self._output and not field.has_presence)

    def _names(self, field: Any) -> list[str]:
        """Return the names of a field in JSON; one that is also another field's lowerCamelCase name is the other's."""
        others = {other.json_name for other in field.containing_type.fields}
        return [field.json_name] if self._output or field.name in others else [field.json_name, field.name]

    def _one_of(self, oneof: Any) -> JSONDict:
        """Return the schema that lets at most one of the fields be there; null is as good as absent."""
        given = [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
            for field in oneof.fields
            for name in self._names(field)
        ]
        return {"oneOf": [*given, {"not": {"anyOf": given}}]}

    def _described(self, schema: JSONDict, name: str) -> JSONDict:
        comment = self._comments.get(name)
        return {**schema, "description": comment} if comment else schema


def _or_null(schema: JSONDict) -> JSONDict:
    kind = schema.get("type")
    if not schema or None in schema.get("enum", ()):
        return schema
    if kind is not None:
        return {**schema, "type": [*([kind] if isinstance(kind, str) else kind), "null"]}
    return (
        {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
        if "anyOf" in schema
        else {"anyOf": [schema, {"type": "null"}]}
    )


def _alias(schema: JSONDict, name: str) -> JSONDict:
    """Return the schema of a field under the name in the `.proto` file."""
    return {**schema, "description": f"The same as `{name}`.", "deprecated": True}


def _bounds(kind: int) -> JSONDict:
    """Return the range of an integer; that of 64 bits is left to the conversion, as most readers of JSON round it."""
    if kind in _UNSIGNED64:
        return {"minimum": 0}
    if kind in _UNSIGNED32:
        return {"minimum": 0, "maximum": 2**32 - 1}
    return {"minimum": -(2**31), "maximum": 2**31 - 1} if kind in _SIGNED32 else {}


def _map_names(key: Any) -> JSONDict:
    if key.type == _STRING:
        return {}
    return {"propertyNames": {"enum": ["true", "false"]} if key.type == _BOOL else {"pattern": _INTEGER_STRING}}
