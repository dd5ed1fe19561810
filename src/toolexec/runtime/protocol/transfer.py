"""Files to and from a guest that has no directory in common with the host: over the guest protocol, in pieces.

What comes back was made by hostile code, in a process that may lie about it; so it is checked here, and bounded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from toolexec.errors import InvalidRequestError, ProtocolError
from toolexec.model.json_value import JSONObject
from toolexec.process.directory import check_names
from toolexec.runtime.guest.python.protocol import MAX_LEFT_OUT
from toolexec.runtime.protocol.messages import HostState, Message, encode_data_frame, encode_message
from toolexec.runtime.protocol.sender import PIECE, Sender

MAX_FILE_BYTES: Final = 256 << 20
"""How many bytes the files that a run gives back may have together."""

_TOGETHER: Final = 50
_LEAST_PIECE: Final = 1 << 16
_MAX_SAID: Final = 500


class Transfers:
    """The files of one guest, in and out, one transfer at a time."""

    def __init__(self, state: HostState, sender: Sender) -> None:
        self._state = state
        self._sender = sender
        self._count = 0
        self._answer: asyncio.Future[Message | None] | None = None
        self._received: _Received | None = None

    async def put(self, files: Mapping[str, bytes]) -> bool:
        """Put *files*; False when the guest hung up before it said that they are there.

        Raises ProtocolError, with nothing sent, while that must not be; InvalidRequestError for paths that make no
        sense, with nothing sent either, and when the guest cannot put them.
        """
        if len(files) > _TOGETHER:
            await asyncio.to_thread(check_names, files)
        else:
            check_names(files)
        if not files:
            return True
        answer, transfer_id = self._begin("put")
        for frames in _frames_of(files, transfer_id):
            await self._sender.put_when_room(frames)
        self._sender.put(encode_message("files_end", transfer_id, "{}"))
        message = await answer
        if message is not None and message.type == "error":
            raise _put_error(message)
        return message is not None

    async def take(
        self, max_files: int, max_bytes: int, *, nothing_new: bool = False
    ) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """Return the new and changed files, and the names of those left out; none when the guest hangs up, or has said
        with its result that there are none (*nothing_new*).

        Raises ProtocolError while that must not be, and for files that the guest lies about, or cannot give.
        """
        answer, transfer_id = self._begin("take")
        if nothing_new:
            self._state.end_transfer()
            return {}, ()
        received = self._received = _Received(max_files, max_bytes)
        payload = json.dumps({"max_files": max_files, "max_bytes": max_bytes})
        self._sender.put(encode_message("take_files", transfer_id, payload))
        try:
            message = await answer
        finally:
            self._received = None
        return await asyncio.to_thread(received.result, message) if message is not None else ({}, ())

    def receive(self, message: Message, data: bytes) -> None:
        """Receive a piece of a file; raises ProtocolError for one that breaks a bound or the order."""
        if self._received is not None:
            self._received.add(message.payload, data)

    def finish(self, message: Message) -> None:
        """Note that the guest has answered; raises ProtocolError when a file has no end."""
        if self._received is not None:
            self._received.finish()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def lose(self) -> None:
        """Note that the guest is gone."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def _begin(self, transfer: Literal["put", "take"]) -> tuple[asyncio.Future[Message | None], str]:
        """Return what will be the answer of the guest, None if it hangs up, and the ID of the transfer."""
        transfer_id = f"files{self._count + 1}"
        self._state.begin_transfer(transfer, transfer_id)
        self._count += 1
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer, transfer_id


def _frames_of(files: Mapping[str, bytes], transfer_id: str) -> Iterator[bytes]:
    """Yield the frames that put *files* into a guest; some small ones together, but not much over `PIECE`."""
    ready: list[bytes] = []
    size = 0
    for name, content in files.items():
        whole = memoryview(content)
        for start in range(0, max(len(whole), 1), PIECE):
            piece = whole[start : start + PIECE]
            payload = json.dumps({"path": name, "last": start + PIECE >= len(whole)})
            frame = encode_data_frame("put_file", transfer_id, payload, piece)
            if ready and (size + len(frame) > PIECE or len(ready) == _TOGETHER):
                yield b"".join(ready)
                ready, size = [], 0
            ready.append(frame)
            size += len(frame)
    if ready:
        yield b"".join(ready)


def _put_error(message: Message) -> InvalidRequestError:
    """Why a guest could not put the files, from its `error` message."""
    said = str(message.payload.get("error"))[:_MAX_SAID]
    if message.payload.get("code") == "disk_full":
        return InvalidRequestError(
            f"the files do not fit into the sandbox: {said}; raise limits.disk_bytes, or send less",
            details={"resource": "disk"},
        )
    return InvalidRequestError(f"the files cannot be put into the sandbox: {said}")


class _Received:
    """The files that come from a guest. Raises ProtocolError for whatever breaks a bound or the order."""

    def __init__(self, max_files: int, max_bytes: int) -> None:
        self._max_files = max_files
        self._left = max_bytes
        self._pieces: dict[str, list[bytes]] = {}
        self._unfinished = ""

    def add(self, payload: JSONObject, data: bytes) -> None:
        """Add one more piece of a file."""
        path, last = payload.get("path"), payload.get("last")
        if not isinstance(path, str) or not isinstance(last, bool):
            raise ProtocolError("a piece of a file has no path, or does not say whether it is the last one")
        if self._unfinished and path != self._unfinished:
            raise ProtocolError(f"the file {path[:100]!r} came before the end of {self._unfinished[:100]!r}")
        if not self._unfinished:
            self._begin(path)
        self._unfinished = "" if last else path
        self._left -= len(data)
        if self._left < 0:
            raise ProtocolError("the files of the guest are larger than they may be")
        if not last and len(data) < _LEAST_PIECE:  # many small ones would take far more memory than they hold
            raise ProtocolError(f"a file comes in pieces of {len(data)} bytes; they must have {_LEAST_PIECE}")
        self._pieces[path].append(data)

    def finish(self) -> None:
        """Note that all are here."""
        if self._unfinished:
            raise ProtocolError(f"the file {self._unfinished[:100]!r} has no end")

    def result(self, answer: Message) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """Return the files, and the names of those that the guest has left out as they were over a bound.

        May take long: to be called in a thread.
        """
        if answer.type == "error":
            said = str(answer.payload.get("error"))[:_MAX_SAID]
            raise ProtocolError(f"the sandbox could not give back its files: {said}")
        _check(self._pieces)
        files: dict[str, bytes] = {}
        for path, pieces in self._pieces.items():
            files[path] = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            while pieces:  # to free all at once would hold up everybody
                pieces.pop()
        names = answer.payload.get("left_out")
        left_out = names[:MAX_LEFT_OUT] if isinstance(names, list) else []
        return files, tuple(name[:_MAX_SAID] for name in left_out if isinstance(name, str))

    def _begin(self, path: str) -> None:
        if path in self._pieces:
            raise ProtocolError(f"the file {path[:100]!r} came twice")
        if len(self._pieces) >= self._max_files:
            raise ProtocolError(f"the guest gives back more than {self._max_files} files")
        _check({path: []})
        self._pieces[path] = []


def _check(paths: JSONObject) -> None:
    try:
        check_names(paths)
    except InvalidRequestError as error:
        raise ProtocolError(f"the guest gives back a file under a path that is none: {error}") from error
