"""A part of a file as a file of its own, which refuses to be read in pieces that no honest archive asks for."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolexec.errors import ConfigurationError

_MAX_READ: Final = 4 << 20
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Region:
    """*size* bytes of the file at *path* from *offset* on."""

    path: Path
    offset: int
    size: int

    @classmethod
    def of_file(cls, path: Path) -> Region | None:
        """Return all of a plain file; None for anything else, links included."""
        if path.is_symlink() or not path.is_file():
            return None
        return cls(path, 0, path.stat().st_size)

    def part(self, offset: int, size: int) -> Region:
        """Return a part of it. Raises ConfigurationError when it has no such part."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ConfigurationError("the archive ends in the middle of a file; get it again")
        return Region(self.path, self.offset + offset, size)

    def open(self) -> io.BufferedIOBase:
        """Return the bytes, to be read and closed. Raises OSError."""
        return _Reader(self)

    def chunks(self, report: Callable[[], None]) -> Iterator[bytes]:
        """Yield the bytes, piece by piece; *report* is called before each."""
        with self.open() as file:
            while True:
                report()
                data = file.read(_CHUNK)
                if not data:
                    return
                yield data

    def digest(self, report: Callable[[], None]) -> str:
        """Return the digest of the bytes (`sha256:…`)."""
        found = hashlib.sha256()
        for data in self.chunks(report):
            found.update(data)
        return f"sha256:{found.hexdigest()}"


class _Reader(io.BufferedIOBase):
    def __init__(self, region: Region) -> None:
        self._file = os.fdopen(os.open(region.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
        self._region = region
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._region.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._region.size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > _MAX_READ:
            raise ConfigurationError("the archive is not acceptable: it has a header of many megabytes")
        self._file.seek(self._region.offset + self._position)
        data = self._file.read(wanted)
        self._position += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
