"""The smallest kernel there is: it says a word on the serial port and has the machine reset."""

from __future__ import annotations

import struct
from typing import Final

PROBE_WORD: Final = "toolexec"
"""The word that it says."""

_BASE: Final = 0x100000
_HEAD: Final = 64 + 56
_SECTOR: Final = 512
_SERIAL: Final = b"\x66\xba\xf8\x03"  # mov dx, 0x3f8
_RESET: Final = b"\xb0\xfe\xe6\x64"  # mov al, 0xfe; out 0x64, al: the keyboard controller resets the machine
_HALT: Final = b"\xf4\xeb\xfd"  # hlt, for ever


def probe_kernel(then: bytes = _RESET + _HALT) -> bytes:
    """Return it as an ELF file for x86-64; the instructions *then* are what it does after it has said the word."""
    word = b"".join(bytes((0xB0, letter, 0xEE)) for letter in f"{PROBE_WORD}\n".encode())  # mov al, …; out dx, al
    code = _SERIAL + word + then
    size = _HEAD + len(code)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 2, 62, 1, _BASE + _HEAD, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 7, 0, _BASE, _BASE, size, size, 0x1000)
    return (head + segment + code).ljust(_SECTOR, b"\0")
