"""Change the memory image of a built component, so that its guests have less to do.

CPython counts the references to an object in the object itself. In a guest that has started from the image, that writes
to a page which it has shared with all others until then, and which the system has to copy. The count of an immortal
object stays as it is. And a guest that has to enter the directory of its program asks its host for it.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

DIRECTORY: Final = "/workspace"
"""Where programs run. It is part of a guest's own disk, and so not there while the component is built."""

_PREAMBLE: Final = 8
_CORE_MODULE: Final = 1
_DATA: Final = 11
_I32_CONST: Final = 0x41
_END: Final = 0x0B
_HEAD: Final = struct.Struct("<II")
"""What an object begins with: the count of its references, and the address of its type."""

_IMMORTAL: Final = 5 << 28
"""The count of an immortal object in CPython on 32 bits, `_Py_IMMORTAL_INITIAL_REFCNT`."""

_MOST_COUNTED: Final = 60_000
"""The count of an object is less. In memory that was freed the address of other such memory, which is more, or 0 can be
in its place."""


def with_immortal_objects(component: bytes, objects: bytes) -> bytes:
    """Return *component* with *objects*, pairs of the address of an object and that of its type, made immortal.

    What has ceased to be an object of that type stays as it is. Raises ValueError for anything but a component.
    """
    patched = bytearray(component)
    try:
        segments = sorted(_segments(component))
        starts = [start for start, _, _ in segments]
        for address, kind in _HEAD.iter_unpack(objects):
            number = bisect_right(starts, address) - 1
            start, offset, size = segments[number] if number >= 0 else (0, 0, 0)
            if address + _HEAD.size > start + size:
                continue
            place = offset + address - start
            count, found = _HEAD.unpack_from(patched, place)
            if found == kind and 0 < count < _MOST_COUNTED:
                _HEAD.pack_into(patched, place, _IMMORTAL, kind)
    except (IndexError, struct.error) as error:
        raise ValueError(f"not a component: {error}") from error
    return bytes(patched)


def in_directory(component: bytes, stand_in: str) -> bytes:
    """Return *component* with its guests in DIRECTORY. Until now they are in *stand_in*, whose path is as long.

    Where its C library has that path in another form, they enter DIRECTORY by themselves, as before. Raises ValueError
    for a path of another length.
    """
    if len(stand_in) != len(DIRECTORY):
        raise ValueError(f"{stand_in!r} cannot stand for {DIRECTORY!r}: it has another length")
    return component.replace(f"{stand_in}\0".encode(), f"{DIRECTORY}\0".encode())


def _segments(component: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the parts of the image: address in memory, offset in the component, size."""
    for kind, start, end in _sections(component, 0, len(component)):
        if kind != _CORE_MODULE:
            continue
        for inner, at, _ in _sections(component, start, end):
            if inner == _DATA:
                yield from _active(component, at)


def _sections(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the sections of the module or component between *start* and *end*: number, start and end of the content."""
    at = start + _PREAMBLE
    while at < end:
        size, content = _number(data, at + 1)
        yield data[at], content, content + size
        at = content + size


def _active(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield the segments of a data section that are put to a constant address."""
    count, at = _number(data, at)
    for _ in range(count):
        flags, at = _number(data, at)
        address: int | None = None
        if flags == 2:
            _, at = _number(data, at)  # the memory
        if flags != 1:
            constant = data[at] == _I32_CONST
            value, at = _number(data, at + 1, signed=constant)
            if data[at] != _END:
                raise ValueError("not a component: the address of a segment is more than a number")
            address = value % (1 << 32) if constant else None
            at += 1
        size, at = _number(data, at)
        if address is not None:
            yield address, at, size
        at += size


def _number(data: bytes, at: int, *, signed: bool = False) -> tuple[int, int]:
    """Return the LEB128 number at *at*, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value - (1 << shift) if signed and byte & 0x40 else value), at
