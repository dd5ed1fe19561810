"""The guest over two file descriptors: says hello, runs what the host sends, one program after the other."""

from __future__ import annotations

import _thread
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

from .channel import StreamChannel, answer_value, request_text
from .errors import ToolError
from .main import Guest
from .process import end_group, flush_files, fork_quietly, move_descriptors, set_stdin
from .protocol import MAX_FRAME_BYTES, PROTOCOL, VERSION
from .stopping import INTERRUPT, Stopping
from .values import from_text, to_text

_MAX_PRINT = 1 << 20
_MAX_WAITING = 8 << 20
_GONE: Any = {"error": "the host is gone", "code": "connection_closed", "retryable": False}


class Line(StreamChannel):
    """A channel that any thread and any event loop may use at the same time.

    A thread of its own reads: signals never interrupt it, so that no frame is ever read by half. A blocked caller waits
    on a lock, and event loops are notified through `call_soon_threadsafe`.

    Only some 8 MiB of data wait in the inbox, so that a host that sends fast fills no memory: the receiver of a message
    with data calls `take_data`.
    """

    def __init__(self, read_fd: int, write_fd: int, hang_up: Callable[[], Any], hold: Any = None) -> None:
        """*hang_up* is called in the reading thread when the host is gone; nothing is read until *hold* is free."""
        super().__init__(read_fd, write_fd)
        from _queue import SimpleQueue  # queue takes longer to import than all that is here

        self.listeners: dict[str, Any] = {}  # each has a method `hear`
        self.inbox: Any = SimpleQueue()
        """The host's messages that are not answers; None once it is gone."""
        self.handlers: dict[str, Callable[[Any], None]] = {}
        """By the type of a message: who gets it, in the reading thread, instead of the inbox."""
        self._waiting = 0  # bytes of data in the inbox, as known to the thread that reads
        self._taken: Any = SimpleQueue()  # how many bytes were taken from there since
        self.hang_up = hang_up
        self._heard: dict[str, tuple[Any, Any]] = {}  # answers on their way to a listener in an event loop
        self._gone = False
        self._left = False  # the host has said bye
        _thread.start_new_thread(self._listen, (hold,))

    def ask(self, kind: str, payload: Any) -> Any:
        """Send a request and block until its answer is there; raises the ToolError that the host answers with."""
        waiter = _Waiter()
        text = request_text(payload)
        with self._lock:
            self._check()
            request_id = self._queue(kind, text)
            self.listeners[request_id] = waiter
            self._post(self._take_outbox())
        try:
            return answer_value(waiter.wait())
        except BaseException:
            self.forget(request_id)  # a signal has ended the wait
            raise

    def submit(self, kind: str, payload: Any, listener: Callable[[Any], None]) -> str:
        """Queue a request; *listener* gets the answering message, on the event loop that runs now. What a loop queues
        in one round goes out in one frame."""
        import asyncio

        loop = asyncio.get_running_loop()
        text = request_text(payload)
        with self._lock:
            self._check()
            request_id = self._queue(kind, text)
            self.listeners[request_id] = _LoopListener(loop, listener)
        loop.call_soon(self._flush)
        return request_id

    def settle(self, request_id: str) -> None:
        """Block until the answer to a submitted request is there and its listener has received it."""
        waiter = _Waiter()
        with self._lock:
            listener, message = self._heard.pop(request_id, (None, None))
            if listener is None:
                listener = self.listeners.get(request_id)
                if listener is None:
                    return
                self.listeners[request_id] = waiter
                self._post(self._take_outbox())
        listener.hear(message if message is not None else waiter.wait())

    def forget(self, request_id: str) -> None:
        """Notify the host that a submitted request is not waited for any more."""
        with self._lock:
            self._heard.pop(request_id, None)
            super().forget(request_id)
        self._flush()

    def post(self, kind: str, payload: Any) -> None:
        """Send a message that has no answer, with what else waits to be sent."""
        text = payload.get("text") or ""
        with self._lock:
            for start in range(0, max(len(text), 1), _MAX_PRINT):
                super().post(kind, {**payload, "text": text[start : start + _MAX_PRINT]})

    def send(self, kind: str, message_id: str, payload: str) -> None:
        """Send one message of this guest's own, around a payload that is JSON."""
        self._post(['{"type":"' + kind + '","id":"' + message_id + '","payload":' + payload + "}"])

    def send_data(self, header: dict[str, Any], data: Any) -> None:
        """Send one message (type, id, payload) with *data*, some bytes, in a frame of its own."""
        head = to_text(header).encode()
        head = struct.pack(">IBI", 5 + len(head) + len(data), 0, len(head)) + head
        with self._lock:
            if self._gone:
                return
            try:
                sent = os.writev(self._write_fd, [head, data])
                for rest in memoryview(head)[sent:], memoryview(data)[max(sent - len(head), 0) :]:
                    done = 0
                    while done < len(rest):
                        done += os.write(self._write_fd, rest[done:])
            except BrokenPipeError:  # see _write
                self._gone = True

    def take_data(self, message: Any) -> bytes:
        """Return the data of a message from the inbox, whose place other data may take now."""
        data = message.pop("data")
        self._taken.put(len(data))
        return data

    def receive(self) -> Any:
        """Return the next frame's messages; raises EOFError when the host is gone."""
        return self.messages_of(self.receive_frame())

    def receive_frame(self) -> bytes:
        """Return the next frame; raises EOFError when the host is gone."""
        (size,) = struct.unpack(">I", self._read(4))
        if size > MAX_FRAME_BYTES:
            raise EOFError("the host sent a frame that is too large")
        return self._read(size)

    def messages_of(self, frame: bytes) -> list[Any]:
        """Return the messages in a frame; one that came with data has it under the key `data`."""
        if frame[:1] == b"\0":
            end = 5 + int.from_bytes(frame[1:5], "big")
            return [{**from_text(frame[5:end].decode()), "data": frame[end:]}]
        messages = from_text(frame.decode())
        return messages if isinstance(messages, list) else [messages]

    def is_sending(self) -> bool:
        """Return whether this thread is in the middle of a message, and must not leave it there."""
        lock: Any = self._lock
        return lock._is_owned()  # noqa: SLF001

    def discard(self, payload: Any) -> None:
        """Have nothing wait for the host any more, as what waits belongs to a program that was stopped: what has not
        been sent yet is dropped, and every other request fails with *payload*."""
        with self._lock:
            self._outbox = [message for message in self._outbox if message.startswith('{"type":"release"')]
            waiting = list(self.listeners)
        self._deliver_all([{"type": "error", "id": key, "payload": payload} for key in waiting])

    def sever(self) -> None:
        """Release the line; to be called in a forked child, which must not speak for its parent."""
        self._gone = True
        self._lock = _thread.RLock()  # a thread of the parent may hold its own
        for descriptor in {self._read_fd, self._write_fd}:
            os.close(descriptor)

    def _check(self) -> None:
        if self._gone:
            raise ToolError(_GONE["error"], code=_GONE["code"])

    def _post(self, messages: list[str]) -> None:
        """Send *messages* in as few frames as they fit into."""
        batch: list[str] = []
        size = 0
        for message in messages:
            if batch and size + len(message) > MAX_FRAME_BYTES - 1024:
                self._write(batch)
                batch, size = [], 0
            batch.append(message)
            size += len(message) + 1
        self._write(batch)

    def _write(self, batch: list[str]) -> None:
        if self._gone:
            return
        try:
            super()._post(batch)
        except BrokenPipeError:  # the host has hung up: there is no receiver
            self._gone = True

    def _flush(self) -> None:
        with self._lock:
            if self._outbox:
                self._post(self._take_outbox())

    def _listen(self, hold: Any) -> None:
        if hold is not None:
            hold.acquire()
        try:
            while not self._left:
                self._deliver_all(self.receive())
        except (EOFError, OSError, ValueError, StopIteration):  # the last one is for what is not JSON
            self._gone = True
            with self._lock:
                self._deliver_all([{"type": "error", "id": key, "payload": _GONE} for key in list(self.listeners)])
            self.inbox.put(None)
            self.hang_up()

    def _deliver_all(self, messages: list[Any]) -> None:
        loops: dict[Any, list[str]] = {}
        for message in messages:
            if message.get("type") not in ("response", "error"):
                self._left = self._left or message.get("type") == "bye"
                handler = self.handlers.get(message.get("type"))
                if handler is not None:
                    handler(message)
                    continue
                if "data" in message:
                    while self._waiting > _MAX_WAITING or not self._taken.empty():
                        self._waiting -= self._taken.get()
                    self._waiting += len(message["data"])
                self.inbox.put(message)
                continue
            with self._lock:
                request_id = message.get("id")
                listener = self.listeners.pop(request_id, None)
                if isinstance(listener, _LoopListener):
                    self._heard[request_id] = listener, message
                    loops.setdefault(listener.loop, []).append(request_id)
                elif listener is not None:
                    listener.hear(message)
        for loop, heard in loops.items():
            try:
                loop.call_soon_threadsafe(self._hear, heard)
            except RuntimeError:  # the loop is closed, and so nothing waits
                continue

    def _hear(self, request_ids: list[str]) -> None:
        """Notify the listeners of an event loop, on that loop, of their answers."""
        for request_id in request_ids:
            with self._lock:
                listener, message = self._heard.pop(request_id, (None, None))
            if listener is not None:
                listener.hear(message)


