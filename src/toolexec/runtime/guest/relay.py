"""The way out of a sandbox without a network, for a program that speaks over stdio itself: a port of its loopback, and
behind that the socket of the host's proxy. Started as `relay.py PORT SOCKET COMMAND...`, it becomes the command.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys

_PIECE = 1 << 16
_MOST = 128


def main(port: int, path: str, command: list[str]) -> None:
    """Listen, carry connections in a process of its own, and become *command*."""
    listener = socket.create_server(("127.0.0.1", port))
    if os.fork() == 0:
        if os.fork() == 0:  # the command must not find a child that it did not start
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing, descriptor)
            _Carrier(listener, path).run()
        os._exit(0)
    os.wait()
    listener.close()
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what it becomes would, too
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - that is what it is for
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


class _Way:
    """One direction of a connection: what is read from *source* and not yet written to *target*."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.kept = b""
        self.is_over = False

    def read(self) -> None:
        """Take what there is; a broken connection is over."""
        try:
            self.kept = self.source.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            self.kept = b""
        if not self.kept:
            self._end()

    def write(self) -> None:
        """Pass on what is kept; where that cannot be, the direction is over."""
        try:
            self.kept = self.kept[self.target.send(self.kept) :]
        except BlockingIOError:
            return
        except OSError:
            self.kept = b""
            self._end()

    def _end(self) -> None:
        self.is_over = True
        try:
            self.target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class _Carrier:
    """All connections, each a pair of sockets and both directions between them."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self._listener = listener
        self._path = path
        self._pairs: dict[socket.socket, tuple[_Way, _Way]] = {}
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)

    def run(self) -> None:
        """Carry bytes to and fro for ever."""
        while True:
            self._watch(self._listener, selectors.EVENT_READ if len(self._pairs) < 2 * _MOST else 0)
            for key, events in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._work(key.fileobj, events)

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:
            return
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(self._path)
        except OSError:
            near.close()
            far.close()
            return
        for end in (near, far):
            end.setblocking(False)
        ways = _Way(near, far), _Way(far, near)
        self._pairs[near] = self._pairs[far] = ways
        self._follow(ways)

    def _work(self, end: object, events: int) -> None:
        ways = self._pairs.get(end)  # type: ignore[call-overload]  # one that was closed a moment ago
        if ways is None:
            return
        for way in ways:
            if way.source is end and events & selectors.EVENT_READ and not way.kept and not way.is_over:
                way.read()
            if way.target is end and events & selectors.EVENT_WRITE and way.kept:
                way.write()
        self._follow(ways)

    def _follow(self, ways: tuple[_Way, _Way]) -> None:
        """Watch both ends for what can be used of them now; where nothing can come any more, close them."""
        if all(way.is_over for way in ways):
            for way in ways:
                self._watch(way.source, 0)
                del self._pairs[way.source]
                way.source.close()
            return
        for way, back in (ways, ways[::-1]):
            wanted = selectors.EVENT_READ if not way.kept and not way.is_over else 0
            self._watch(way.source, wanted | (selectors.EVENT_WRITE if back.kept else 0))

    def _watch(self, end: socket.socket, events: int) -> None:
        known = self._selector.get_map().get(end)
        if known is not None and not events:
            self._selector.unregister(end)
        elif known is not None and known.events != events:
            self._selector.modify(end, events)
        elif known is None and events:
            self._selector.register(end, events)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
