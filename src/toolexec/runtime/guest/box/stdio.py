"""What is written to stdout and stderr by whatever means: by programs that a program starts, by libraries."""

from __future__ import annotations

import _thread
import codecs
import os
import select
from collections.abc import Callable
from typing import Any

from .processes import move_high

_CHUNK = 1 << 16
_MOST_READS = 32  # more than any pipe holds


class Captured:
    """The descriptors 1 and 2, as pipes whose other end is here. A thread posts what comes, up to a limit for each run.

    It is never the program that waits for this: the thread takes what comes, whether it is kept or not.
    """

    def __init__(self, post: Callable[[dict[str, Any]], None]) -> None:
        """*post* sends the payload of a `print` message."""
        self.lock: _thread.RLock = _thread.RLock()
        self._pipes = [_Pipe(1, "stdout"), _Pipe(2, "stderr")]
        self._post = post
        self._poll = _poll_of(self._pipes)  # each thread needs its own
        _thread.start_new_thread(self._listen, ())

    def begin(self, limit: int) -> None:
        """Begin a run, which may write *limit* characters to each; what it must have is there, whatever was closed."""
        for pipe in self._pipes:
            pipe.begin(limit)

    def drain(self) -> None:
        """Post what was written until now; a process that keeps writing does not keep it from ending."""
        with self.lock:
            if self._poll.poll(0):
                for pipe in self._pipes:
                    for _ in range(_MOST_READS):
                        if not self._take(pipe):
                            break

    def finish(self) -> None:
        """Post what was written until now, half a character too, and how much was over the limit."""
        with self.lock:
            self.drain()
            for pipe in self._pipes:
                self._keep(pipe, pipe.decode(b"", final=True))
                if pipe.dropped:
                    self._post({"text": "", "stream": pipe.name, "dropped": pipe.dropped})
                    pipe.dropped = 0

    def sever(self) -> None:
        """Release the pipes, in a forked child; what it writes still comes out at its parent's."""
        for pipe in self._pipes:
            pipe.sever()

    def _listen(self) -> None:
        poll = _poll_of(self._pipes)
        while True:
            for descriptor, events in poll.poll():
                if not events & select.POLLIN:  # a program has closed what is not its own
                    poll.unregister(descriptor)
                    continue
                with self.lock:
                    for pipe in self._pipes:
                        if pipe.reading == descriptor:
                            self._take(pipe)

    def _take(self, pipe: Any) -> bool:
        """Post something, if there is anything."""
        try:
            data = os.read(pipe.reading, _CHUNK)
        except OSError:  # there is nothing for now, or a program has closed it
            return False
        self._keep(pipe, pipe.decode(data))
        return bool(data)

    def _keep(self, pipe: Any, text: str) -> None:
        kept = text[: pipe.left]
        pipe.left -= len(kept)
        pipe.dropped += len(text) - len(kept)
        if kept:
            self._post({"text": kept, "stream": pipe.name})


class _Pipe:
    """One of the two."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self.left = 0
        self.dropped = 0
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._descriptor = descriptor
        reading, writing = os.pipe()
        self.reading, self._writing = move_high(reading), move_high(writing)
        os.close(reading)
        os.close(writing)
        os.set_blocking(self.reading, False)
        self.begin(0)

    def begin(self, limit: int) -> None:
        """Point the descriptor here, again perhaps."""
        os.dup2(self._writing, self._descriptor)
        self.left = limit
        self.dropped = 0

    def sever(self) -> None:
        for descriptor in (self.reading, self._writing):
            try:
                os.close(descriptor)
            except OSError:
                continue


def _poll_of(pipes: list[Any]) -> Any:
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe.reading, select.POLLIN)
    return poll
