"""What goes between a host and its worker processes: frames on a socket, for one run at a time."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from toolexec.model.json_value import JSONDict, JSONObject

_HEAD: Final = struct.Struct("!BI")
_SIZE: Final = struct.Struct("!I")
_CHUNK: Final = 1 << 16
_LONGEST: Final = (1 << 32) - 1


class Kind(IntEnum):
    """What a frame is."""

    RUN = 1  # to the worker: what a guest is granted, its files, and its first frame
    REPLY = 2  # to the worker: the answer to EXCHANGE
    REFUSE = 3  # to the worker: it has no answer, and the guest must end
    EXCHANGE = 4  # to the host: a frame of the guest that waits for its answer
    POST = 5  # to the host: a frame of the guest without an answer
    STDOUT = 6  # to the host: what the guest writes below Python's streams
    STDERR = 7
    END = 8  # to the host: how the guest ended, and its files


class Line:
    """Sends and receives frames over a stream socket: a kind (1 byte), a length (4, big-endian), that many bytes.

    One thread at a time sends, and one receives; both block.
    """

    def __init__(self, connection: socket.socket, most_bytes: int = _LONGEST) -> None:
        """*most_bytes* is the longest frame that is received: a host has a bound for what a worker sends, and a worker
        takes what its host sends, as a guest in the host's process would."""
        self.socket = connection
        self._most = most_bytes
        self._rest = b""

    def send(self, kind: Kind, *parts: bytes) -> None:
        """Send one frame with *parts*, joined. Raises OSError."""
        size = sum(map(len, parts))
        head = _HEAD.pack(kind, size)
        if size <= _CHUNK:
            self.socket.sendall(b"".join((head, *parts)))
            return
        for part in (head, *parts):  # without one more copy of what is large
            self.socket.sendall(part)

    def receive(self) -> tuple[int, bytes]:
        """Return the kind and the bytes of the next frame. Raises EOFError, OSError, and ValueError over the bound."""
        data = self._rest
        while len(data) < _HEAD.size:
            data += self._more()
        kind, size = _HEAD.unpack_from(data)
        if size > self._most:
            raise ValueError(f"a frame of {size} bytes is over the limit of {self._most}")
        ends = _HEAD.size + size
        if len(data) >= ends:
            self._rest = data[ends:]
            return kind, data[_HEAD.size : ends]
        parts = [data[_HEAD.size :]]
        self._rest = b""
        have = len(parts[0])
        while have < size:  # the system puts it where it stays, and the interpreter is free meanwhile
            part = self.socket.recv(size - have, socket.MSG_WAITALL)
            if not part:
                raise EOFError("the other end hung up within a frame")
            parts.append(part)
            have += len(part)
        return kind, b"".join(parts)

    def _more(self) -> bytes:
        data = self.socket.recv(_CHUNK)
        if not data:
            raise EOFError("the other end hung up")
        return data


def pack(about: JSONObject, blobs: Sequence[bytes]) -> list[bytes]:
    """Return the parts of a frame with *about* as JSON, and *blobs*."""
    header = json.dumps([about, [len(blob) for blob in blobs]]).encode()
    return [_SIZE.pack(len(header)), header, *blobs]


def unpack(body: bytes) -> tuple[JSONDict, list[bytes]]:
    """Return what `pack` was given. Raises ValueError for anything else."""
    try:
        (length,) = _SIZE.unpack_from(body)
        at = _SIZE.size + length
        about, sizes = json.loads(body[_SIZE.size : at])
        blobs: list[bytes] = []
        for size in sizes:
            blobs.append(body[at : at + size])
            at += size
    except (struct.error, TypeError, RecursionError) as error:
        raise ValueError(f"not a frame of this protocol: {error}") from error
    if not isinstance(about, dict) or at != len(body):
        raise ValueError("not a frame of this protocol")
    return about, blobs
