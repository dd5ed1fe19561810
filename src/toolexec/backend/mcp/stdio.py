"""Speak MCP with a child process.

The SDK's own stdio client lends a server the terminal's stderr, reads lines of any length, and leaves alone what a
server that exits by itself has started. This one keeps the last lines of stderr for error messages, bounds a line,
notices when the process ends, and at the end kills the whole process group.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.mcp.line_writer import LineWriter
from toolexec.backend.mcp.sandbox import SandboxedServer, ServerProcess, ServerProgram, ServerSandbox, ServerStream
from toolexec.backend.mcp.sdk_streams import LineStream, ReadStream
from toolexec.errors.extras import unix_needed
from toolexec.model.json_value import JSONDict

logger: logging.Logger = logging.getLogger(__name__)
_MAX_LINE = 64 << 20
_MAX_QUEUED = 1024
_STDERR_TAIL = 4096
_SHOWN_TAIL = 1000
_MAX_FOREIGN = 4096
_GRACE = 0.5
_REPLY_HEAD = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')


class StdioTransport:
    """Starts the server's command, in the *sandbox* if there is one, and yields the two streams that the SDK's client
    wants; one use only."""

    def __init__(self, server: MCPServer, sandbox: ServerSandbox | None = None) -> None:
        self._server = server
        self._sandbox = sandbox
        self._boxed: SandboxedServer | None = None
        self._scrubber = server.scrubber()
        self._context: Any = None
        self._foreign_lines = 0
        self._last_foreign = ""
        self._is_too_long = False
        self._exit_code: int | None = None
        self._child: ServerProcess | None = None
        self._stdout_ended = asyncio.Event()
        self._flushed = asyncio.Event()
        self.pid: int | None = None

    def diagnosis(self) -> str:
        """Return how the process ended, if it did so by itself, what its sandbox says of that, and the last that it
        wrote to stderr."""
        parts: list[str] = []
        code = self._exit_code
        if code is not None:
            parts.append(f"the process was ended by signal {-code}" if code < 0 else f"the process exited with {code}")
        if why := self.sandbox_says():
            parts.append(why)
        if self._is_too_long:
            parts.append(f"it sent a message of more than {_MAX_LINE} bytes")
        if self._foreign_lines:
            lines = "a line" if self._foreign_lines == 1 else f"{self._foreign_lines} lines"
            parts.append(f"it wrote {lines} to stdout that is no MCP message, the last: {self._last_foreign!r}")
        tail = self.stderr_tail()
        if tail:
            parts.append(f"the end of its stderr: {tail}")
        return "; ".join(parts)

    @property
    def too_long(self) -> int:
        """How many bytes a message may have, where the process has sent a longer one, else 0."""
        return _MAX_LINE if self._is_too_long else 0

    def sandbox_says(self) -> str:
        """Return what the sandbox says that the server lacks, or of how it ended, without secrets; "" for nothing."""
        return self._scrubber.text(self._boxed.explain()) if self._boxed is not None else ""

    def stderr_tail(self) -> str:
        """Return the last that the process wrote to stderr, without secrets."""
        kept = self._child.stderr_tail() if self._child is not None else b""
        tail = self._scrubber.text(kept.decode(errors="replace"))
        if len(kept) >= _STDERR_TAIL:  # it may begin in the middle of a secret
            tail = tail[self._scrubber.longest :]
        return tail.strip()[-_SHOWN_TAIL:]

    async def __aenter__(self) -> Any:
        self._context = self._connect()
        return await self._context.__aenter__()

    async def __aexit__(self, *exc: object) -> Any:
        return await self._context.__aexit__(*exc)

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Any, None]:
        child = self._child = await self._start()
        self.pid = child.pid or None
        stream = child.stream
        incoming = _Incoming(stream, self._parse, self._note_end)
        async with anyio.create_task_group() as tasks:

            def lose(_: OSError) -> None:
                """End with a server that does not read any more; what it has written may say why."""
                tasks.start_soon(self._read_out, incoming)

            writer = LineWriter(stream.write_now, stream.write, lose, _MAX_QUEUED)
            tasks.start_soon(self._write, stream, writer)
            tasks.start_soon(self._watch, child, incoming)
            try:
                yield incoming, LineStream(writer)
            finally:
                incoming.end()
                writer.close()
                try:
                    with anyio.CancelScope(shield=True):
                        await self._end(child)
                finally:
                    tasks.cancel_scope.cancel()

    async def _start(self) -> ServerProcess:
        server = self._server
        command = [server.command, *server.args]
        if self._sandbox is not None:
            cwd = Path(server.cwd) if server.cwd is not None else None
            self._boxed = await self._sandbox.start(ServerProgram(argv=command, env=server.env, cwd=cwd))
            return self._boxed
        with unix_needed("an MCP server over stdio"):
            from toolexec.process.child import Child
        env = get_default_environment() | dict(server.env)
        return Child(command, env=env, cwd=server.cwd, lifeline=False)

    async def _end(self, child: ServerProcess) -> None:
        """Let what was asked to be sent go out, end the process, and learn how one that went away by itself did."""
        went_away = self._stdout_ended.is_set() or child.exit_code is not None
        try:
            if not went_away:
                await _within(_GRACE, self._flushed.wait)
        finally:
            if await _end(child, self._server.stop_timeout) and went_away:
                self._exit_code = child.exit_code

    def _note_end(self, is_too_long: bool) -> None:
        self._is_too_long = is_too_long
        self._stdout_ended.set()

    async def _write(self, stream: ServerStream, writer: LineWriter) -> None:
        try:
            await writer.run()
        finally:
            stream.close_writing()  # which asks the server to end
            self._flushed.set()

    async def _watch(self, child: ServerProcess, incoming: _Incoming) -> None:
        await child.wait()
        await self._read_out(incoming)

    async def _read_out(self, incoming: _Incoming) -> None:
        """Let what is written be read, and nothing after a while: a grandchild may hold the pipe open for ever."""
        await _within(_GRACE, self._stdout_ended.wait)
        incoming.end()

    def _parse(self, line: bytes) -> SessionMessage | None:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            if not line.strip():
                return None
        self._foreign_lines += 1
        self._last_foreign = self._scrubber.text(line[:_MAX_FOREIGN].decode(errors="replace"))[:200].strip()
        logger.debug("MCP server %s wrote a line that is no message", self._server.name)
        request_id = _answered_request(line) if line.endswith(b"\n") else None
        if request_id is None:
            return None
        error = ErrorData(code=PARSE_ERROR, message="the server sent a reply that does not follow JSON-RPC")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


def _answered_request(line: bytes) -> int | None:
    """Return the ID of the request that a damaged reply wanted to answer, so that its caller need not wait for ever."""
    head = _REPLY_HEAD.match(line[:200])
    if head is not None:
        return int(head[1])
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    request_id = cast("JSONDict", data).get("id") if isinstance(data, dict) and "method" not in data else None
    return request_id if type(request_id) is int else None


class _Incoming(ReadStream[SessionMessage]):
    """What the server sends, as a read stream of the SDK: it is read when the SDK asks for it.

    *ended* is called at the end of the stream, with whether a line of more than 64 MiB was that end.
    """

    def __init__(
        self, stream: ServerStream, parse: Callable[[bytes], SessionMessage | None], ended: Callable[[bool], None]
    ) -> None:
        self._stream = stream
        self._lines = _Lines(stream)
        self._parse = parse
        self._ended = ended
        self._is_over = False

    async def receive(self) -> SessionMessage:
        """Return the next message; raises EndOfStream."""
        if self._lines.has_one:  # many may come at once, and the event loop has more to do
            await anyio.lowlevel.checkpoint()
        while not self._is_over and (line := await self._lines.read()) is not None:
            message = self._parse(line) if not self._is_over else None
            if message is not None:
                return message
        if not self._is_over:
            self._ended(self._lines.too_long)
        raise anyio.EndOfStream

    def end(self) -> None:
        """Let nothing more be received."""
        self._is_over = True
        self._stream.end_reading()

    async def aclose(self) -> None:
        self.end()


class _Lines:
    """The lines of a stream; one over 64 MiB ends it."""

    def __init__(self, stream: ServerStream) -> None:
        self._stream = stream
        self._kept = bytearray()
        self._seen = 0
        self.too_long: bool = False

    @property
    def has_one(self) -> bool:
        """Whether a line is here already."""
        return b"\n" in self._kept

    async def read(self) -> bytes | None:
        """Return the next line, or None at the end."""
        while True:
            size = self._kept.find(b"\n", self._seen) + 1
            if (size or len(self._kept)) > _MAX_LINE:
                logger.warning("an MCP server sent a line of more than %d bytes; the connection is closed", _MAX_LINE)
                self.too_long = True
                return None
            data = b"" if size else await self._stream.read()
            if not data:
                line = bytes(self._kept[: size or None])
                del self._kept[: size or None]
                self._seen = 0
                return line or None
            self._seen = len(self._kept)
            self._kept += data


async def _end(child: ServerProcess, patience: float) -> bool:
    """Wait for a process whose stdin is closed, ask the group to end, then kill all that is left of it; return whether
    it ended unasked."""
    try:
        if await _within(patience, child.wait):
            return True
        child.terminate()
        await _within(min(patience, 1.0), child.wait)
        return False
    finally:  # also when the waiting is cancelled
        await child.aclose()


async def _within(seconds: float, wait: Callable[[], Awaitable[object]]) -> bool:
    """Return whether *wait* comes to an end in time."""
    with anyio.move_on_after(seconds):
        await wait()
        return True
    return False
