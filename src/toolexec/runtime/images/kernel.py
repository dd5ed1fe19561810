"""The kernel of an image: the modules that it boots with, and the ELF file in it. Pure."""

from __future__ import annotations

import gzip
import lzma
import re
import struct
from collections.abc import Mapping
from typing import Final

from toolexec.errors import ConfigurationError

_DEPENDS: Final = re.compile(rb"(?:\A|\0)depends=([\w,-]*)\0")
_MODULE: Final = re.compile(r"([^/]+)\.ko(?:\.xz)?")
_LZ4: Final = b"\x02!L\x18"
_PACKED: Final = {b"\x1f\x8b": gzip.decompress, b"\xfd7": lzma.decompress, b"\x5d\0": lzma.decompress}
_SETUP_SECTORS, _HEADER, _PAYLOAD = 0x1F1, 0x202, 0x248
_SECTOR: Final = 512


def module_name(path: str) -> str:
    """Return the name of the kernel module in the file *path*: `virtio_blk`; "" for another file."""
    match = _MODULE.fullmatch(path.rpartition("/")[2])
    return match[1].replace("-", "_") if match is not None else ""


def module_order(wanted: tuple[str, ...], modules: Mapping[str, bytes]) -> list[str]:
    """Return the names of *wanted* modules, and of what they need, in the order in which they can be loaded.

    *modules* are name → content. What is not among them is in the kernel itself.
    """
    found: list[str] = []

    def add(name: str) -> None:
        if name in found or name not in modules:
            return
        match = _DEPENDS.search(modules[name])
        for needed in match[1].decode().split(",") if match is not None else ():
            add(needed.replace("-", "_"))
        found.append(name)

    for name in wanted:
        add(name)
    return found


def uncompress(kernel: bytes) -> bytes:
    """Return the ELF file in a bzImage. Raises ConfigurationError when it is not there."""
    if kernel[_HEADER : _HEADER + 4] != b"HdrS":
        raise ConfigurationError("the kernel of this release of Debian is not a bzImage")
    begin, size = struct.unpack_from("<II", kernel, _PAYLOAD)
    begin += (kernel[_SETUP_SECTORS] + 1) * _SECTOR
    packed = kernel[begin : begin + size]
    try:
        if packed.startswith(_LZ4):
            found = uncompress_lz4(packed)
        else:
            unpack = next((unpack for magic, unpack in _PACKED.items() if packed.startswith(magic)), None)
            if unpack is None:
                raise ConfigurationError("the kernel of this release of Debian is compressed in an unknown way")
            found = unpack(packed[:-4])  # its size follows
    except (ValueError, OSError, EOFError, IndexError, lzma.LZMAError) as error:
        raise ConfigurationError(f"the kernel cannot be unpacked: {error}") from error
    if found[:4] != b"\x7fELF":
        raise ConfigurationError("the kernel of this release of Debian has no ELF file in it")
    return found


def uncompress_lz4(data: bytes) -> bytes:
    """Return the content of an LZ4 stream in the legacy format of the kernel: chunks, and perhaps the size at its end.

    Raises ValueError or IndexError when it is damaged.
    """
    found = bytearray()
    place = len(_LZ4)
    while place + 4 < len(data):
        size = int.from_bytes(data[place : place + 4], "little")
        if size > len(data) - place - 4:
            raise ValueError("the LZ4 stream is cut off")
        found += _block(data[place + 4 : place + 4 + size])
        place += 4 + size
    return bytes(found)


def _block(data: bytes) -> bytearray:
    """Return one chunk: literals, and copies of what came before."""
    found = bytearray()
    place, end = 0, len(data)
    while place < end:
        token = data[place]
        place += 1
        length = token >> 4
        if length == 15:
            while (more := data[place]) == 255:
                length += 255
                place += 1
            length += more
            place += 1
        found += data[place : place + length]
        place += length
        if place >= end:  # the last one has only literals
            break
        offset = data[place] | data[place + 1] << 8
        place += 2
        length = token & 15
        if length == 15:
            while (more := data[place]) == 255:
                length += 255
                place += 1
            length += more
            place += 1
        length += 4
        start = len(found) - offset
        if offset == 0 or start < 0:
            raise ValueError("the LZ4 stream refers to what is not there")
        if offset >= length:
            found += found[start : start + length]
        else:  # it copies from itself
            part = found[start:]
            found += (part * (length // offset + 1))[:length]
    return found
