"""Component values to Python and back, as functions made once from a type.

A value is an image of 32 bytes: its kind, then its content or the address of it. In Python: integers, bool and str are
themselves, `list<u8>` is bytes, other lists are lists, records and tuples are tuples in declared order, an enum is its
name, flags are a set of names, an option is None or the value, a variant is `(name, value)`, a borrowed handle is the
number of the host's object, and an owned one is a Handle. A function whose result is a `result` returns the value, or
raises RefusedError for the error side.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from wasmtime import component as c

from toolexec.runtime.wasm import ffi
from toolexec.runtime.wasm.refused import RefusedError

Lift: TypeAlias = Callable[[int, bytes, int], Any]
"""Gets the store's context, a block of memory and the offset of the image in it."""
Lower: TypeAlias = Callable[[int, Any], bytes]
"""Gets the store's context and a Python value; gives its image."""

_SIZE = ffi.VALUE_BYTES
_ENTRY = _SIZE + 16  # a record's field: name and value
_PAIR = struct.Struct("@QQ")
_IMAGE = struct.Struct("@B7xQQQ")
_RESULT = struct.Struct("@B7xB7xQQ")
_BYTE = struct.Struct("@B7xB23x")
_LIST, _RECORD, _TUPLE, _VARIANT, _ENUM, _OPTION, _RESULT_KIND, _FLAGS, _RESOURCE = range(13, 22)
_NUMBERS: dict[type, struct.Struct] = {  # the kind's number, and the format of the content
    c.Bool: struct.Struct("@B7x?23x"),
    c.U8: _BYTE,
    c.U16: struct.Struct("@B7xH22x"),
    c.U32: struct.Struct("@B7xI20x"),
    c.U64: struct.Struct("@B7xQ16x"),
}
_KINDS: dict[type, int] = {c.Bool: 0, c.U8: 2, c.U16: 4, c.U32: 6, c.U64: 8, c.String: 12}
_BYTE_IMAGE = _BYTE.pack(_KINDS[c.U8], 0)


def adapt(function: Callable[..., Any], kind: c.FuncType) -> ffi.HostCallback:
    """Wrap *function*, which gets the guest and Python values, for a component function of this type."""
    lifts = [(lifter(type_), index * _SIZE) for index, (_, type_) in enumerate(kind.params)]
    block_size = len(lifts) * _SIZE
    lower = lowerer(kind.result) if kind.result is not None else None

    def callback(context: int, arguments: int, results: int) -> None:
        block = ffi.read_memory(arguments, block_size)
        values = [lift(context, block, offset) for lift, offset in lifts]
        try:
            value = function(ffi.current_guest(), *values)
        except RefusedError as error:
            value = error
        if lower is not None:
            ffi.write_memory(results, lower(context, value))
        elif isinstance(value, RefusedError):
            raise value

    return callback


# From wasmtime.


def lifter(kind: c.ValType) -> Lift:
    """Return a function that reads values of this type. Raises TypeError for a type that no import of WASI takes."""
    number = _NUMBERS.get(type(kind))
    if number is not None:
        return lambda _context, block, offset: number.unpack_from(block, offset)[1]
    if isinstance(kind, c.String | c.EnumType):
        return lambda _context, block, offset: _text(block, offset + 8)
    if isinstance(kind, c.BorrowType):
        return lambda context, block, offset: ffi.borrowed_number(context, _pair(block, offset)[0])
    if isinstance(kind, c.FlagsType):
        return _lift_flags
    if isinstance(kind, c.ListType):
        return _lift_bytes if isinstance(kind.element, c.U8) else _list_lifter(kind.element)
    if isinstance(kind, c.RecordType):
        return _fields_lifter([type_ for _, type_ in kind.fields], _ENTRY, 16)
    if isinstance(kind, c.TupleType):
        return _fields_lifter(kind.elements, _SIZE, 0)
    if isinstance(kind, c.OptionType):
        return _option_lifter(kind.payload)
    if isinstance(kind, c.VariantType):
        return _variant_lifter(kind)
    if isinstance(kind, c.ResultType):
        return lambda _context, block, offset: bool(block[offset + 8])  # only whether it is a success
    raise TypeError(f"no conversion from {type(kind).__name__}")


def _pair(block: bytes, offset: int) -> tuple[int, int]:
    return _PAIR.unpack_from(block, offset + 8)


def _text(block: bytes, offset: int) -> str:
    size, address = _PAIR.unpack_from(block, offset)
    return ffi.read_memory(address, size).decode()


def _lift_bytes(_context: int, block: bytes, offset: int) -> bytes:
    size, address = _pair(block, offset)
    return ffi.read_memory(address, size * _SIZE)[8::_SIZE]


def _lift_flags(_context: int, block: bytes, offset: int) -> frozenset[str]:
    size, address = _pair(block, offset)
    names = ffi.read_memory(address, size * 16)
    return frozenset(_text(names, index * 16) for index in range(size))


def _list_lifter(element: c.ValType) -> Lift:
    lift = lifter(element)

    def lift_list(context: int, block: bytes, offset: int) -> list[Any]:
        size, address = _pair(block, offset)
        images = ffi.read_memory(address, size * _SIZE)
        return [lift(context, images, index * _SIZE) for index in range(size)]

    return lift_list


def _fields_lifter(kinds: list[c.ValType], stride: int, start: int) -> Lift:
    lifts = [(lifter(kind), index * stride + start) for index, kind in enumerate(kinds)]

    def lift_fields(context: int, block: bytes, offset: int) -> tuple[Any, ...]:
        _, address = _pair(block, offset)
        images = ffi.read_memory(address, len(lifts) * stride)
        return tuple(lift(context, images, at) for lift, at in lifts)

    return lift_fields


