"""The guest's end of the guest protocol: messages out, messages in, over host calls or a stream of bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from .errors import ToolError, tool_error
from .protocol import MAX_FRAME_BYTES
from .values import NotJSONError, from_text, to_text


class Channel:
    """Sends requests to the host and receives its answers.

    Requests that need not be sent at once wait in an outbox, so that many of them travel in one frame.
    """

    def __init__(self) -> None:
        self._outbox: list[str] = []
        self._last_id = 0
        self._answers: dict[str, Any] = {}
        self._released: list[str] = []
        self.listeners: dict[str, Callable[[Any], None]] = {}
        """The listeners that receive the answers, by the ID of the request."""

    def ask(self, kind: str, payload: Any) -> Any:
        """Send a request and block until its answer is there; raises the ToolError that the host answers with."""
        request_id = self._queue(kind, request_text(payload))
        message = self._wait_for(request_id)
        if message["type"] == "error":
            raise tool_error(message.get("payload"))
        return message["payload"]

    def submit(self, kind: str, payload: Any, listener: Callable[[Any], None]) -> str:
        """Queue a request; *listener* gets the answering message. Returns the request's ID."""
        request_id = self._queue(kind, request_text(payload))
        self.listeners[request_id] = listener
        return request_id

    def settle(self, request_id: str) -> None:
        """Block until the answer to a submitted request is there and its listener has received it."""
        listener = self.listeners.get(request_id)
        if listener is not None:
            listener(self._wait_for(request_id))
            self.listeners.pop(request_id, None)

    def forget(self, request_id: str) -> None:
        """Notify the host that a submitted request is not waited for any more."""
        if self.listeners.pop(request_id, None) is not None:
            self._outbox.append(_message("cancel", request_id, "{}"))

    def release(self, handle_id: str) -> None:
        """Have the host forget a result, with the next request: what is sent before may refer to it."""
        self._released.append(handle_id)

    def post(self, kind: str, payload: Any) -> None:
        """Send a message that has no answer, with what else waits to be sent."""
        self._outbox.append(_message(kind, "0", to_text(payload)))
        self._post(self._take_outbox())

    def flush(self) -> None:
        """Send what waits to be sent, without waiting for answers."""
        if self._outbox:
            self._post(self._take_outbox())

    def wait(self, timeout: float | None) -> int:
        """Send what waits, then block until an answer is there or *timeout* seconds (None: for ever) have passed, and
        notify the listeners. Gives the number of answers, -1 when nothing is pending and so nothing was waited for."""
        if not self.listeners:
            self.flush()
            return -1
        messages = self._exchange(self._take_outbox(), "", timeout)
        for message in messages:
            self._deliver(message)
        return len(messages)

    def _queue(self, kind: str, text: str) -> str:
        """Put a request into the outbox, around a payload that is JSON."""
        self._last_id += 1
        request_id = str(self._last_id)
        message = _message(kind, request_id, text)
        if len(message) > MAX_FRAME_BYTES - 64:
            raise ToolError(f"a request of {len(message)} bytes is too large; at most 16 MiB fit", code="protocol")
        if self._released:
            released, self._released = self._released, []
            self._outbox.append(_message("release", "0", to_text({"handles": released})))
        self._outbox.append(message)
        return request_id

    def _wait_for(self, request_id: str) -> Any:
        answer = self._answers.pop(request_id, None)
        while answer is None:
            outbox, self._outbox = self._outbox, []
            for message in self._exchange(outbox, request_id, None):
                if message["id"] == request_id:
                    answer = message
                else:
                    self._deliver(message)
        return answer

    def _deliver(self, message: Any) -> None:
        listener = self.listeners.pop(message.get("id"), None)
        if listener is not None:
            listener(message)

    def _take_outbox(self) -> list[str]:
        messages, self._outbox = self._outbox, []
        return messages

    def _exchange(self, messages: list[str], request_id: str, timeout: float | None) -> list[Any]:
        """Send *messages*; block until there is an answer (to *request_id*, if given). Subclasses do the work."""
        raise NotImplementedError

    def _post(self, messages: list[str]) -> None:
        """Send *messages* without waiting. Subclasses do the work."""
        raise NotImplementedError


