"""What is kept of a log outside of its file: its key, and its head, so that a tail that is cut off shows.

Both are in a directory of the user's state. A head is a small file with two slots, which are written in turn: whatever
ends the process in the middle of a write leaves the other one. It is written after the record, so it is behind the log
by one record at most where a process was killed, and never ahead of it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolexec.errors import AuditError
from toolexec.process import caches
from toolexec.run.audit.chain import Position

_SLOT: Final = 128
_SIZE: Final = 2 * _SLOT
_SEQ: Final = 20
_MARK: Final = 64
_MAC: Final = 32
_USED: Final = _SEQ + _MARK + _MAC
_KEY_BYTES: Final = 32
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The last record of a log: its number and its hash. `valid` is false for a head that was changed."""

    seq: int = -1
    hash: str = ""
    valid: bool = True


def state_directory(given: str | Path | None = None) -> Path:
    """Return the directory of keys and heads: the given one, else `toolexec/audit` in the user's state."""
    if given is not None:
        return Path(given)
    return caches.state_directory() / "audit"


def default_key(path: Path, state: Path) -> bytes | None:
    """Return the key that was made for the log in *path*; None when there is none. Raises AuditError for a file that
    cannot be read, or that others can.
    """
    place = _place(path, state, "key")
    try:
        with place.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or (os.name == "posix" and status.st_mode & 0o077):
                raise AuditError(
                    f"others can read the key {place} of the audit log {path}; make it yours alone: chmod 600 {place}",
                    op="audit",
                )
            key = file.read(4096).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot(place, error) from error
    if len(key) < _KEY_BYTES:
        raise AuditError(f"the key {place} of the audit log {path} is damaged: it is too short", op="audit")
    return key


def new_default_key(path: Path, state: Path) -> bytes:
    """Make the key for the log in *path*; of several processes that do so at once, all get the same. Raises AuditError
    when it cannot be written."""
    place = _place(path, state, "key")
    draft = place.with_name(f".{secrets.token_hex(8)}")
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, secrets.token_hex(_KEY_BYTES).encode() + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        with suppress(FileExistsError):
            os.link(draft, place)  # whole, or not at all
    except OSError as error:
        raise _cannot(place, error) from error
    finally:
        draft.unlink(missing_ok=True)
    key = default_key(path, state)
    if key is None:
        raise AuditError(f"the key {place} of the audit log was deleted while it was made", op="audit")
    return key


def heads_of(path: Path, state: Path) -> dict[str, bytes]:
    """Return the heads of all logs that were ever kept in *path*, as they are in their files, by their ID's digest."""
    found: dict[str, bytes] = {}
    with suppress(OSError):
        for place in state.glob(f"{_digest(str(path.resolve()))}-*.head"):
            found[place.stem.partition("-")[2]] = place.read_bytes()
    return found


def head_in(heads: dict[str, bytes], log: str, key: bytes | None) -> Head | None:
    """Return the head of the log with the ID *log*; None when there is none."""
    data = heads.get(_digest(log))
    return _read(data, log, key) if data is not None else None


def lost(head: Head, at: Position) -> str:
    """Return what is missing of a log that goes on at *at*, as the inside of a record; empty when nothing is."""
    last = at.seq - 1
    if not head.valid:
        facts = {"kind": "lost", "note": "the head of this log was changed: records may be missing here"}
    elif head.seq > last:
        facts = {"kind": "lost", "note": f"the records {last + 1} to {head.seq} are missing", "after": last}
    elif head.seq == last >= 0 and head.hash != at.prev:
        facts = {"kind": "lost", "note": f"record {last} is another one than was written"}
    else:
        return ""
    return json.dumps(facts)[1:-1]


class Anchor:
    """Writes the heads of the logs in *path*. It is used by who has the log locked; `close` releases it."""

    def __init__(self, path: Path, state: Path, key: bytes | None, *, sync: bool = False) -> None:
        self._path = path
        self._state = state
        self._key = key
        self._sync = sync
        self._log = ""
        self._map: mmap.mmap | None = None
        self._mac = hashlib.blake2b()

    def write(self, log: str, seq: int, mark: str) -> None:
        """Write that the record *seq* with the hash *mark* is the last one. Raises AuditError."""
        slots = self._map if log == self._log else None
        if slots is None:
            slots = self._opened(log)
        mac = self._mac.copy()
        text = b"%020d%b" % (seq, mark.encode())
        mac.update(text)
        start = seq % 2 * _SLOT
        slots[start : start + _USED] = text + mac.hexdigest().encode()
        if self._sync:
            slots.flush()

    def read(self, log: str) -> Head:
        """Return the head of that log; one with the number -1 when nothing was written yet. Raises AuditError."""
        return _read(self._opened(log)[:], log, self._key)

    def close(self) -> None:
        """Release the file; it can be used again."""
        if self._map is not None:
            self._map.close()
            self._map = None
        self._log = ""

    def _opened(self, log: str) -> mmap.mmap:
        if self._map is not None and log == self._log:
            return self._map
        self.close()
        place = self._state / f"{_digest(str(self._path.resolve()))}-{_digest(log)}.head"
        try:
            self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(place, _FLAGS, 0o600)
            try:
                if os.fstat(fd).st_size != _SIZE:
                    os.ftruncate(fd, _SIZE)
                self._map = mmap.mmap(fd, _SIZE)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            raise _cannot(place, error) from error
        self._log = log
        self._mac = _mac_of(log, self._key)
        return self._map


def _read(data: bytes, log: str, key: bytes | None) -> Head:
    best = Head()
    written = False
    for start in (0, _SLOT):
        text, mac = data[start : start + _SEQ + _MARK], data[start + _SEQ + _MARK : start + _USED]
        if not any(text):
            continue
        written = True
        expected = _mac_of(log, key)
        expected.update(text)
        if hmac.compare_digest(expected.hexdigest().encode(), mac) and int(text[:_SEQ]) > best.seq:
            best = Head(seq=int(text[:_SEQ]), hash=text[_SEQ:].decode())
    return best if best.seq >= 0 or not written else Head(valid=False)


def _mac_of(log: str, key: bytes | None) -> hashlib.blake2b:
    # A long key is longer than BLAKE2 takes; its hash is as good.
    own = hashlib.blake2b(key, digest_size=32).digest() if key else b""
    start = hashlib.blake2b(digest_size=_MAC // 2, key=own)
    start.update(f"head of {log}\n".encode())
    return start


def _place(path: Path, state: Path, kind: str) -> Path:
    return state / f"{_digest(str(path.resolve()))}.{kind}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=10).hexdigest()


def _cannot(place: Path, error: Exception) -> AuditError:
    return AuditError(
        f"{place}, which protects the audit log, cannot be used: {getattr(error, 'strerror', None) or error}; make the "
        "directory writable, or set XDG_STATE_HOME to one that is",
        op="audit",
    )
