"""A stream of bytes that survives the loss of the connections it goes over: each byte arrives once, and in order.

Both ends number what they send, keep it until the other has it, and send it again on request. A frame is a line, so
that an end which comes in the middle of one finds the next. This file is also the first program of a pod, by its text:
it needs the standard library of Python 3.9, starts the command in its arguments, and is the other end of the stream.
"""

from __future__ import annotations

import os
import sys
from binascii import crc32

_PIECE = 48_000
_SHOWN = 1 << 16
_LONGEST = 1 << 18
_FULL = 1 << 20
_SERVICE = ("KUBERNETES_SERVICE_", "KUBERNETES_PORT")


class Link:
    """One end. Bytes in, bytes out: it does no I/O. What comes in may be anything; only frames count."""

    def __init__(self) -> None:
        self.frames = 0
        """How many frames have come."""
        self.ended: bytes | None = None
        """What the other end said at its end; None before."""
        self._kept: list[tuple[int, bytes, bytes]] = []
        self._sent = 0
        self._taken = 0
        self._got = 0
        self._shown = 0
        self._asked = -1
        self._rest = b""

    @property
    def waiting(self) -> int:
        """How many bytes the other end has not said to have."""
        return self._sent - self._taken

    def send(self, data: bytes) -> bytes:
        """Return the frames that carry *data*."""
        pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
        return b"".join(self._keep(b"D", piece, len(piece)) for piece in pieces)

    def end(self, last: bytes = b"") -> bytes:
        """Return the frame that says that nothing more comes, but *last* words of a few bytes."""
        return self._keep(b"E", last, 1)

    def hello(self) -> bytes:
        """Return the frame that asks for everything that has not come; also what a new connection begins with."""
        return b"\n" + self._frame(b"R", self._sent, b"")

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what *data* brings, and the frames to send for it."""
        brought: list[bytes] = []
        answer, damaged, again = b"", False, False
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            self._rest = b"?"  # the end of this line will be no frame
        for line in lines:
            frame = line.replace(b"\x1b2", b"\n").replace(b"\x1b1", b"\x1b")
            kind, start, taken = frame[:1], int.from_bytes(frame[1:9], "big"), int.from_bytes(frame[9:17], "big")
            if len(frame) < 21 or taken > self._sent or crc32(frame[:-4]) != int.from_bytes(frame[-4:], "big"):
                damaged = damaged or bool(line)
                continue
            self.frames += 1
            self._drop(taken)
            if kind == b"R":
                self._asked, again = -1, True
            if start > self._got:
                damaged = True
            elif kind == b"D" and self.ended is None:
                fresh = frame[17 + self._got - start : -4]
                self._got += len(fresh)
                brought.append(fresh)
            elif kind == b"E" and start == self._got and self.ended is None:
                self._got += 1
                self.ended = frame[17:-4]
        if again:  # once, however often it was asked
            answer = self._again()
        if damaged and self._asked != self._got:
            self._asked = self._got
            answer += self._frame(b"R", self._sent, b"")
        elif self._got - self._shown >= _SHOWN or (self.ended is not None and self._got > self._shown):
            answer += self._frame(b"A", self._sent, b"")
        return b"".join(brought), answer

    def _again(self) -> bytes:
        """Return the first of what is kept; the last frame shows an end that it lacks more."""
        found: list[bytes] = []
        size = 0
        for start, kind, data in self._kept:
            if size > _FULL:
                found.append(self._frame(b"A", self._sent, b""))
                break
            found.append(self._frame(kind, start, data))
            size += len(data)
        return b"".join(found)

    def _drop(self, taken: int) -> None:
        """Forget what the other end has."""
        if taken > self._taken:
            self._taken = taken
            while self._kept and self._kept[0][0] + max(1, len(self._kept[0][2])) <= taken:
                del self._kept[0]

    def _keep(self, kind: bytes, data: bytes, size: int) -> bytes:
        self._kept.append((self._sent, kind, data))
        self._sent += size
        return self._frame(kind, self._sent - size, data)

    def _frame(self, kind: bytes, start: int, data: bytes) -> bytes:
        self._shown = self._got
        frame = kind + start.to_bytes(8, "big") + self._got.to_bytes(8, "big") + data
        frame += crc32(frame).to_bytes(4, "big")
        return frame.replace(b"\x1b", b"\x1b1").replace(b"\n", b"\x1b2") + b"\n"


def serve(quiet: float, words: list[str]) -> None:  # pragma: no cover - in pods, and in processes of tests
    """Start the command *words*, be its stdin and stdout over our own, and end as it does.

    Ends it, too, when the host has said nothing for *quiet* seconds. Does not return.
    """
    import select
    import signal
    import time

    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    taking, child_in = os.pipe()
    child_out, giving = os.pipe()
    env = {name: value for name, value in os.environ.items() if not name.startswith(_SERVICE)}
    places = [(os.POSIX_SPAWN_DUP2, taking, 0), (os.POSIX_SPAWN_DUP2, giving, 1)]
    try:
        child = os.posix_spawnp(words[0], words, env, file_actions=places)
    except OSError as error:
        os.write(2, f"{words[0]} cannot be started: {error}\n".encode("utf-8", "replace"))
        os._exit(127)
    os.close(taking)
    os.close(giving)
    os.set_blocking(child_in, False)
    os.set_blocking(child_out, False)

    link, unwritten, code, known, last = Link(), bytearray(), None, 0, 0.0
    is_open, input_ends, said_end, host = True, False, False, [0]

    def say(data: bytes) -> None:
        while data:
            data = data[os.write(1, data) :]

    while True:
        reading = [woken, *(host if len(unwritten) < _FULL else [])]
        reading += [child_out] if is_open and link.waiting < _FULL else []
        writing = [child_in] if unwritten and child_in >= 0 else []
        ready, writable, _ = select.select(reading, writing, [], 1.0)
        if woken in ready:
            os.read(woken, 4096)
            while True:
                try:
                    ended, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if not ended:
                    break
                if ended == child:
                    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        if host and 0 in ready:
            data = os.read(0, 1 << 16)
            host = host if data else []
            brought, answer = link.take(data)
            unwritten += brought
            input_ends = input_ends or link.ended is not None or not data
            say(answer)
        if writable or (unwritten and code is not None):
            try:
                del unwritten[: os.write(child_in, unwritten[: 1 << 16])]
            except BlockingIOError:
                pass
            except OSError:  # it takes no more
                unwritten.clear()
        if input_ends and not unwritten and child_in >= 0:
            os.close(child_in)
            child_in = -1
        if is_open and (child_out in ready or code is not None) and link.waiting < _FULL:
            try:
                data = os.read(child_out, 1 << 16)
                is_open = bool(data)
                say(link.send(data))
            except BlockingIOError:  # one that it has started holds it open
                is_open = code is None
        now = time.monotonic()
        if link.frames > known:
            known, last = link.frames, now
        if code is not None and not is_open and not said_end:
            said_end = True
            say(link.end(str(code).encode()))
        if (said_end and (not link.waiting or not known)) or (known and now - last > quiet):
            os._exit(75 if code is None else code)


if __name__ == "__main__":
    serve(float(sys.argv[1]), sys.argv[2:])
