"""The server over stdin and stdout: one JSON-RPC message per line, and nothing else on stdout."""

from __future__ import annotations

import logging
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

from toolexec.backend.mcp.line_writer import LineWriter
from toolexec.backend.mcp.sdk_streams import LineStream, ReadStream
from toolexec.process.stream import PipeReader
from toolexec.server.app import ToolServer

logger: logging.Logger = logging.getLogger(__name__)
_CHUNK = 65_536
_PIPE_ATOM = 4096  # a pipe that is ready to be written takes at least so many bytes without blocking
_LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Wire:
    """Descriptors of this process's real stdin and stdout."""

    read: int
    write: int


@contextmanager
def stdio_wire() -> Generator[Wire, None, None]:
    """Take stdin and stdout for the protocol in the block.

    Whatever else the process does, be it `print`, C code or a child process, reads nothing from stdin, and what it
    writes to stdout goes to stderr. Enter it before any code of strangers is imported.
    """
    with ExitStack() as undo:
        read = _private(0, undo)
        write = _private(1, undo)
        _divert(0, os.open(os.devnull, os.O_RDONLY), read, undo)
        try:
            elsewhere = os.dup(2)
        except OSError:
            elsewhere = os.open(os.devnull, os.O_WRONLY)
        _divert(1, elsewhere, write, undo)
        yield Wire(read, write)


def _private(fd: int, undo: ExitStack) -> int:
    private = os.dup(fd)  # not inheritable: no child process gets at the protocol
    undo.callback(os.close, private)
    return private


def _divert(fd: int, to: int, original: int, undo: ExitStack) -> None:
    os.dup2(to, fd)
    os.close(to)

    def restore() -> None:
        if fd == 1:
            with suppress(OSError, ValueError):  # what was printed belongs to stderr, even if it is still in a buffer
                sys.stdout.flush()
        os.dup2(original, fd)

    undo.callback(restore)


async def serve_stdio(server: ToolServer, wire: Wire | None = None) -> None:
    """Serve one client over stdin and stdout, until it closes stdin or goes away; then *server* is closed, with all
    its backends.

    A line that is not JSON, or longer than `max_line_bytes`, is answered with a parse error, one that is not JSON-RPC
    with an invalid-request error; the server goes on. *wire* is for who has called `stdio_wire` already.
    """
    with ExitStack() as stack:
        taken = wire if wire is not None else stack.enter_context(stdio_wire())
        async with server:
            await _serve(server, taken)


