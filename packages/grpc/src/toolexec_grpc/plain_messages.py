"""Messages of strings, integers and booleans, from JSON and back by a plan that is made once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from toolexec.provider import JSONDict, JSONValue
from toolexec_grpc.json_mapping import is_repeated

_LONG: Final = frozenset((FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64))
"""What is a string in JSON, where any number may be a float."""
_KINDS: Final[dict[int, type]] = {
    FieldDescriptor.CPPTYPE_STRING: str,
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_INT32: int,
    FieldDescriptor.CPPTYPE_UINT32: int,
    FieldDescriptor.CPPTYPE_INT64: int,
    FieldDescriptor.CPPTYPE_UINT64: int,
}


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    json_name: str
    kind: type
    is_list: bool
    is_long: bool
    may_be_absent: bool


class PlainMessage:
    """How messages with *fields* are read and written, as `json_mapping` does it, which looks at the description of
    each field again for each message."""

    def __init__(self, fields: tuple[_Field, ...]) -> None:
        self._fields = fields
        self._by_name = {name: field for field in fields for name in (field.name, field.json_name)}

    @classmethod
    def of(cls, descriptor: Any) -> PlainMessage | None:
        """Return the plan for the messages of a type; None for a type with anything else in it."""
        if descriptor.full_name.startswith("google.protobuf.") or descriptor.is_extendable:
            return None
        fields = [_field(field) for field in descriptor.fields]
        plain = tuple(field for field in fields if field is not None)
        return cls(plain) if len(plain) == len(fields) else None

    def fill(self, value: JSONValue, message: Any) -> bool:
        """Fill an empty *message*. Returns False, with the message empty, for a value that needs a closer look: it may
        be right all the same."""
        if not isinstance(value, dict):
            return False
        seen: set[str] = set()
        try:
            for name, item in value.items():
                field = self._by_name[name]
                if field.name in seen:
                    raise ValueError(name)
                seen.add(field.name)
                if field.is_list:
                    if type(item) is not list or any(type(part) is not field.kind for part in item):
                        raise TypeError(name)
                    getattr(message, field.name).extend(item)
                elif type(item) is field.kind:
                    setattr(message, field.name, item)
                else:
                    raise TypeError(name)
        except (KeyError, TypeError, ValueError):
            message.Clear()
            return False
        return True

    def read(self, message: Any) -> JSONDict:
        """Return the JSON form of a message, with every field that cannot be absent."""
        found: JSONDict = {}
        for field in self._fields:
            if field.may_be_absent and not message.HasField(field.name):
                continue
            value = getattr(message, field.name)
            if field.is_list:
                found[field.json_name] = [str(part) for part in value] if field.is_long else list(value)
            else:
                found[field.json_name] = str(value) if field.is_long else value
        return found


def _field(field: Any) -> _Field | None:
    kind = _KINDS.get(field.cpp_type)
    if kind is None or field.containing_oneof is not None or field.type == FieldDescriptor.TYPE_BYTES:
        return None
    is_list = is_repeated(field)
    may_be_absent = not is_list and field.has_presence
    return _Field(field.name, field.json_name, kind, is_list, field.cpp_type in _LONG, may_be_absent)
