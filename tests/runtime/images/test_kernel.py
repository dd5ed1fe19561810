"""Kernels of Debian: their modules in order, and the ELF file in a bzImage."""

from __future__ import annotations

import gzip
import struct

import pytest

from toolexec.errors import ConfigurationError
from toolexec.runtime.images.kernel import module_name, module_order, uncompress, uncompress_lz4

ELF = b"\x7fELF" + bytes(range(256)) * 3


def big_image(packed: bytes) -> bytes:
    """A bzImage with one sector of set-up code."""
    head = bytearray(1024)
    head[0x1F1] = 1
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", head, 0x248, 16, len(packed))
    return bytes(head) + bytes(16) + packed


def lz4(*blocks: bytes) -> bytes:
    """A stream in the legacy format, as the kernel has it: with its size at the end."""
    return b"\x02!L\x18" + b"".join(len(block).to_bytes(4, "little") + block for block in blocks) + bytes(4)


def literals(data: bytes) -> bytes:
    """A block that copies nothing."""
    rest = len(data) - 15
    return b"\xf0" + b"\xff" * (rest // 255) + bytes([rest % 255]) + data


def test_lz4_with_literals_and_copies() -> None:
    """Copies may overlap what they make, and be longer than one byte says; blocks are independent."""
    assert uncompress_lz4(lz4(literals(ELF))) == ELF
    assert uncompress_lz4(lz4(b"\x33abc\x03\x00" + b"\x10!")) == b"abcabcabca!"
    assert uncompress_lz4(lz4(b"\x1fa\x01\x00\xff\x05" + b"\x10b")) == b"a" * (1 + 15 + 255 + 5 + 4) + b"b"
    assert uncompress_lz4(lz4(literals(ELF), b"\x10z")) == ELF + b"z"


@pytest.mark.parametrize("data", [b"\x33abc\x04\x00\x10!", b"\x33abc\x00\x00\x10!", b"\x33abc\x03", b"\xf0\xff"])
def test_lz4_that_is_damaged(data: bytes) -> None:
    """An offset before the beginning, and a block that is cut off."""
    with pytest.raises((ValueError, IndexError)):
        uncompress_lz4(lz4(data))


def test_the_elf_file_in_a_kernel() -> None:
    """Whatever it is compressed with."""
    assert uncompress(big_image(lz4(literals(ELF)))) == ELF
    assert uncompress(big_image(gzip.compress(ELF) + bytes(4))) == ELF


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (bytes(2048), "not a bzImage"),
        (b"", "not a bzImage"),
        (big_image(b"what"), "unknown way"),
        (big_image(lz4(literals(b"text" * 9))), "no ELF file"),
        (big_image(lz4(b"\x33abc\x04\x00\x10!")), "cannot be unpacked"),
    ],
)
def test_a_kernel_that_cannot_be_used(kernel: bytes, why: str) -> None:
    """The error has the reason."""
    with pytest.raises(ConfigurationError, match=why):
        uncompress(kernel)


def test_modules_come_after_what_they_need() -> None:
    """Each once; what is in the kernel itself is left out."""
    modules = {
        "virtio_blk": b"\x7fELF\0depends=virtio,virtio-ring\0name=virtio_blk\0",
        "virtio": b"license=GPL\0depends=virtio_ring\0",
        "virtio_ring": b"depends=\0",
        "other": b"depends=virtio\0",
    }
    assert module_order(("virtio_blk", "squashfs", "virtio"), modules) == ["virtio_ring", "virtio", "virtio_blk"]
    names = [module_name(path) for path in ("lib/a/virtio-rng.ko", "x.ko.xz", "modules.dep", "ko")]
    assert names == ["virtio_rng", "x", "", ""]