class HostCalls(Channel):
    """Over two functions of the host: one answers a frame with a frame, the other only takes one."""

    def __init__(self, exchange: Callable[[str], str], post: Callable[[str], None]) -> None:
        super().__init__()
        self.connect(exchange, post)

    def connect(self, exchange: Callable[[str], str], post: Callable[[str], None]) -> None:
        """Reach the host by these two functions from now on."""
        self._exchange_frame = exchange
        self._post_frame = post

    def ask(self, kind: str, payload: Any) -> Any:
        """Send a request and block until its answer is there; the shortest way for the most usual case."""
        if self._outbox or self.listeners:
            return super().ask(kind, payload)
        request_id = self._queue(kind, request_text(payload))
        if len(self._outbox) > 1:
            return answer_value(self._wait_for(request_id))
        (message,) = self._outbox
        self._outbox = []
        (answer,) = from_text(self._exchange_frame("[" + message + "]"))
        if answer["type"] == "error":
            raise tool_error(answer["payload"])
        return answer["payload"]

    def _exchange(self, messages: list[str], request_id: str, timeout: float | None) -> list[Any]:
        if request_id and len(messages) == 1:
            return from_text(self._exchange_frame("[" + messages[0] + "]"))
        messages.append(_message("wait", request_id or "0", to_text({"timeout": timeout})))
        return from_text(self._exchange_frame("[" + ",".join(messages) + "]"))

    def _post(self, messages: list[str]) -> None:
        self._post_frame("[" + ",".join(messages) + "]")


class StreamChannel(Channel):
    """Over two file descriptors: frames of JSON, each behind its length in four bytes, most significant first."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        super().__init__()
        import _thread
        import os
        import select

        self._os, self._select = os, select
        self._read_fd, self._write_fd = read_fd, write_fd
        self._lock = _thread.RLock()  # programs may call tools from threads of their own

    def ask(self, kind: str, payload: Any) -> Any:
        """Send a request and block until its answer is there; one thread at a time."""
        with self._lock:
            return super().ask(kind, payload)

    def fileno(self) -> int:
        """Return what becomes readable when the host has sent something."""
        return self._read_fd

    def receive(self) -> Any:
        """Return the next frame's messages; raises EOFError when the host is gone."""
        (size,) = struct.unpack(">I", self._read(4))
        if size > MAX_FRAME_BYTES:
            raise EOFError("the host sent a frame that is too large")
        frame = from_text(self._read(size).decode())
        return frame if isinstance(frame, list) else [frame]

    def _exchange(self, messages: list[str], request_id: str, timeout: float | None) -> list[Any]:
        if messages:
            self._post(messages)
        if timeout is not None and not self._select.select([self._read_fd], [], [], timeout)[0]:
            return []
        return self.receive()

    def _post(self, messages: list[str]) -> None:
        frame = ("[" + ",".join(messages) + "]").encode("utf-8", "surrogatepass")
        data = memoryview(struct.pack(">I", len(frame)) + frame)
        with self._lock:
            while data:
                data = data[self._os.write(self._write_fd, data) :]

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._os.read(self._read_fd, min(size, 1 << 20))
            if not part:
                raise EOFError("the host is gone")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def answer_value(message: Any) -> Any:
    """Return what an answer carries; raises the ToolError of one that says no."""
    payload = message.get("payload")
    if message.get("type") == "error":
        raise tool_error(payload)
    return payload if isinstance(payload, dict) else {}


def request_text(payload: Any) -> str:
    """Return the payload of a request as JSON. Large results in it may have to be read first, so no lock may be
    held.
    """
    try:
        return to_text(payload, "an argument")
    except NotJSONError as error:
        raise ToolError(str(error), code="validation_input") from None


def _message(kind: str, message_id: str, payload: str) -> str:
    return '{"type":"' + kind + '","id":"' + message_id + '","payload":' + payload + "}"