def _option_lifter(payload: c.ValType) -> Lift:
    lift = lifter(payload)

    def lift_option(context: int, block: bytes, offset: int) -> Any:
        address, _ = _pair(block, offset)
        return lift(context, ffi.read_memory(address, _SIZE), 0) if address else None

    return lift_option


def _variant_lifter(kind: c.VariantType) -> Lift:
    lifts = {name: lifter(type_) if type_ is not None else None for name, type_ in kind.cases}

    def lift_variant(context: int, block: bytes, offset: int) -> tuple[str, Any]:
        name = _text(block, offset + 8)
        lift = lifts[name]
        (address,) = struct.unpack_from("@Q", block, offset + 24)
        return name, lift(context, ffi.read_memory(address, _SIZE), 0) if lift is not None else None

    return lift_variant


# To wasmtime.


def lowerer(kind: c.ValType) -> Lower:
    """Return a function that makes images of this type. Raises TypeError for a type that no import of WASI returns."""
    number = _NUMBERS.get(type(kind))
    if number is not None:
        code = _KINDS[type(kind)]
        return lambda _context, value: number.pack(code, value)
    if isinstance(kind, c.String | c.EnumType):
        text_code = _ENUM if isinstance(kind, c.EnumType) else _KINDS[c.String]
        return lambda _context, value: _IMAGE.pack(text_code, *ffi.new_text(value.encode()), 0)
    if isinstance(kind, c.OwnType):
        return lambda context, value: _IMAGE.pack(_RESOURCE, ffi.new_handle(context, *value), 0, 0)
    if isinstance(kind, c.FlagsType):
        return _lower_flags
    if isinstance(kind, c.ListType):
        return _lower_bytes if isinstance(kind.element, c.U8) else _list_lowerer(kind.element)
    if isinstance(kind, c.RecordType):
        return _record_lowerer(kind)
    if isinstance(kind, c.TupleType):
        return _tuple_lowerer(kind.elements)
    if isinstance(kind, c.OptionType):
        return _option_lowerer(kind.payload)
    if isinstance(kind, c.VariantType):
        return _variant_lowerer(kind)
    if isinstance(kind, c.ResultType):
        return _result_lowerer(kind)
    raise TypeError(f"no conversion to {type(kind).__name__}")


def _lower_bytes(_context: int, value: bytes) -> bytes:
    images = bytearray(_BYTE_IMAGE * len(value))
    images[8::_SIZE] = value
    return _IMAGE.pack(_LIST, *ffi.new_list(images), 0)


def _lower_flags(_context: int, value: frozenset[str]) -> bytes:
    # A list of flags is a list of names, half as long as values are.
    names = b"".join(_PAIR.pack(*ffi.new_text(name.encode())) for name in sorted(value))
    return _IMAGE.pack(_FLAGS, *ffi.new_flags(names), 0)


def _list_lowerer(element: c.ValType) -> Lower:
    lower = lowerer(element)
    return lambda context, value: _IMAGE.pack(_LIST, *ffi.new_list(b"".join(lower(context, v) for v in value)), 0)


def _tuple_lowerer(kinds: list[c.ValType]) -> Lower:
    lowers = [lowerer(kind) for kind in kinds]

    def lower_tuple(context: int, value: tuple[Any, ...]) -> bytes:
        images = b"".join(lower(context, item) for lower, item in zip(lowers, value, strict=True))
        return _IMAGE.pack(_TUPLE, *ffi.new_list(images), 0)

    return lower_tuple


def _record_lowerer(kind: c.RecordType) -> Lower:
    fields = [(name.encode(), lowerer(type_)) for name, type_ in kind.fields]

    def lower_record(context: int, value: tuple[Any, ...]) -> bytes:
        entries = b"".join(
            _PAIR.pack(*ffi.new_text(name)) + lower(context, item)
            for (name, lower), item in zip(fields, value, strict=True)
        )
        return _IMAGE.pack(_RECORD, *ffi.new_record(entries, len(fields)), 0)

    return lower_record


def _option_lowerer(payload: c.ValType) -> Lower:
    lower = lowerer(payload)

    def lower_option(context: int, value: Any) -> bytes:
        return _IMAGE.pack(_OPTION, ffi.new_boxed(lower(context, value)) if value is not None else 0, 0, 0)

    return lower_option


def _variant_lowerer(kind: c.VariantType) -> Lower:
    lowers = {name: lowerer(type_) if type_ is not None else None for name, type_ in kind.cases}

    def lower_variant(context: int, value: tuple[str, Any]) -> bytes:
        name, content = value
        lower = lowers[name]
        boxed = ffi.new_boxed(lower(context, content)) if lower is not None else 0
        return _IMAGE.pack(_VARIANT, *ffi.new_text(name.encode()), boxed)

    return lower_variant


def _result_lowerer(kind: c.ResultType) -> Lower:
    lower_ok = lowerer(kind.ok) if kind.ok is not None else None
    lower_error = lowerer(kind.err) if kind.err is not None else None

    def lower_result(context: int, value: Any) -> bytes:
        refused = isinstance(value, RefusedError)
        lower = lower_error if refused else lower_ok
        content = value.reason if refused else value
        boxed = ffi.new_boxed(lower(context, content)) if lower is not None else 0
        return _RESULT.pack(_RESULT_KIND, not refused, boxed, 0)

    return lower_result
