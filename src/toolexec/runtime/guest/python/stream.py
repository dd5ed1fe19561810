"""The guest over two file descriptors: says hello, runs what the host sends, one program after the other."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from .channel import StreamChannel, answer_value
from .errors import ToolError
from .main import Guest

__all__ = ["Line", "end_group", "move_descriptors", "say_hello", "serve", "set_stdin"]

_PROTOCOL = "toolexec-guest"
_VERSION = 1
_MAX_FRAME = 16 << 20
_MAX_PRINT = 1 << 20
_GONE: Any = {"error": "the host is gone", "code": "connection_closed", "retryable": False}


class Line(StreamChannel):
    """A channel that any thread and any event loop may use at the same time.

    A thread of its own reads: signals never interrupt it, so that no frame is ever read by half. Whoever blocks waits
    on a lock, and event loops hear through `call_soon_threadsafe`.
    """

    def __init__(self, read_fd: int, write_fd: int, hang_up: Callable[[], Any]) -> None:
        """*hang_up* is called in the reading thread when the host is gone."""
        super().__init__(read_fd, write_fd)
        import queue
        import threading

        self.listeners: dict[str, Any] = {}  # each has a method `hear`
        self.inbox: Any = queue.SimpleQueue()
        """What the host says that is no answer; None once it is gone."""
        self._hang_up = hang_up
        self._threading = threading
        self._heard: dict[str, tuple[Any, Any]] = {}  # answers on their way to a listener in an event loop
        self._gone = False
        self._left = False  # the host has said bye
        threading.Thread(target=self._listen, name="toolexec-line", daemon=True).start()

    def ask(self, kind: str, payload: Any) -> Any:
        """Send a request and block until its answer is there; raises the ToolError that the host answers with."""
        waiter = _Waiter(self._threading)
        with self._lock:
            self._check()
            request_id = self._queue(kind, payload)
            self.listeners[request_id] = waiter
            self._post(self._take_outbox())
        try:
            return answer_value(waiter.wait())
        except BaseException:
            self.forget(request_id)  # a signal has ended the wait, and nobody wants the answer now
            raise

    def submit(self, kind: str, payload: Any, listener: Callable[[Any], None]) -> str:
        """Queue a request; *listener* gets the answering message, on the event loop that runs now. What a loop queues
        in one round goes out in one frame."""
        import asyncio

        loop = asyncio.get_running_loop()
        with self._lock:
            self._check()
            request_id = self._queue(kind, payload)
            self.listeners[request_id] = _LoopListener(loop, listener)
        loop.call_soon(self._flush)
        return request_id

    def settle(self, request_id: str) -> None:
        """Block until the answer to a submitted request is there and its listener has heard it."""
        waiter = _Waiter(self._threading)
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
        """Tell the host that nobody waits for a submitted request any more."""
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

    def sever(self) -> None:
        """Let go of the line; to be called in a forked child, which must not speak for its parent."""
        self._gone = True
        self._lock = self._threading.RLock()  # the parent's may be held by a thread that the child does not have
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
            if batch and size + len(message) > _MAX_FRAME - 1024:
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
        except BrokenPipeError:  # the host has hung up: nobody is there to hear of it
            self._gone = True

    def _flush(self) -> None:
        with self._lock:
            if self._outbox:
                self._post(self._take_outbox())

    def _listen(self) -> None:
        try:
            while not self._left:
                self._deliver_all(self.receive())
        except (EOFError, OSError, ValueError):
            self._gone = True
            with self._lock:
                self._deliver_all([{"type": "error", "id": key, "payload": _GONE} for key in list(self.listeners)])
            self.inbox.put(None)
            self._hang_up()

    def _deliver_all(self, messages: list[Any]) -> None:
        loops: dict[Any, list[str]] = {}
        for message in messages:
            if message.get("type") not in ("response", "error"):
                self._left = self._left or message.get("type") == "bye"
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
            except RuntimeError:  # the loop is closed, and so nobody waits
                continue

    def _hear(self, request_ids: list[str]) -> None:
        """On an event loop: tell its listeners what has come for them."""
        for request_id in request_ids:
            with self._lock:
                listener, message = self._heard.pop(request_id, (None, None))
            if listener is not None:
                listener.hear(message)


class _Waiter:
    """A blocked thread."""

    def __init__(self, threading: Any) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._message: Any = None

    def hear(self, message: Any) -> None:
        self._message = message
        self._lock.release()

    def wait(self) -> Any:
        self._lock.acquire()
        return self._message


class _LoopListener:
    """Somebody who waits on an event loop."""

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
    os.register_at_fork(after_in_child=lambda: _leave(line))
    if sys.version_info >= (3, 12):  # the thread that a fork would lose is ours, and its child does without
        import warnings

        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    guest = Guest(line, _new_loop)
    say_hello(line, ["python", "sessions"])
    while True:
        message = line.inbox.get()
        if message is None or message.get("type") == "bye":
            return
        if message.get("type") == "execute":
            line.send("result", message["id"], _run(guest, message.get("payload") or {}))


def say_hello(line: Line, capabilities: list[str]) -> None:
    """The first message of a guest."""
    hello = {"protocol": _PROTOCOL, "version": _VERSION, "capabilities": capabilities}
    line.send("hello", "0", json.dumps(hello))


def end_group() -> None:
    """End this process, and those that it has started if they are a group of its own."""
    if os.getpgrp() == os.getpid():
        import signal

        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _run(guest: Guest, payload: dict[str, Any]) -> str:
    set_stdin(payload.pop("stdin", None))
    if "asyncio" in (payload.get("code") or ""):
        importlib.import_module("asyncio")  # so that the guest can have it make loops of the right kind
    if payload.get("seed") is not None:
        importlib.import_module("random")  # so that the guest can seed it
    owner = os.getpid()
    try:
        result = guest.execute(payload)
    except BaseException:  # an exception whose own class fails when it is looked at
        result = '{"error":{"kind":"Exception","message":"the program failed in a way that cannot be told"}}'
    if os.getpid() != owner:  # a forked child that came to the end of its parent's program
        _flush_files()
        os._exit(0)
    _flush_files()
    if len(result) > _MAX_FRAME - 1024:
        said = f"the value has {len(result)} bytes as JSON; at most 16 MiB fit: put it into a file"
        result = json.dumps({"error": {"kind": "ValueError", "message": said}})
    return result


def move_descriptors(read_fd: int, write_fd: int) -> tuple[int, int]:
    """The descriptors under new numbers, which no child inherits."""
    moved = os.dup(read_fd)
    pair = (moved, moved if write_fd == read_fd else os.dup(write_fd))
    for descriptor in {read_fd, write_fd}:
        if descriptor == 0:
            _replace(0, os.open(os.devnull, os.O_RDONLY))
        elif descriptor in (1, 2):
            os.dup2(3 - descriptor, descriptor)
        else:
            os.close(descriptor)
    return pair


def _replace(descriptor: int, by: int) -> None:
    os.dup2(by, descriptor)
    os.close(by)


def set_stdin(text: Any) -> None:
    """Have the program, and what it starts, read *text* (base64) as its input."""
    if text:
        import base64
        import tempfile

        with tempfile.TemporaryFile() as file:
            file.write(base64.b64decode(text))
            file.seek(0)
            os.dup2(file.fileno(), 0)
    else:
        _replace(0, os.open(os.devnull, os.O_RDONLY))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it lives as long as the process


def _leave(line: Line) -> None:
    """In a forked child: no way to the host any more, and prints go where those of any process go."""
    line.sever()
    if sys.__stdout__ is not None and sys.__stderr__ is not None:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__


def _flush_files() -> None:
    """Write out what the program has left in the buffers of files that are open still, as Python does at its end."""
    import gc
    import io

    for thing in gc.get_objects():
        if type(thing) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
            try:
                if not thing.closed and thing.writable():
                    thing.flush()
            except (OSError, ValueError):
                continue


def _new_loop() -> Any:
    """asyncio's loop, which makes tasks of the results of tool calls, too."""
    import asyncio

    from .loop import as_coroutine

    class StreamLoop(asyncio.SelectorEventLoop):
        def create_task(self, coro: Any, **kwargs: Any) -> Any:
            return super().create_task(as_coroutine(coro), **kwargs)

    return StreamLoop()