class _Open:
    """The requests that were read and not answered yet: those that end by themselves."""

    def __init__(self) -> None:
        self._ids: set[str | int] = set()
        self._none: anyio.Event | None = None

    def read(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest) and message.method != "subscriptions/listen":
            self._ids.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._done((message.params or {}).get("requestId"))  # it gets no answer

    def written(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._done(message.id)

    def _done(self, request_id: Any) -> None:
        if isinstance(request_id, str | int):
            self._ids.discard(request_id)
        if self._none is not None and not self._ids:
            self._none.set()

    async def none(self) -> None:
        """Wait until all are answered."""
        while self._ids:
            self._none = anyio.Event()
            await self._none.wait()


async def _serve(server: ToolServer, wire: Wire) -> None:
    lowlevel = server.lowlevel
    waiting = _Open()
    written = anyio.Event()
    output = _Output(wire.write)

    def lose(error: OSError) -> None:
        logger.info("the client reads no more: %s", error)
        tasks.cancel_scope.cancel()

    writer = LineWriter(output.write_now, output.write, lose, 1)

    async def write() -> None:
        await writer.run()
        written.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        replies = LineStream(writer, lambda item: waiting.written(item.message))
        requests = _Requests(wire.read, replies, waiting, server.settings.max_line_bytes)
        await lowlevel.run(requests, replies, lowlevel.create_initialization_options())
        writer.close()
        with anyio.move_on_after(_LAST_WORDS_SECONDS):
            await written.wait()
        tasks.cancel_scope.cancel()


class _Requests(ReadStream[SessionMessage]):
    """What the client sends, as a read stream of the SDK: it is read when the SDK asks for it."""

    def __init__(self, fd: int, replies: LineStream, waiting: _Open, limit: int) -> None:
        self._lines = _Lines(fd, limit)
        self._replies = replies
        self._waiting = waiting
        self._limit = limit

    async def receive(self) -> SessionMessage:
        """Return the next message; raises EndOfStream."""
        while not self._lines.is_over:
            parsed = _parse(await self._lines.read(), self._limit)
            if isinstance(parsed, _Refused):
                logger.warning("a line from the client was refused: %s", parsed.answer.error.message)
                await self._replies.send(SessionMessage(parsed.answer))
            elif parsed is not None:
                self._waiting.read(parsed)
                return SessionMessage(parsed)
        # A client that says all at once and closes stdin still wants its answers.
        with anyio.move_on_after(_LAST_WORDS_SECONDS):
            await self._waiting.none()
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        self._lines.close()


class _Lines:
    """The lines that come in from *fd*."""

    def __init__(self, fd: int, limit: int) -> None:
        self._fd = fd
        self._pipe = PipeReader(fd) if _can_be_watched(fd) else None
        self._limit = limit
        self._ended: deque[bytes | None] = deque()
        self._parts: list[bytes] = []
        self._size = 0
        self._at_end = False

    @property
    def is_over(self) -> bool:
        """Whether all has been read."""
        return self._at_end and not self._ended

    async def read(self) -> bytes | None:
        """Return the next line, empty at the end; None for one that was longer than *limit*, of which nothing is
        kept."""
        if self._ended:  # many may come at once, and the event loop has more to do
            await anyio.lowlevel.checkpoint()
        while not self._ended and not self._at_end:
            self._take(await self._chunk())
        return self._ended.popleft() if self._ended else b""

    def close(self) -> None:
        """Read no more; the descriptor stays open."""
        if self._pipe is not None:
            self._pipe.end_reading()

    async def _chunk(self) -> bytes:
        if self._pipe is not None:
            return await self._pipe.read()
        await anyio.lowlevel.checkpoint()
        return os.read(self._fd, _CHUNK)  # a file never keeps its reader waiting

    def _take(self, chunk: bytes) -> None:
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            self._add(end)
            self._end_line()
        self._add(rest)
        if not chunk:
            self._at_end = True
            if self._size:
                self._end_line()

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _end_line(self) -> None:
        self._ended.append(b"".join(self._parts) if self._size <= self._limit else None)
        self._parts.clear()
        self._size = 0


class _Output:
    """A descriptor that is written without ever blocking the event loop, however slowly the client reads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._watched = _can_be_watched(fd)

    def write_now(self, data: bytes | memoryview) -> int:
        """Write as much as is taken at once, and return how much that was."""
        rest = memoryview(data)
        while rest and (not self._watched or select.select((), (self._fd,), (), 0)[1]):
            rest = rest[os.write(self._fd, rest[:_PIPE_ATOM]) :]
        return len(data) - len(rest)

    async def write(self, data: bytes) -> None:
        """Write all of *data*; raises OSError when the client is gone."""
        rest = memoryview(data)
        while rest := rest[self.write_now(rest) :]:
            await anyio.wait_writable(self._fd)


def _can_be_watched(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


@dataclass(frozen=True, slots=True)
class _Refused:
    """A line that is not a message, and the answer to it."""

    answer: JSONRPCError


def _parse(line: bytes | None, limit: int) -> JSONRPCMessage | _Refused | None:
    """Return the message; None for an empty line."""
    if line is None:
        return _refusal(PARSE_ERROR, f"Parse error: a line must not be longer than {limit} bytes")
    if not line.strip():
        return None
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _explain(line)
    # A request whose ID is none that JSON-RPC knows passes for a notification, and its sender would wait for ever.
    return _explain(line) if isinstance(message, JSONRPCNotification) and "id" in from_json(line) else message


def _explain(line: bytes) -> _Refused:
    try:
        data: Any = from_json(line)
    except ValueError:
        return _refusal(PARSE_ERROR, "Parse error: the line is not JSON")
    given = data.get("id") if isinstance(data, dict) else None
    known = given if isinstance(given, str | int) and not isinstance(given, bool) else None
    return _refusal(INVALID_REQUEST, "Invalid Request: the line is not a JSON-RPC message", known)


def _refusal(code: int, message: str, request_id: str | int | None = None) -> _Refused:
    return _Refused(JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message)))
