"""Files of the host into the working directory, and what programs leave there out again, over the guest protocol."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from typing import Any

from ..python.protocol import MAX_LEFT_OUT
from ..python.values import to_text

_PIECE = 1 << 20
_MAX_DEPTH = 20
_MAX_ENTRIES = 20_000
_SKIPPED = ("__pycache__", ".cache", ".npm", ".config")
_OURS = ".toolexec-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TICK = 20_000_000  # nanoseconds: clocks of file systems are coarser than that of the system


def handle(line: Any, message: Any, work: str) -> bool:
    """Do what a message asks for, if it is about files; False if it is not. *work* is the path of the directory."""
    kind = message.get("type")
    directory = _directory(work)
    if kind == "put_file":
        directory.put(message.get("payload") or {}, line.take_data(message))
    elif kind == "files_end":
        problem = directory.finish()
        kind, payload = ("error", problem) if problem else ("response", {})
        line.send(kind, message["id"], to_text(payload))
    elif kind == "take_files":
        _take(line, message["id"], message.get("payload") or {}, directory)
    else:
        return False
    return True


def note(work: str) -> None:
    """Take what is in the directory for known: it was there before the guest, and is not a program's to give."""
    directory = _directory(work)
    directory.known = dict(directory.scan())


def changed(work: str) -> bool:
    """Return whether there is a file that is new, or has changed since it was put or taken."""
    directory = _directory(work)
    return any(directory.known.get(name) != mark for name, mark in directory.scan())


def _take(line: Any, message_id: str, payload: dict[str, Any], directory: _Directory) -> None:
    """Send what is new, and then the names of what is too much."""
    most, left = payload.get("max_files", 0), payload.get("max_bytes", 0)
    left_out: list[str] = []
    found = dict(directory.scan())
    for name in sorted(name for name, mark in found.items() if directory.known.get(name) != mark):
        mark = directory.send(line, message_id, name, left) if most > 0 and _is_text(name) else None
        if mark is None:
            left_out.append(name)
            continue
        found[name] = mark
        most -= 1
        left -= mark[0]
    directory.known = found
    line.send("response", message_id, to_text({"left_out": left_out[:MAX_LEFT_OUT]}))


class _Directory:
    """The working directory of programs. What they leave may be links that lead elsewhere, pipes, deep trees."""

    def __init__(self, path: str) -> None:
        self.known: dict[str, tuple[int, ...]] = {}
        """What was put or taken, by relative path."""
        self._path = path
        self._file = -1
        self._problem: Any = None

    def put(self, payload: dict[str, Any], data: bytes) -> None:
        """Write one more piece of a file; after a problem nothing more is written."""
        if self._problem is not None:
            return
        name = payload.get("path") or ""
        try:
            if self._file < 0:
                self._open(name)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            if payload.get("last"):
                self._close(name)
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None)
            code = "disk_full" if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "bad_path"
            said = os.strerror(number) if number else str(error)
            self._problem = {"code": code, "error": "the file " + repr(name) + ": " + said}
            self._abandon()

    def finish(self) -> Any:
        """Return what went wrong since the last time, None if nothing did."""
        problem, self._problem = self._problem, None
        self._abandon()
        return problem

    def send(self, line: Any, message_id: str, name: str, most: int) -> tuple[int, ...] | None:
        """Send a plain file in pieces. Gives its mark, None if it is not one any more or has over *most* bytes."""
        try:
            file = self._walk(name, _READ)
        except OSError:
            return None
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                return None
            if status.st_mtime_ns > time.time_ns() - _TICK:
                _set_back(file)
            mark = _mark(os.fstat(file))
            left = status.st_size
            last = False
            while not last:
                data = _read(file, min(left, _PIECE))
                last = len(data) in (left, 0) or len(data) < _PIECE  # shorter: a process truncates it right now
                left -= len(data)
                line.send_data({"type": "file", "id": message_id, "payload": {"path": name, "last": last}}, data)
            return mark
        finally:
            os.close(file)

    def scan(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the plain files below the directory."""
        try:
            top = os.open(self._path, _DIRECTORY)
        except OSError:
            return
        yield from _scan(top, "", 1, [_MAX_ENTRIES])

    def _open(self, name: str) -> None:
        file = self._walk(name, _WRITE)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise ValueError("it is not a plain file")
        self._file = file

    def _close(self, name: str) -> None:
        """Remember a file that is whole."""
        _set_back(self._file)
        self.known[name] = _mark(os.fstat(self._file))
        os.close(self._file)
        self._file = -1

    def _abandon(self) -> None:
        """Give up a file that is not whole, and the room that it takes."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1

    def _walk(self, name: str, flags: int) -> int:
        """Open a file from directory to directory, so that no link can lead elsewhere; to write, directories are
        made.
        """
        parts = name.split("/")
        if not name or not all(part and part not in (".", "..") for part in parts):
            raise ValueError("the path is not plain and relative")
        directory = os.open(self._path, _DIRECTORY)
        try:
            for part in parts[:-1]:
                if flags & os.O_CREAT:
                    _make_directory(part, directory)
                inner = os.open(part, _DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = inner
            return os.open(parts[-1], flags, 0o600, dir_fd=directory)
        finally:
            os.close(directory)


_directories: dict[str, _Directory] = {}


def _directory(work: str) -> _Directory:
    if work not in _directories:
        _directories[work] = _Directory(work)
    return _directories[work]


def _scan(directory: int, prefix: str, depth: int, left: list[int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """As `_Directory.scan`, from an open directory, which is closed then; *left* has how many entries are still
    looked at.
    """
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                left[0] -= 1
                if left[0] < 0:
                    return
                name = entry.name
                if name in _SKIPPED or name.startswith(_OURS):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield prefix + name, _mark(status)
                    elif stat.S_ISDIR(status.st_mode) and depth < _MAX_DEPTH:
                        inner = os.open(name, _DIRECTORY, dir_fd=directory)
                        yield from _scan(inner, prefix + name + "/", depth + 1, left)
                except OSError:
                    continue
    except OSError:
        return
    finally:
        os.close(directory)


def _mark(status: os.stat_result) -> tuple[int, ...]:
    """The size of a file, and what else changes when it is written to."""
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _make_directory(name: str, inside: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=inside)
    except FileExistsError:
        return


def _read(file: int, size: int) -> bytes:
    """So many bytes, fewer at the end of the file, or when it cannot be read."""
    data = b""
    try:
        while len(data) < size:
            more = os.read(file, size - len(data))
            if not more:
                break
            data = data + more if data else more
    except OSError:
        return data
    return data


def _set_back(file: int) -> None:
    """Make a file older than the resolution of its file system's clock: every later write then changes its time,
    even at once."""
    past = time.time_ns() - _TICK
    os.utime(file, ns=(past, past))


def _is_text(name: str) -> bool:
    """Whether a name is UTF-8, as names on the line are."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