class _Waiter:
    """A blocked thread."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()
        self._message: Any = None

    def hear(self, message: Any) -> None:
        self._message = message
        self._lock.release()

    def wait(self) -> Any:
        self._lock.acquire()
        return self._message


class _LoopListener:
    """A caller that waits on an event loop."""

    def __init__(self, loop: Any, hear: Callable[[Any], None]) -> None:
        self.loop = loop
        self.hear = hear


def serve(read_fd: int, write_fd: int, *, hang_up: Callable[[], Any] | None = None) -> None:
    """Run programs until the host says bye or is gone.

    The two descriptors (which may be the same) are taken over: they are moved away from where children would inherit
    them. If they are stdin and stdout, those become empty and stderr. *hang_up* is what to do when the host is gone,
    while a program runs perhaps: by default, end this process at once.
    """
    line = Line(*move_descriptors(read_fd, write_fd), hang_up or end_group)
    os.register_at_fork(after_in_child=lambda: leave(line))
    fork_quietly()
    guest = Guest(line, new_loop)
    guest.stopping = Stopping(line)
    say_hello(line, ["python", "sessions", INTERRUPT])
    while True:
        message = line.inbox.get()
        if message is None:  # ending under threads may crash
            line.hang_up()
        if message is None or message.get("type") == "bye":
            return
        if message.get("type") == "execute":
            payload = message.get("payload") or {}
            set_stdin(payload.pop("stdin", None))
            line.send("result", message["id"], run_program(guest, payload, message["id"]))


def say_hello(line: Line, capabilities: list[str]) -> None:
    """Send the first message of a guest."""
    hello = {"protocol": PROTOCOL, "version": VERSION, "capabilities": capabilities}
    line.send("hello", "0", to_text(hello))


def run_program(guest: Guest, payload: dict[str, Any], run_id: str = "") -> str:
    """Run the program of an `execute` message; gives the payload of the `result` message, as JSON. A guest that has a
    `Stopping` stops it when that is what the host wants of the run *run_id*."""
    if "asyncio" in (payload.get("code") or ""):
        __import__("asyncio")  # so that the guest can have it make loops of the right kind
    if payload.get("seed") is not None:
        __import__("random")  # so that the guest can seed it
    owner = os.getpid()
    guest.stopping.begin(run_id)
    try:
        result = guest.execute(payload)
    except BaseException:  # an exception whose own class fails when it is looked at
        result = '{"error":{"kind":"Exception","message":"the program failed in a way that cannot be told"}}'
    if os.getpid() != owner:  # a forked child that came to the end of its parent's program
        flush_files()
        os._exit(0)
    flush_files()
    result = guest.stopping.end(result)
    if len(result) > MAX_FRAME_BYTES - 1024:
        said = f"the value has {len(result)} bytes as JSON; at most 16 MiB fit: put it into a file"
        result = to_text({"error": {"kind": "ValueError", "message": said}})
    return result


def leave(line: Line) -> None:
    """Cut a forked child off from the host; its prints go where those of any process go."""
    line.sever()
    if sys.__stdout__ is not None and sys.__stderr__ is not None:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__


def new_loop() -> Any:
    """Return asyncio's loop, which makes tasks of the results of tool calls, too."""
    import asyncio

    from .loop import as_coroutine

    class StreamLoop(asyncio.SelectorEventLoop):
        def create_task(self, coro: Any, **kwargs: Any) -> Any:
            return super().create_task(as_coroutine(coro), **kwargs)

    return StreamLoop()
