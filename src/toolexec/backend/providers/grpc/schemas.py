"""JSON Schemas of protobuf messages, as the JSON mapping of protobuf writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolexec.backend.providers.grpc.converting import is_repeated
from toolexec.model.json_value import JSONDict, JSONObject

__all__ = ["is_wrapped", "message_schema"]

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP, _MESSAGE, _BYTES = range(1, 13)
_UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(13, 19)
_SIGNED64: Final = (_INT64, _SFIXED64, _SINT64)
_UNSIGNED64: Final = (_UINT64, _FIXED64)
_SIGNED32: Final = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
_UNSIGNED32: Final = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
_NUMBER: Final = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_SCALARS: Final[Mapping[int, JSONObject]] = {
    _DOUBLE: _NUMBER,
    _FLOAT: _NUMBER,
    _INT32: _SIGNED32,
    _SINT32: _SIGNED32,
    _SFIXED32: _SIGNED32,
    _UINT32: _UNSIGNED32,
    _FIXED32: _UNSIGNED32,
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
    "google.protobuf.Any": {"type": "object", "properties": {"@type": {"type": "string"}}, "required": ["@type"]},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$"},
    "google.protobuf.Empty": {"type": "object", "additionalProperties": False},
    "google.protobuf.FieldMask": {"type": "string", "description": "Names of fields, separated by commas."},
    "google.protobuf.ListValue": {"type": "array"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Value": {},
}
_MOST_CHOICES: Final = 16


def message_schema(message: Any, comments: Mapping[str, str], *, output: bool = False) -> JSONDict:
    """Return the schema of a message (its descriptor); messages inside it are in `$defs`.

    An *output* has every field that cannot be absent, unknown values of enumerations as integers, and 64-bit integers
    as strings, which an input may also give as integers. One that is not an object in JSON is the property `value` of
    an input.
    """
    schemas = _Schemas(comments, output=output)
    schema = schemas.well_known(message)
    if schema is not None:
        return {"type": "object", "properties": {"value": schema}} if not output and is_wrapped(message) else schema
    schema = schemas.object(message)
    schemas.finish()
    return {**schema, "$defs": schemas.definitions} if schemas.definitions else schema


def is_wrapped(message: Any) -> bool:
    """Return whether a message is not an object in JSON, so that as arguments it is the value of `value`."""
    known = _Schemas({}, output=False).well_known(message)
    return known is not None and known.get("type") != "object"


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
        schema: JSONDict = {"type": "object", "properties": properties, "additionalProperties": False}
        required = [field.json_name for field in message.fields if self._is_required(field)]
        if required:
            schema["required"] = required
        choices = [_one_of(each) for each in message.oneofs if 1 < len(each.fields) <= _MOST_CHOICES]
        if choices:
            schema["allOf"] = choices
        return self._described(schema, message.full_name)

    def well_known(self, message: Any) -> JSONDict | None:
        """Return the schema of a message that JSON writes in a way of its own."""
        package, _, name = message.full_name.rpartition(".")
        if package != "google.protobuf":
            return None
        if name.endswith("Value") and name.removesuffix("Value") in _WRAPPED:
            return {"anyOf": [self._scalar(_WRAPPED[name.removesuffix("Value")]), {"type": "null"}]}
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
        if kind not in (*_SIGNED64, *_UNSIGNED64):
            return dict(_SCALARS[kind])
        signed = kind in _SIGNED64
        pattern = "^-?[0-9]+$" if signed else "^[0-9]+$"
        if self._output:
            return {"type": "string", "pattern": pattern}
        return {"type": ["integer", "string"], "pattern": pattern, **({} if signed else {"minimum": 0})}

    def _enumeration(self, enumeration: Any) -> JSONDict:
        if enumeration.full_name == "google.protobuf.NullValue":
            return {"type": "null"}
        named = {"type": "string", "enum": [value.name for value in enumeration.values]}
        schema = {"anyOf": [named, {"type": "integer"}]} if self._output else named
        return self._described(schema, enumeration.full_name)

    def _is_required(self, field: Any) -> bool:
        required = getattr(field, "is_required", None)  # older releases of protobuf have only the label
        needed = field.label == field.LABEL_REQUIRED if required is None else required
        return needed or (self._output and not field.has_presence)

    def _described(self, schema: JSONDict, name: str) -> JSONDict:
        comment = self._comments.get(name)
        return {**schema, "description": comment} if comment else schema


def _one_of(oneof: Any) -> JSONDict:
    """Return the schema that lets at most one of the fields be there."""
    given = [{"required": [field.json_name]} for field in oneof.fields]
    return {"oneOf": [*given, {"not": {"anyOf": given}}]}


def _map_names(key: Any) -> JSONDict:
    if key.type == _STRING:
        return {}
    if key.type == _BOOL:
        return {"propertyNames": {"enum": ["true", "false"]}}
    signed = key.type not in (*_UNSIGNED64, _UINT32, _FIXED32)
    return {"propertyNames": {"pattern": "^-?[0-9]+$" if signed else "^[0-9]+$"}}
