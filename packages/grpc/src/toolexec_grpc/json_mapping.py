"""Messages from JSON and back: what `google.protobuf.json_format` reads and writes, with the types of one pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue

from toolexec.provider import JSONValue

_DEPTH: Final = 100
"""Servers read as many levels, and no more."""
_ANY: Final = "google.protobuf.Any"


def read_message(value: JSONValue, message: Any, pool: Any) -> Any:
    """Fill an empty *message* with *value* and return it; types within an `Any` come from *pool*.

    *value* stays as it is. Raises json_format.ParseError for everything that is not a JSON form of the message, and
    RecursionError for a value that is nested too deep to be looked at.
    """
    try:
        return json_format.ParseDict(_nulls_first(value), message, descriptor_pool=pool, max_recursion_depth=_DEPTH)
    except (json_format.ParseError, RecursionError):
        raise
    except Exception as error:  # it raises whatever Python does, such as KeyError for an Any without a value
        raise json_format.ParseError(f"{type(error).__name__}: {error}") from error


def write_message(message: Any, pool: Any) -> JSONValue:
    """Return the JSON form of *message*, with every field that cannot be absent.

    An `Any` whose type is not in *pool*, or whose bytes are not of its type, is `{"@type": URL, "value": BASE64}`, and
    so is every other one of that type in the message. Raises json_format.Error, ValueError, TypeError or RecursionError
    where the message has no JSON form, such as for a `Timestamp` in the year 20000.
    """
    try:
        return _write(message, pool)
    except (TypeError, DecodeError):
        unreadable = _unreadable_types(message, pool)
        if not unreadable:
            raise
    copy = type(message)()
    copy.CopyFrom(message)
    _keep_bytes(copy, pool, unreadable)
    return _write(copy, _PoolWithBytes(pool, unreadable))


def is_repeated(field: Any) -> bool:
    """Return whether a field is a list, or a map."""
    repeated = getattr(field, "is_repeated", None)  # older releases of protobuf have only the label
    return field.label == field.LABEL_REPEATED if repeated is None else repeated


def _write(message: Any, pool: Any) -> JSONValue:
    return json_format.MessageToDict(message, always_print_fields_with_no_presence=True, descriptor_pool=pool)


def _nulls_first(value: JSONValue) -> JSONValue:
    """Return a copy in which null never follows a value.

    A null resets its field, and the last of a field's two names wins. A model that has to write each property of a
    strict tool gives a value by one name and null by the other, which is not to undo the value.
    """
    if isinstance(value, dict):
        ordered = sorted(value.items(), key=lambda member: member[1] is not None)
        return {name: _nulls_first(item) for name, item in ordered}
    return [_nulls_first(item) for item in value] if isinstance(value, list) else value


class _PoolWithBytes:
    """A pool in which some types are bytes."""

    def __init__(self, pool: Any, names: set[str]) -> None:
        self._pool = pool
        self._names = names

    def FindMessageTypeByName(self, full_name: str) -> Any:  # noqa: N802 - the name that json_format calls
        """Return the descriptor of a type. Raises KeyError for one that is not there."""
        return BytesValue.DESCRIPTOR if full_name in self._names else self._pool.FindMessageTypeByName(full_name)


def _unreadable_types(message: Any, pool: Any) -> set[str]:
    """Return the names of the types of all `Any` in a message, and within these, that cannot be read."""
    found: set[str] = set()
    for packed in _packed(message):
        inner = _unpack(packed, pool)
        found |= {_type_name(packed)} if inner is None else _unreadable_types(inner, pool)
    return found


def _keep_bytes(message: Any, pool: Any, names: set[str]) -> None:
    """Make the value of each `Any` of these types a `BytesValue` of what it was."""
    for packed in _packed(message):
        inner = None if _type_name(packed) in names else _unpack(packed, pool)
        if inner is None:
            packed.value = BytesValue(value=packed.value).SerializeToString()
        else:
            _keep_bytes(inner, pool, names)
            packed.value = inner.SerializePartialToString()


def _packed(message: Any) -> Iterator[Any]:
    """Yield each `Any` in a message that is not empty, but none that are packed into another one."""
    if message.DESCRIPTOR.full_name == _ANY:
        if message.ListFields():
            yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in value:
                    yield from _packed(value[key])
        elif is_repeated(field):
            for item in value:
                yield from _packed(item)
        else:
            yield from _packed(value)


def _unpack(packed: Any, pool: Any) -> Any | None:
    """Return the message in an `Any`, or None if it cannot be read."""
    try:
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(_type_name(packed)))
        return kind.FromString(packed.value)
    except (KeyError, DecodeError):
        return None


def _type_name(packed: Any) -> str:
    return packed.type_url.rpartition("/")[2]
