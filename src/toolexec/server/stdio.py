"""The server over stdin and stdout: one JSON-RPC message per line, and nothing else on stdout."""

from __future__ import annotations

import logging
import os
import select
import stat
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
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

from toolexec.server.app import ToolServer

__all__ = ["Wire", "serve_stdio", "stdio_wire"]

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
        self._changed = anyio.Event()

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
        self._changed.set()
        self._changed = anyio.Event()

    async def none(self) -> None:
        """Wait until all are answered."""
        while self._ids:
            await self._changed.wait()


async def _serve(server: ToolServer, wire: Wire) -> None:
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    lowlevel = server.lowlevel
    waiting = _Open()
    written = anyio.Event()

    async def write() -> None:
        await _write_messages(wire.write, from_server, waiting, tasks.cancel_scope)
        written.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        limit = server.settings.max_line_bytes
        tasks.start_soon(_read_messages, wire.read, to_server, to_client.clone(), waiting, limit)
        await lowlevel.run(from_client, to_client, lowlevel.create_initialization_options())
        with anyio.move_on_after(_LAST_WORDS_SECONDS):
            await written.wait()
        tasks.cancel_scope.cancel()


async def _read_messages(
    fd: int,
    to_server: MemoryObjectSendStream[SessionMessage | Exception],
    replies: MemoryObjectSendStream[SessionMessage],
    waiting: _Open,
    limit: int,
) -> None:
    async with to_server, replies:
        async for line in _lines(fd, limit):
            parsed = _parse(line, limit)
            if isinstance(parsed, _Refused):
                logger.warning("a line from the client was refused: %s", parsed.answer.error.message)
                await replies.send(SessionMessage(parsed.answer))
            elif parsed is not None:
                waiting.read(parsed)
                await to_server.send(SessionMessage(parsed))
        # A client that says all at once and closes stdin still wants its answers.
        with anyio.move_on_after(_LAST_WORDS_SECONDS):
            await waiting.none()


async def _lines(fd: int, limit: int) -> AsyncGenerator[bytes | None, None]:
    """Yield the lines that come in; None stands for one that was longer than *limit*, of which nothing is kept."""
    parts: list[bytes] = []
    size = 0
    while chunk := await _read(fd):
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            size += len(end)
            parts.append(end)
            yield b"".join(parts) if size <= limit else None
            parts, size = [], 0
        size += len(rest)
        if size > limit:
            parts = []
        elif rest:
            parts.append(rest)
    if parts or size:
        yield b"".join(parts) if size <= limit else None


async def _read(fd: int) -> bytes:
    if _can_be_watched(fd):
        await anyio.wait_readable(fd)
        return os.read(fd, _CHUNK)
    await anyio.lowlevel.checkpoint()
    return os.read(fd, _CHUNK)  # a file never keeps its reader waiting


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


async def _write_messages(
    fd: int, messages: MemoryObjectReceiveStream[SessionMessage], waiting: _Open, everything: anyio.CancelScope
) -> None:
    try:
        async with messages:
            async for message in messages:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await _write(fd, text.encode() + b"\n")
                waiting.written(message.message)
    except OSError as error:
        logger.info("the client reads no more: %s", error)
        everything.cancel()


async def _write(fd: int, data: bytes) -> None:
    """Write all of *data* without ever blocking the event loop, however slowly the client reads."""
    rest = memoryview(data)
    watched = _can_be_watched(fd)
    while rest:
        if watched and not select.select((), (fd,), (), 0)[1]:
            await anyio.wait_writable(fd)
        rest = rest[os.write(fd, rest[:_PIPE_ATOM]) :]
