"""Network connections of programs, out of a sandbox that has no network: over the guest protocol to the host.

Programs connect to a port of the loopback. One thread carries what they say to the host and back, and never more than
the other side can take: see `toolexec.runtime.protocol.tunnel`, which is the other end.
"""

from __future__ import annotations

import _thread
import os
import select
from collections import deque
from typing import Any

from ..python.protocol import MAX_CONNECTIONS, NETWORK, WINDOW

_ACK = WINDOW // 4
_PIECE = 1 << 16


def start(line: Any, port: int) -> None:
    """Listen on *port* of the loopback, from now on; raises OSError when that cannot be."""
    import socket

    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(MAX_CONNECTIONS)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    carrier = _Carrier(line, listener)
    for kind in NETWORK:
        line.handlers[kind] = carrier.hear
    os.register_at_fork(after_in_child=carrier.sever)
    _thread.start_new_thread(carrier.run, ())


class _Carrier:
    """All connections; belongs to its thread, but for `hear`."""

    def __init__(self, line: Any, listener: Any) -> None:
        self.line = line
        self.poll = select.poll()
        self._listener = listener
        self._listening = False
        self._heard: deque[Any] = deque()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._last = 0
        self._by_id: dict[str, _Connection] = {}  # as long as the ID is in use
        self._by_fd: dict[int, _Connection] = {}  # as long as the socket is open

    def hear(self, message: Any) -> None:
        """Take a message of the host, in the thread that reads."""
        self._heard.append(message)
        try:
            os.write(self._waker, b"\0")
        except BlockingIOError:  # it will wake up as it is
            return

    def sever(self) -> None:
        """Release the connections in a forked child: they are its parent's."""
        self._listener.close()
        for connection in self._by_fd.values():
            connection.socket.close()
        for descriptor in (self._woken, self._waker):
            os.close(descriptor)

    def run(self) -> None:
        """Carry bytes to and fro for ever."""
        self.poll.register(self._woken, select.POLLIN)
        while True:
            room = len(self._by_id) < MAX_CONNECTIONS and len(self._by_fd) < 2 * MAX_CONNECTIONS
            if room != self._listening:
                self._listening = room
                if room:
                    self.poll.register(self._listener, select.POLLIN)
                else:
                    self.poll.unregister(self._listener)
            ready = dict(self.poll.poll())
            for descriptor, events in ready.items():
                if descriptor == self._woken:
                    self._read_messages()
                elif descriptor in self._by_fd:
                    self._by_fd[descriptor].work(events)
            if self._listener.fileno() in ready:  # last: a new connection may get the number of one that has ended now
                self._accept()

    def forget_id(self, connection_id: str) -> None:
        """Forget the ID of a connection that both sides have closed."""
        self._by_id.pop(connection_id, None)

    def forget_socket(self, descriptor: int) -> None:
        """Note that a socket is to be closed."""
        self._by_fd.pop(descriptor, None)

    def _read_messages(self) -> None:
        os.read(self._woken, 4096)
        while self._heard:
            message = self._heard.popleft()
            connection = self._by_id.get(message.get("id"))
            if connection is not None:
                connection.hear(message)

    def _accept(self) -> None:
        try:
            made, _ = self._listener.accept()
        except OSError:  # the client is gone again, or there are no descriptors left
            return
        made.setblocking(False)
        self._last += 1
        connection_id = "n" + str(self._last)
        self.line.send("net_open", connection_id, "{}")
        self._by_id[connection_id] = self._by_fd[made.fileno()] = _Connection(self, connection_id, made)


class _Connection:
    """One connection of a program, and what the host may still be sent of it."""

    def __init__(self, carrier: _Carrier, connection_id: str, socket: Any) -> None:
        self.socket = socket
        self._carrier = carrier
        self._id = connection_id
        self._descriptor = socket.fileno()
        self._events = 0
        self._outgoing = bytearray()  # for the program
        self._consumed = 0
        self._credit = WINDOW
        self._eof_sent = False
        self._eof_heard = self._shut = False
        self._close_sent = False
        self._close_heard = False
        self._watch()

    def hear(self, message: Any) -> None:
        """Handle a message of the host."""
        kind = message["type"]
        if kind == "net_data":
            if self._descriptor >= 0:
                self._outgoing += message["data"]
        elif kind == "net_ack":
            self._credit += message["payload"]["bytes"]
        elif kind == "net_eof":
            self._eof_heard = True
        else:
            self._close_heard = True
            self._send_close()
        self._flush()

    def work(self, events: int) -> None:
        """Do what the socket is ready for."""
        if self._events & select.POLLIN and events != select.POLLOUT:  # with a broken socket this raises the cause
            self._receive()
        elif events & (select.POLLHUP | select.POLLERR):
            self._end()
        self._flush()

    def _receive(self) -> None:
        try:
            data = self.socket.recv(min(self._credit, _PIECE))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end()
            return
        if data:
            self._credit -= len(data)
            self._carrier.line.send_data({"type": "net_data", "id": self._id}, data)
        else:
            self._eof_sent = True
            self._carrier.line.send("net_eof", self._id, "{}")

    def _flush(self) -> None:
        """Give the program what there is for it; when all is said on both sides, that is the end."""
        if self._descriptor < 0:
            return
        try:
            while self._outgoing:
                sent = self.socket.send(memoryview(self._outgoing)[:_PIECE])
                del self._outgoing[:sent]
                self._consume(sent)
            if self._eof_heard and not self._shut:
                self._shut = True
                self.socket.shutdown(1)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._end()
        if not self._outgoing and (self._close_heard or (self._eof_heard and self._eof_sent)):
            self._end()
        self._watch()

    def _consume(self, size: int) -> None:
        self._consumed += size
        if self._consumed >= _ACK and not self._close_sent:
            self._carrier.line.send("net_ack", self._id, '{"bytes":' + str(self._consumed) + "}")
            self._consumed = 0

    def _watch(self) -> None:
        """Watch for the events that can be used, and no others: not for the end either, before all is read."""
        if self._descriptor < 0:
            return
        events = select.POLLOUT if self._outgoing else 0
        if self._credit > 0 and not self._eof_sent and not self._close_sent:
            events |= select.POLLIN
        if events == self._events:
            return
        if events:
            self._carrier.poll.register(self._descriptor, events)
        else:
            self._carrier.poll.unregister(self._descriptor)
        self._events = events

    def _end(self) -> None:
        """Close the socket, and say so to the host."""
        if self._descriptor >= 0:
            if self._events:
                self._carrier.poll.unregister(self._descriptor)
            self._carrier.forget_socket(self._descriptor)
            self._descriptor = -1
            self.socket.close()
            self._outgoing.clear()
        self._send_close()

    def _send_close(self) -> None:
        if not self._close_sent:
            self._close_sent = True
            self._carrier.line.send("net_close", self._id, "{}")
        if self._close_heard:
            self._carrier.forget_id(self._id)
