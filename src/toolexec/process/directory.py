"""The private working directory of a guest: files in, files out, and then it is gone.

What a program leaves there is hostile: links that lead elsewhere, pipes, very deep trees. Nothing here follows a
link, opens what is not a plain file, or grows without bound.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from toolexec.errors import InvalidRequestError

MAX_FILES: Final = 1000
"""How many files a run may give back."""
MAX_FILE_BYTES: Final = 64 << 20
"""How many bytes they may have together."""
MAX_DEPTH: Final = 20
"""How many names the path of a file may have that is put in or given back."""

_MAX_ENTRIES: Final = 20_000
_SKIPPED: Final = ("__pycache__", ".cache", ".npm", ".config")
_OURS: Final = ".toolexec-"
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class WorkDirectory:
    """A new directory of our own, with `work` in it for the program; `root` is for what the program should not see.

    Blocks on the disk, so call it in a thread. Raises OSError when it cannot be made.
    """

    def __init__(self) -> None:
        self.root: Path = Path(tempfile.mkdtemp(prefix="toolexec-run-"))
        self.work: Path = self.root / "work"
        self.work.mkdir(mode=0o700)
        self.left_out: list[str] = []
        """The files that `take` found and did not give back, as they were over a bound."""
        self._before: dict[str, tuple[int, ...]] = {}

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write *files* (by relative path) and remember what is there; `take` gives what has changed since.

        Raises InvalidRequestError for a path that leaves the directory or goes through a file or link.
        """
        check_names(files)
        for name, content in files.items():
            try:
                self._write(PurePosixPath(name).parts, content)
            except OSError as error:
                raise InvalidRequestError(f"cannot put the file {name!r}: {error.strerror or error}") from error
        self._before = dict(self._marks())

    def take(self) -> dict[str, bytes]:
        """Return the files that are new or have changed since `put`, by relative path; no links or special files."""
        self.left_out = []
        found: dict[str, bytes] = {}
        left = MAX_FILE_BYTES
        for name, mark in sorted(self._marks()):
            if self._before.get(name) == mark:
                continue
            content = self._read(name, left) if len(found) < MAX_FILES else None
            if content is None:
                self.left_out.append(name)
                continue
            left -= len(content)
            found[name] = content
        return found

    def remove(self) -> None:
        """Delete everything, however deep it is and whatever modes it has. Raises OSError when something stays."""
        directories = [self.root]
        number, token = 0, secrets.token_hex(4)
        emptied: list[Path] = []
        while directories:
            directory = directories.pop()
            with suppress(OSError):
                directory.chmod(0o700)
            for entry in [*os.scandir(directory)]:
                if not entry.is_dir(follow_symlinks=False):
                    Path(entry.path).unlink()
                    continue
                with suppress(OSError):
                    Path(entry.path).chmod(0o700)  # to move it, its own entries must be writable
                number += 1  # moved up, as paths have a greatest length and directories can be deeper than that
                flat = self.root / f"{_OURS}{token}-{number}"
                Path(entry.path).rename(flat)
                directories.append(flat)
            emptied.append(directory)
        for directory in reversed(emptied):
            directory.rmdir()

    def _write(self, parts: tuple[str, ...], content: bytes) -> None:
        """Write in steps from one open directory to the next, so that no link can lead elsewhere."""
        directory = os.open(self.work, _DIRECTORY)
        try:
            for part in parts[:-1]:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=directory)
                inner = os.open(part, _DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = inner
            with os.fdopen(os.open(parts[-1], _WRITE, 0o600, dir_fd=directory), "wb") as file:
                file.write(content)
        finally:
            os.close(directory)

    def _read(self, name: str, most: int) -> bytes | None:
        """Read a plain file; None if it is not one any more, or over *most* bytes."""
        try:
            with os.fdopen(os.open(self.work / name, _READ), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                    return None
                content = file.read(most + 1)
        except OSError:
            return None
        return content if len(content) <= most else None

    def _marks(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the plain files, each with what changes when it is written to."""
        directories = [(self.work, 0)]
        seen = 0
        while directories:
            directory, depth = directories.pop()
            for entry in _entries(directory):
                seen += 1
                if seen > _MAX_ENTRIES:
                    return
                if entry.name in _SKIPPED or entry.name.startswith(_OURS):
                    continue
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
                        directories.append((Path(entry.path), depth + 1))
                    elif stat.S_ISREG(status.st_mode):
                        name = Path(entry.path).relative_to(self.work).as_posix()
                        yield name, (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def check_names(files: Mapping[str, bytes]) -> None:
    """Raise InvalidRequestError for a path that is not plain, relative and below the directory, or is taken twice."""
    directories: set[str] = set()
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts or str(path) != name:
            raise InvalidRequestError(
                f"the file path {name!r} is not relative and plain; use something like 'data/a.csv'"
            )
        if len(path.parts) > MAX_DEPTH or any(len(part.encode("utf-8", "replace")) > 255 for part in path.parts):
            raise InvalidRequestError(f"the file path {name[:100]!r} is too deep or too long")
        directories.update(str(parent) for parent in path.parents)
    for name in files.keys() & directories:
        raise InvalidRequestError(f"{name!r} cannot be a file and a directory at the same time")


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False)]
    except OSError:
        return []
