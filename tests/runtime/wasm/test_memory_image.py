"""What is changed in the memory image of a component: objects become immortal, and guests are where programs run."""

from __future__ import annotations

import struct

import pytest

from toolexec.runtime.wasm.memory_image import in_directory, with_immortal_objects

KIND, OTHER = 0x9_0000, 0xA_0000
BASE = 0x12345  # two bytes of it have the seventh bit
IMMORTAL = 5 << 28


def number(value: int) -> bytes:
    """Return the LEB128 of an unsigned number."""
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def section(kind: int, content: bytes) -> bytes:
    """Return one section."""
    return bytes([kind]) + number(len(content)) + content


def component(*segments: bytes) -> bytes:
    """Return a component of one module with a data section."""
    data = section(11, number(len(segments)) + b"".join(segments))
    module = b"\0asm\x01\0\0\0" + section(1, b"\x00") + data + section(0, b"\x04name")
    return b"\0asm\x0d\0\x01\0" + section(7, b"\x00") + section(1, module) + section(11, b"\x00")


def segment(content: bytes, flags: bytes = b"\x00") -> bytes:
    """Return a segment at BASE."""
    return flags + b"\x41" + number(BASE) + b"\x0b" + number(len(content)) + content


def words(*values: int) -> bytes:
    """Return words of memory."""
    return struct.pack(f"<{len(values)}I", *values)


def test_objects_are_made_immortal() -> None:
    """The count of each object is changed, and nothing else."""
    before = (3, KIND, 7, 1, OTHER, 2, KIND)
    after = (IMMORTAL, KIND, 7, IMMORTAL, OTHER, 2, KIND)
    objects = words(BASE, KIND, BASE + 12, OTHER)
    passive = b"\x01" + number(4) + words(1)
    elsewhere = b"\x00\x23\x05\x0b" + number(8) + words(1, KIND)  # its address is that of a global
    for flags in (b"\x00", b"\x02\x00"):
        made = component(passive, segment(words(*before), flags), elsewhere)
        wanted = component(passive, segment(words(*after), flags), elsewhere)
        assert with_immortal_objects(made, objects) == wanted


@pytest.mark.parametrize(
    ("count", "kind"),
    [(0, KIND), (0x8_0000, KIND), (IMMORTAL, KIND), (0x7000_0000, KIND), (1, OTHER), (1, 0)],
    ids=["freed", "freed, with the next", "immortal", "static", "another object", "free"],
)
def test_what_is_another_object_by_now_stays(count: int, kind: int) -> None:
    """Leave alone what was freed after it was listed, and may be in use again."""
    made = component(segment(words(count, kind)))
    assert with_immortal_objects(made, words(BASE, KIND)) == made


@pytest.mark.parametrize("address", [0, BASE - 4, BASE + 4, BASE + 8, 0xFFFF_FFFF])
def test_what_is_outside_stays(address: int) -> None:
    """An address that is not in the image, or an object that is there in part only."""
    made = component(segment(words(1, KIND)))
    assert with_immortal_objects(made, words(address, KIND)) == made
    assert with_immortal_objects(made, b"") == made


@pytest.mark.parametrize("cut", [9, 30])
def test_anything_but_a_component_is_refused(cut: int) -> None:
    """The error says so."""
    made = component(segment(words(1, KIND)))
    with pytest.raises(ValueError, match="not a component"):
        with_immortal_objects(made[:cut], b"")


def test_guests_are_where_programs_run() -> None:
    """Write the path over each that is as long, and ends there."""
    made = component(segment(b"/0/_______\0/0/________\0"), segment(b"/0/_______\0"))
    wanted = component(segment(b"/workspace\0/0/________\0"), segment(b"/workspace\0"))
    assert in_directory(made, "/0/_______") == wanted
    with pytest.raises(ValueError, match="another length"):
        in_directory(made, "/0/______")
