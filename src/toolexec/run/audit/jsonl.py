"""An audit log in a file with one record per line, which several processes may write at once."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from glob import escape
from pathlib import Path
from typing import Any, Final

from toolexec.errors import AuditError
from toolexec.run.audit.anchor import Anchor, lost
from toolexec.run.audit.chain import Header, Position, Tail, read_line, seal, stamp

try:
    import toolexec.process.lock as locks
except ImportError:  # pragma: no cover - Windows
    locks: Any = None

logger: logging.Logger = logging.getLogger(__name__)

_PATIENCE: Final = 2.0
_BLOCK: Final = 64 * 1024
_PAGE: Final = 4096


class JsonLines:
    """Appends lines to *path*, each with one write, under a lock on the file.

    Past *max_bytes* the file becomes `path.1` (that one `path.2`, ... of which *keep* are kept), and the chain goes on
    in a new one. With *sync* every record is on the disk before it counts as written. Raises AuditError when the file
    cannot be opened, is locked for more than 2 s, or does not end with a record that *key* verifies. The head of the
    log is kept in the directory *state*.
    """

    def __init__(
        self, path: Path, key: bytes | None, state: Path, *, sync: bool = False, max_bytes: int = 0, keep: int = 5
    ) -> None:
        if locks is None:  # pragma: no cover - Windows
            raise AuditError("this system cannot lock files; use an audit log in SQLite: name it audit.db", op="audit")
        self.path = path
        self._key = key
        self._sync = sync
        self._max_bytes = max_bytes
        self._keep = max(keep, 1)
        self._mutex = threading.Lock()
        self._closed = False
        self._fd = -1
        self._size = 0
        self._second = ""
        self._at = Position()
        self._anchor = Anchor(path, state, key, sync=sync)
        self.header = Header.new(key)
        with self._mutex:
            self._reopen()
            self._unlock()

    def append(self, body: str, moment: str = "") -> None:
        """Write one record, of the time *moment* or now. Raises AuditError, with nothing written."""
        with self._mutex:
            if self._fd < 0:
                self._reopen()
            self._lock()
            try:
                now = stamp()
                second = now[:19]
                # The size shows whether another process has written; whether the file is gone is checked each second.
                if second != self._second or os.lseek(self._fd, 0, os.SEEK_END) != self._size:
                    self._second = second
                    found = os.fstat(self._fd)
                    if found.st_size != self._size or not found.st_nlink:
                        self._catch_up(found)
                self._write(moment or now, body)
            except BaseException as error:
                self._size = -1  # so that the next one looks where the chain really is
                if isinstance(error, OSError):
                    raise _cannot(self.path, error) from error
                raise
            finally:
                if self._fd >= 0:
                    locks.unlock(self._fd)

    def close(self) -> None:
        """Write no more; closing twice is fine."""
        with self._mutex:
            self._closed = True
            self._release()
            self._anchor.close()

    # -- all below with the mutex, and the file locked --------------------------------------------------------------

    def _reopen(self) -> None:
        if self._closed:
            raise AuditError("the audit log is closed", op="audit")
        try:
            self._attach()
        except BaseException:
            self._release()
            raise

    def _write(self, moment: str, body: str) -> None:
        line, mark = seal(self._at, moment, body, self._key)
        if self._max_bytes and self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
            line, mark = seal(self._at, moment, body, self._key)
        self._put(line, mark)

    def _put(self, line: bytes, mark: str) -> None:
        written = 0
        try:
            # A kill may cut a write short between two pages of the file, and only there: so no line lies in two, with
            # blanks before it where it would. Only lines longer than a page can be torn.
            room = -self._size % _PAGE
            if room < len(line) <= _PAGE:
                self._size += os.write(self._fd, b" " * room)
            written = os.write(self._fd, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, "the disk is full")
            if self._sync:
                os.fsync(self._fd)
        except OSError:
            if written:
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)
        at = self._at
        at.seq, at.prev = at.seq + 1, mark
        self._anchor.write(self.header.log, at.seq - 1, mark)

    def _attach(self) -> None:
        """Open the file, lock it, and find out where the chain is; begin it if the file is new."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o600)
            self._lock()
            self._catch_up(os.fstat(self._fd))
        except OSError as error:
            raise _cannot(self.path, error) from error

    def _catch_up(self, found: os.stat_result) -> None:
        """Read where the chain is now, at the beginning and after another process has written."""
        if not found.st_nlink:
            logger.error("the audit log %s was deleted while it was written; a new one begins", self.path)
            self._release()
            self._attach()
            return
        if not found.st_size:
            self._size = 0
            self._begin()
            return
        torn = self._mend(found.st_size)
        tail = read_line(last_line(self._fd, self._size), self._key, str(self.path))
        if tail.data.get("kind") == "rotated":
            if self._is_in_place():  # who closed it was killed before it could move it
                self._move_aside()
            self._release()
            self._attach()
            return
        self.header = self._read_header()
        self._at = tail.following
        missing = self._missing()
        if torn:
            self._note_torn(torn)
        self._note_lost(missing)

    def _begin(self) -> None:
        """Return the first record of a file: of a new log, or of one that goes on after a rotation."""
        before = self._before()
        if before is None:
            self.header, self._at = Header.new(self._key), Position()
        else:
            self._at = before.following
        missing = self._missing()
        line, mark = seal(self._at, stamp(), self.header.body(), self._key)
        self._put(line, mark)
        self._note_lost(missing)

    def _before(self) -> Tail | None:
        """Return the end of the file that this one goes on from, if there is one; takes its header over."""
        older = older_files(self.path)
        if not older:
            return None
        _, file = older[0]
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            tail = read_line(last_line(fd, os.fstat(fd).st_size), self._key, str(file))
            self.header: Header = self._read_header(fd)
        finally:
            os.close(fd)
        return tail

    def _rotate(self) -> None:
        """Close this file with a record that says so, move it aside, and go on in a new one."""
        self._put(*seal(self._at, stamp(), '"kind":"rotated"', self._key))
        self._move_aside()
        self._release()
        self._attach()

    def _is_in_place(self) -> bool:
        try:
            return self.path.stat().st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False

    def _move_aside(self) -> None:
        """Move this file to `path.1` and each older one a place further, up to the first gap (which is left when this
        was cut short before)."""
        older = older_files(self.path)
        count = next((at for at, (place, _) in enumerate(older) if place != at + 1), len(older))
        for place, file in reversed(older[:count]):
            if place >= self._keep:
                file.unlink()
            else:
                file.rename(f"{self.path}.{place + 1}")
        self.path.rename(f"{self.path}.1")

    def _mend(self, size: int) -> bytes:
        """Move what stands after the last whole line to `path.torn`; gives it."""
        end = _end_of_lines(self._fd, size)
        self._size = end
        if end == size:
            return b""
        torn = os.pread(self._fd, size - end, end)
        if end and not torn.strip(b" "):
            os.ftruncate(self._fd, end)
            return b""
        fd = os.open(f"{self.path}.torn", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, torn + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        os.ftruncate(self._fd, end)
        logger.warning("the end of the audit log %s was torn; it is in %s.torn", self.path, self.path)
        if not end:
            self._begin()
        return torn

    def _note_torn(self, torn: bytes) -> None:
        note = f"a torn line of {len(torn)} bytes was moved to {self.path.name}.torn"
        self._put(*seal(self._at, stamp(), json.dumps({"kind": "note", "note": note})[1:-1], self._key))

    def _missing(self) -> str:
        """Return what the log's head says is missing before the next record. It must be asked before anything is
        written."""
        return lost(self._anchor.read(self.header.log), self._at)

    def _note_lost(self, missing: str) -> None:
        if missing:
            logger.error("records of the audit log %s are missing; toolexec audit verify says which", self.path)
            self._put(*seal(self._at, stamp(), missing, self._key))

    def _read_header(self, fd: int = -1) -> Header:
        number = fd if fd >= 0 else self._fd
        first = b""
        while b"\n" not in first and (block := os.pread(number, _BLOCK, len(first))):
            first += block
        tail = read_line(first[: first.find(b"\n") + 1], self._key, str(self.path))
        header = Header.read(tail.data)
        if header is None:
            raise AuditError(f"{self.path} is not an audit log: its first record is not one's header", op="audit")
        return header

    def _lock(self) -> None:
        try:
            held = locks.lock(self._fd, within=_PATIENCE, pause=0.0005)
        except OSError as error:
            raise _cannot(self.path, error) from error
        if not held:
            raise AuditError(
                f"another process has kept the audit log {self.path} locked for {_PATIENCE:g} s; it may be stopped "
                "(fuser names it), or give each server a log of its own",
                op="audit",
            )

    def _unlock(self) -> None:
        if self._fd >= 0:
            locks.unlock(self._fd)

    def _release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)  # which unlocks it
            self._fd = -1


def older_files(path: Path) -> list[tuple[int, Path]]:
    """Return the files that *path* was moved to with their numbers, the youngest first."""
    numbers = (file.name.removeprefix(f"{path.name}.") for file in path.parent.glob(f"{escape(path.name)}.*"))
    return [
        (number, path.with_name(f"{path.name}.{number}")) for number in sorted(map(int, filter(_is_place, numbers)))
    ]


def _is_place(text: str) -> bool:
    return text.isdecimal() and text.isascii() and not text.startswith("0")


def last_line(fd: int, size: int) -> bytes:
    """Return the last whole line within the first *size* bytes; empty when there is none."""
    end = _end_of_lines(fd, size)
    return os.pread(fd, end - (start := _end_of_lines(fd, end - 1)), start) if end else b""


def _end_of_lines(fd: int, size: int) -> int:
    """Return where the last line that ends within the first *size* bytes ends; 0 when there is none."""
    while size > 0:
        start = max(size - _BLOCK, 0)
        found = os.pread(fd, size - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        size = start
    return 0


def _cannot(path: Path, error: OSError) -> AuditError:
    return AuditError(
        f"the audit log {path} cannot be written: {error.strerror or error}; no call is made that cannot be logged",
        op="audit",
    )
