"""A program in a process of its own, which speaks the guest protocol with this guest, and through it with the host."""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - signal takes longer to import
import _socket
import _thread
import os
from typing import Any

from ..python.protocol import MAX_FRAME_BYTES
from ..python.values import to_text
from .processes import exit_code, move_high, spawn

CHILD_FD = 3
_RESULTS = (b'{"type":"result"', b'[{"type":"result"')
_OURS = (b'"type":"bye"', b'"type":"net_')
_MINE = ("response", "error")


class Child:
    """One process; its end of the talk is a socket with the number `CHILD_FD`. Used for one program.

    Frames are carried as they are. Whatever is between this guest and the host, such as files, connections and what
    is written to stdout and stderr, goes on meanwhile, and a process that dies breaks no frame.
    """

    def __init__(self, line: Any, command: list[str]) -> None:
        self._line = line
        self._code: Any = None
        self._writing = _thread.allocate_lock()
        ours, theirs = _socket.socketpair()
        try:
            self._fd = move_high(ours.fileno())
            high = move_high(theirs.fileno())
            try:
                self._pid = spawn(command, os.environ, [(high, CHILD_FD)])
            except BaseException:
                os.close(self._fd)
                raise
            finally:
                os.close(high)
        finally:
            ours.close()
            theirs.close()

    def greet(self) -> None:
        """Wait until it is ready."""
        self._receive()

    def run(self, message: dict[str, Any]) -> Any:
        """Have it run a program. Gives the frame with its result; or if there is none, its exit code."""
        self._line.relay = self._relay
        try:
            self._write(to_text([message]).encode())
            while True:
                frame = self._receive()
                if frame is None:
                    return self.close()
                if self._is_result(frame):
                    return frame
                if b'"type":"hello"' not in frame[:40]:
                    self._line.captured.drain()  # it was printed before the call, and comes by another way
                    self._line.send_frame(frame)
        finally:
            self._line.relay = None

    def close(self) -> int:
        """End it, if it has not ended by itself; gives its exit code."""
        if self._code is None:
            os.kill(self._pid, _signal.SIGKILL)  # it changes nothing about one that has closed its socket as it ends
            self._code = exit_code(self._pid)
            with self._writing:
                os.close(self._fd)
        return self._code

    def _relay(self, frame: bytes) -> Any:
        """See `BoxLine.relay`; called in the thread that reads."""
        if not any(mark in frame for mark in _OURS):
            self._write(frame)
            return []
        messages = self._line.messages_of(frame)
        answers = [message for message in messages if message.get("type") in _MINE]
        if answers:
            self._write(to_text(answers).encode())
        if any(message.get("type") == "bye" for message in messages):
            os.kill(self._pid, _signal.SIGKILL)
        return [message for message in messages if message.get("type") not in _MINE]

    def _is_result(self, frame: bytes) -> bool:
        if frame.startswith(_RESULTS):
            return True
        if b'"type":"result"' not in frame:
            return False
        return any(message.get("type") == "result" for message in self._line.messages_of(frame))

    def _write(self, frame: bytes) -> None:
        data = memoryview(len(frame).to_bytes(4, "big") + frame)
        try:
            with self._writing:
                while data:
                    data = data[os.write(self._fd, data) :]
        except OSError:  # it is gone; the reader of its answer will notice
            pass

    def _receive(self) -> Any:
        """Its next frame, None when it is gone."""
        size = int.from_bytes(self._read(4), "big")
        if not 0 < size <= MAX_FRAME_BYTES:
            return None
        frame = self._read(size)
        return frame if len(frame) == size else None

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            try:
                part = os.read(self._fd, min(size, 1 << 20))
            except ConnectionResetError:
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
