"""The body of a response, decoded as it arrives and never longer than it may be."""

from __future__ import annotations

import zlib
from typing import Final

ENCODINGS: Final = "gzip, deflate"
"""The encodings that are asked for; a body in another one is refused."""
_GZIP: Final = 31
_ZLIB: Final = 15
_RAW: Final = -15
_NAMES: Final = {"": None, "identity": None, "gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}
_STEP: Final = 1 << 18
_HARMLESS: Final = 1 << 20
_MOST_RATIO: Final = 300
"""Text rarely shrinks to less than a hundredth; a bomb of zeros shrinks to a thousandth."""


class BodyError(Exception):
    """A body is too large, decodes to far more than was sent, or cannot be decoded; the message says which."""


class Body:
    """Collects a body in the encoding that its `Content-Encoding` header names, up to *limit* bytes after decoding.

    Raises BodyError for an encoding that was not asked for.
    """

    def __init__(self, encoding: str, limit: int) -> None:
        name = encoding.strip().lower()
        if name not in _NAMES:
            raise BodyError(f"its encoding is {encoding[:40]!r}, which was not asked for")
        self._window = _NAMES[name]
        self._limit = limit
        self._read = self._length = 0
        self._parts: list[bytes] = []
        self._decoder = zlib.decompressobj(self._window) if self._window else None
        self._undecided = self._window == _ZLIB
        self._head = b""

    def feed(self, data: bytes) -> None:
        """Add what has arrived. Raises BodyError."""
        if self._decoder is None:
            self._read += len(data)
            self._add(data)
            return
        if self._undecided:
            data = self._head = self._head + data
            if len(data) < 2:
                return
            self._decide(data)
        try:
            self._decode(data)
        except zlib.error as error:
            raise BodyError(f"it cannot be decoded: {error}") from error

    def take(self) -> bytes:
        """Return what was decoded since the last time, and keep it no longer."""
        parts, self._parts = self._parts, []
        return b"".join(parts)

    def finish(self) -> bytes:
        """Return the whole body, but for what was taken. Raises BodyError when its end is missing."""
        if self._decoder is not None and (self._read or self._head) and not self._decoder.eof:
            raise BodyError("it cannot be decoded: its end is missing")
        return b"".join(self._parts)

    def _decide(self, head: bytes) -> None:
        """Look at the first two bytes of `deflate`: some servers send it without the header of zlib, and clients have
        always put up with it."""
        self._undecided = False
        if head[0] & 15 != 8 or int.from_bytes(head[:2], "big") % 31:
            self._window, self._decoder = _RAW, zlib.decompressobj(_RAW)

    def _decode(self, data: bytes) -> None:
        """Decode *data* in steps, so that what it becomes is counted before more of it is made."""
        while True:
            part = self._step(data)
            decoder = self._decoder
            assert decoder is not None
            rest = decoder.unconsumed_tail or decoder.unused_data
            self._read += len(data) - len(rest)
            if self._read > self._limit:  # such as empty members without end
                raise BodyError(f"it is longer than {self._limit} bytes")
            self._add(part)
            if not rest and (len(part) < _STEP or decoder.eof):
                return
            data = rest

    def _step(self, data: bytes) -> bytes:
        assert self._decoder is not None
        if self._decoder.eof:  # gzip allows several members, one after the other
            if self._window != _GZIP:
                raise BodyError("it goes on after its end")
            self._decoder = zlib.decompressobj(_GZIP)
        return self._decoder.decompress(data, _STEP)

    def _add(self, part: bytes) -> None:
        self._length += len(part)
        if self._length > self._limit:
            raise BodyError(f"it is longer than {self._limit} bytes")
        if self._length > _HARMLESS and self._length > self._read * _MOST_RATIO:
            raise BodyError(f"{self._read} bytes became more than {_MOST_RATIO} times as many when decoded")
        if part:
            self._parts.append(part)
