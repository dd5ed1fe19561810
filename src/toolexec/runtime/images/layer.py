"""A root file system as one tar, the same bytes for the same tree: the layer of an image, and what its digest is of."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, Protocol

_BLOCK: Final = 1 << 20
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Sink(Protocol):
    """What a tar can be written to."""

    def write(self, data: bytes, /) -> object:
        """Take *data*."""
        ...


class _Measure:
    """Counts and digests what is written, and hands it on if there is anything to hand it to."""

    def __init__(self, target: Sink | None) -> None:
        self.size = 0
        self.sha256 = hashlib.sha256()
        self._target = target

    def write(self, data: bytes) -> int:
        self.size += len(data)
        self.sha256.update(data)
        if self._target is not None:
            self._target.write(data)
        return len(data)


def measure_layer(root: Path) -> tuple[str, int]:
    """Return the digest (`sha256:…`) and the size in bytes that `write_layer` would write. Raises OSError."""
    return write_layer(root, None)


def write_layer(root: Path, target: Sink | None) -> tuple[str, int]:
    """Write the tree *root* to *target* as an uncompressed tar; gives its digest and size.

    Sorted by name, with whole seconds, numbers for owners, and neither extended attributes nor the root itself. What
    belongs to this user belongs to root in the tar. Links are kept and not followed. Raises OSError when the tree
    cannot be read, or changes meanwhile, and ValueError for what is not a file, directory or link.
    """
    measure = _Measure(target)
    seen: dict[tuple[int, int], str] = {}
    with tarfile.open(fileobj=_as_file(measure), mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BLOCK) as tar:
        directory = os.open(root, _DIRECTORY)
        try:
            for name, parent, base in _walk(directory, ""):
                _add(tar, name, parent, base, seen)
        finally:
            os.close(directory)
    return f"sha256:{measure.sha256.hexdigest()}", measure.size


def _as_file(measure: _Measure) -> IO[bytes]:
    """Return a tar that is written as a stream asks for no more than `write`."""
    return measure  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def _walk(directory: int, prefix: str) -> Iterator[tuple[str, int, str]]:
    """Path, open parent directory and name of everything below an open directory, directories before what is in
    them.
    """
    for base in sorted(os.listdir(directory), key=os.fsencode):
        name = f"{prefix}{base}"
        yield name, directory, base
        if stat.S_ISDIR(os.stat(base, dir_fd=directory, follow_symlinks=False).st_mode):
            inner = os.open(base, _DIRECTORY, dir_fd=directory)
            try:
                yield from _walk(inner, f"{name}/")
            finally:
                os.close(inner)


def _add(tar: tarfile.TarFile, name: str, parent: int, base: str, seen: dict[tuple[int, int], str]) -> None:
    status = os.stat(base, dir_fd=parent, follow_symlinks=False)
    entry = tarfile.TarInfo(name)
    entry.mode = stat.S_IMODE(status.st_mode)
    entry.mtime = max(0, int(status.st_mtime))
    own = os.geteuid(), os.getegid()
    entry.uid = 0 if status.st_uid == own[0] else status.st_uid
    entry.gid = 0 if status.st_gid == own[1] else status.st_gid
    if stat.S_ISDIR(status.st_mode):
        entry.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(status.st_mode):
        entry.type = tarfile.SYMTYPE
        entry.mode = 0o777
        entry.linkname = os.readlink(base, dir_fd=parent)
    elif not stat.S_ISREG(status.st_mode):
        raise ValueError(f"/{name} is not a file, directory or link")
    elif (first := seen.setdefault((status.st_dev, status.st_ino), name)) != name:
        entry.type = tarfile.LNKTYPE
        entry.linkname = first
    else:
        with os.fdopen(os.open(base, _FILE, dir_fd=parent), "rb", buffering=_BLOCK) as file:
            entry.size = os.fstat(file.fileno()).st_size
            tar.addfile(entry, file)
        return
    tar.addfile(entry)
