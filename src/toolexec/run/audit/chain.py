"""The chain: every record holds the hash of the one before it, and ends with its own.

A record is one line of JSON. Its hash is that of the line's bytes before `,"hash":"`: SHA-256, or HMAC-SHA-256 where
the log has a key. So any change, removal, insertion or move breaks the chain, and without the key a new one cannot be
made. Blanks before a line do not count.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any, Final, cast

from toolexec.errors import AuditError
from toolexec.model.json_value import JSONDict
from toolexec.version import __version__

NO_HASH: Final = "0" * 64
"""What the first record has in place of the hash before it."""

VERSION: Final = 1
_MARK: Final = b',"hash":"'
_END: Final = b'"}\n'
_HMAC_BLOCK: Final = 64
_SEALED: Final = len(_MARK) + 64 + len(_END)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the first record of every file says of its log: `log` is its ID, `args_key` what digests of arguments are
    made with (empty: made from the log's own key), `keyed` whether the hashes need that key."""

    log: str
    args_key: str
    keyed: bool

    @classmethod
    def new(cls, key: bytes | None) -> Header:
        """Return the header of a new log."""
        return cls(log=secrets.token_hex(8), args_key="" if key else secrets.token_hex(32), keyed=bool(key))

    @classmethod
    def read(cls, record: JSONDict) -> Header | None:
        """Return the header in a record, if it is one."""
        log, args_key = record.get("log"), record.get("args_key")
        if record.get("kind") != "log" or not isinstance(log, str) or not isinstance(args_key, str):
            return None
        return cls(log=log, args_key=args_key, keyed=record.get("keyed") is True)

    def body(self) -> str:
        """Return the header as the inside of a record."""
        facts = {"kind": "log", "log": self.log, "tool": f"toolexec {__version__}", "keyed": self.keyed}
        return json.dumps({**facts, "args_key": self.args_key})[1:-1]

    def digest_key(self, key: bytes | None) -> bytes:
        """Return what digests of arguments in this log are made with; the same arguments have the same digest only
        in it."""
        return hmac.digest(key, f"args of {self.log}".encode(), "sha256") if key else bytes.fromhex(self.args_key)


@dataclass(slots=True)
class Position:
    """Where the chain is: the number of the next record, and the hash of the last one."""

    seq: int = 0
    prev: str = NO_HASH


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """A record as it was read: its data, and the hash that it ends with."""

    data: JSONDict
    hash: str

    @property
    def following(self) -> Position:
        """Where the chain goes on after it."""
        return Position(int(self.data["seq"]) + 1, self.hash)


_second = 0
_second_text = ""


def stamp() -> str:
    """Return the time now in UTC, to the microsecond, as ISO 8601."""
    global _second, _second_text
    nanoseconds = time.time_ns()
    second = nanoseconds // 1_000_000_000
    if second != _second:
        _second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = second
    return f"{_second_text}.{nanoseconds // 1000 % 1_000_000:06d}Z"


def seal(at: Position, moment: str, body: str, key: bytes | None) -> tuple[bytes, str]:
    """Return the line for the record with the inside *body*, and its hash."""
    text = f'{{"v":{VERSION},"seq":{at.seq},"time":"{moment}",{body},"prev":"{at.prev}"'.encode()
    mark = _hash(text, key)
    return b"%b%b%b%b" % (text, _MARK, mark.encode(), _END), mark


def _hash(text: bytes, key: bytes | None) -> str:
    if not key:
        return hashlib.sha256(text).hexdigest()
    begun, outer = _begun(key)
    inner, whole = begun.copy(), outer.copy()
    inner.update(text)
    whole.update(inner.digest())
    return whole.hexdigest()


@functools.lru_cache(maxsize=8)
def _begun(key: bytes) -> tuple[Any, Any]:
    """Both hashes of HMAC-SHA-256 (RFC 2104) with the key in them: `hmac` would take it in again for each record, which
    takes longer than all else."""
    block = (hashlib.sha256(key).digest() if len(key) > _HMAC_BLOCK else key).ljust(_HMAC_BLOCK, b"\0")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))  # as the RFC has them
    return inner, outer


def unsealed(line: bytes, key: bytes | None, *, check: bool = True) -> tuple[Tail | None, str]:
    """Return the record in a line, if it is one, and what is wrong with it: empty when it is whole and its hash is
    right.

    Without *check* the hash is taken as it is.
    """
    line = line.lstrip(b" ")
    if not line.endswith(b"\n"):
        return None, "the line is torn: it has no end"
    text, mark = line[:-_SEALED], line[-_SEALED + len(_MARK) : -len(_END)]
    if line[-_SEALED : -_SEALED + len(_MARK)] != _MARK or not line.endswith(_END):
        return None, "the line is not a record"
    try:
        data = json.loads(line)
        tail = Tail(data=cast("JSONDict", data), hash=mark.decode("ascii"))
        _ = tail.following
    except (ValueError, TypeError, KeyError, RecursionError):
        return None, "the line is not a record"
    if check and not hmac.compare_digest(_hash(text, key).encode(), mark):
        return tail, "its hash does not fit: it was changed" + (", or the key is another one" if key else "")
    return tail, ""


def read_line(line: bytes, key: bytes | None, where: str) -> Tail:
    """Return the record in a line of *where*; raises AuditError unless it is whole."""
    tail, problem = unsealed(line, key)
    if tail is None or problem:
        raise AuditError(
            f"the audit log {where} cannot be continued, {problem}; toolexec audit verify {where} says more. Move the "
            "file away to begin a new log",
            op="audit",
        )
    return tail
