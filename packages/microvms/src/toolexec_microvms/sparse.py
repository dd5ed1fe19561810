"""Files that are mostly holes, such as the memory of a machine: copied and digested without what is empty."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
from collections.abc import Iterator
from typing import Final

_BLOCK: Final = 1 << 16
_EMPTY: Final = bytes(_BLOCK)


def copy_sparse(source: int, target: int) -> int:
    """Copy the file *source* to the new file *target*, both descriptors, and return how many bytes are in it.

    What is zero becomes a hole. Raises OSError, such as ENOSPC. Blocks.
    """
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    written = 0
    for offset, block in _blocks(source, size):
        done = 0
        while done < len(block):
            done += os.pwrite(target, block[done:], offset + done)
        written += len(block)
    return written


def sparse_digest(file: int) -> str:
    """Return the SHA-256 of a file's size and of its blocks that are not zero, with their places: the same wherever
    the file system has its holes. Raises OSError. Blocks."""
    size = os.fstat(file).st_size
    digest = hashlib.sha256(size.to_bytes(8, "big"))
    for offset, block in _blocks(file, size):
        digest.update(offset.to_bytes(8, "big"))
        digest.update(block)
    return digest.hexdigest()


def _blocks(file: int, size: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the blocks that are not empty, and where they begin."""
    if not size:
        return
    with mmap.mmap(file, size, mmap.MAP_SHARED, mmap.PROT_READ) as whole, memoryview(whole) as view:
        for start, end in _extents(file, size):
            for offset in range(start, end, _BLOCK):
                with view[offset : offset + _BLOCK] as block:  # also when the caller gives up
                    if block.tobytes() != _EMPTY[: len(block)]:
                        yield offset, block


def _extents(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where there is data, in whole blocks, none of them twice."""
    place = 0
    while place < size:
        try:
            start = os.lseek(file, place, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            raise
        end = min(size, -(-os.lseek(file, start, os.SEEK_HOLE) // _BLOCK) * _BLOCK)
        yield start // _BLOCK * _BLOCK, end
        place = end
