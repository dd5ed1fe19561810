"""The memory of machines as files without a name, which a machine can read and, once saved, not change."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from toolexec_microvms.sparse import copy_sparse

_ADD_SEALS: Final = 1033
_SEALS: Final = 0x1 | 0x2 | 0x4 | 0x8
"""F_SEAL_SEAL, SHRINK, GROW and WRITE: a private mapping can be written to, and the file not any more."""


def new_ram(size: int) -> int:
    """Return a descriptor of an empty memory of *size* bytes; to be closed. Raises OSError."""
    file = os.memfd_create("toolexec-ram", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, size)
    except BaseException:
        os.close(file)
        raise
    return file


def save_ram(file: int, path: Path) -> None:
    """Write the memory *file* to a new file. Raises OSError, such as for a full disk. Blocks."""
    target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        copy_sparse(file, target)
        os.fsync(target)
    finally:
        os.close(target)


def load_ram(path: Path) -> int:
    """Return a descriptor of a sealed copy of the saved memory *path*; to be closed.

    All machines that are restored from it share its pages until they write to them. The VMM must have it open for
    writing, as that knows no other way: the seals keep one that was broken out of from changing it for those that
    come later. Raises OSError. Blocks.
    """
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        file = new_ram(0)
        try:
            copy_sparse(source, file)
            fcntl.fcntl(file, _ADD_SEALS, _SEALS)
        except BaseException:
            os.close(file)
            raise
    finally:
        os.close(source)
    return file
