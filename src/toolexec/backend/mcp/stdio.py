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
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from toolexec.backend.mcp.config import MCPServer
from toolexec.process.tree import signal_group

__all__ = ["StdioTransport"]

logger = logging.getLogger(__name__)
_MAX_LINE = 64 << 20
_MAX_QUEUED = 1024
_STDERR_TAIL = 4096
_SHOWN_TAIL = 1000
_MAX_FOREIGN = 4096
_GRACE = 0.5
_REPLY_HEAD = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')


class _ChildProtocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Says at once that the process ended; `Process.wait` also waits for pipes, which a grandchild may hold open."""

    def __init__(self) -> None:
        super().__init__(limit=_MAX_LINE, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class StdioTransport:
    """Starts the server's command and yields the two streams that the SDK's client wants; one use only."""

    def __init__(self, server: MCPServer) -> None:
        self._server = server
        self._scrubber = server.scrubber()
        self._tail = bytearray()
        self._context: Any = None
        self._foreign_lines = 0
        self._last_foreign = ""
        self._exit_code: int | None = None
        self._stdout_ended = asyncio.Event()
        self._stderr_ended = asyncio.Event()
        self._flushed = asyncio.Event()
        self.pid: int | None = None

    def diagnosis(self) -> str:
        """How the process ended, if it did so by itself, and the last that it wrote to stderr."""
        parts: list[str] = []
        code = self._exit_code
        if code is not None:
            parts.append(f"the process was ended by signal {-code}" if code < 0 else f"the process exited with {code}")
        if self._foreign_lines:
            lines = "a line" if self._foreign_lines == 1 else f"{self._foreign_lines} lines"
            parts.append(f"it wrote {lines} to stdout that is no MCP message, the last: {self._last_foreign!r}")
        tail = self._scrubber.text(self._tail.decode(errors="replace"))
        if len(self._tail) >= _STDERR_TAIL:  # it may begin in the middle of a secret
            tail = tail[self._scrubber.longest :]
        tail = tail.strip()
        if tail:
            parts.append(f"the end of its stderr: {tail[-_SHOWN_TAIL:]}")
        return "; ".join(parts)

    async def __aenter__(self) -> Any:
        self._context = self._connect()
        return await self._context.__aenter__()

    async def __aexit__(self, *exc: object) -> Any:
        return await self._context.__aexit__(*exc)

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Any, None]:
        server, loop = self._server, asyncio.get_running_loop()
        # What asyncio.create_subprocess_exec does, except that the protocol is ours.
        transport, protocol = await loop.subprocess_exec(
            _ChildProtocol,
            server.command,
            *server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=get_default_environment() | dict(server.env),
            cwd=server.cwd,
            start_new_session=True,
        )
        process = asyncio.subprocess.Process(transport, protocol, loop)
        self.pid = process.pid
        incoming_send, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing, outgoing_receive = anyio.create_memory_object_stream[SessionMessage](_MAX_QUEUED)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process, incoming_send)
            tasks.start_soon(self._write, process, outgoing_receive, incoming_send)
            tasks.start_soon(self._keep_stderr, process)
            tasks.start_soon(self._watch, protocol, incoming_send)
            try:
                yield incoming, outgoing
            finally:
                incoming.close()
                outgoing.close()
                try:
                    with anyio.CancelScope(shield=True):
                        try:
                            await self._settle(process, protocol)
                        finally:
                            await _end(process, protocol, transport, server.stop_timeout)
                        await _within(_GRACE, self._stderr_ended)
                finally:
                    transport.close()
                    incoming_send.close()
                    outgoing_receive.close()
                    tasks.cancel_scope.cancel()

    async def _settle(self, process: asyncio.subprocess.Process, protocol: _ChildProtocol) -> None:
        """Let what was asked to be sent go out, or learn how a process that went away by itself has ended."""
        if self._stdout_ended.is_set() or protocol.exited.is_set():
            await _within(_GRACE, protocol.exited)
            self._exit_code = process.returncode
        else:
            await _within(_GRACE, self._flushed)

    async def _read(self, process: asyncio.subprocess.Process, incoming: MemoryObjectSendStream[Any]) -> None:
        assert process.stdout is not None
        try:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
                while (line := await _read_line(process.stdout)) is not None:
                    message = self._parse(line)
                    if message is not None:
                        await incoming.send(message)
        finally:
            self._stdout_ended.set()
            incoming.close()

    async def _write(
        self,
        process: asyncio.subprocess.Process,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        incoming: MemoryObjectSendStream[Any],
    ) -> None:
        assert process.stdin is not None
        try:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
        except OSError:  # nobody reads any more
            incoming.close()
        finally:
            self._flushed.set()

    async def _keep_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        try:
            while chunk := await process.stderr.read(65536):
                self._tail += chunk
                del self._tail[:-_STDERR_TAIL]
        finally:
            self._stderr_ended.set()

    async def _watch(self, protocol: _ChildProtocol, incoming: MemoryObjectSendStream[Any]) -> None:
        await protocol.exited.wait()
        await _within(_GRACE, self._stdout_ended)
        incoming.close()  # a grandchild may hold the pipe open for ever

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
    """The ID of the request that a damaged reply wanted to answer, so that its caller need not wait for ever."""
    head = _REPLY_HEAD.match(line[:200])
    if head is not None:
        return int(head[1])
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    request_id = cast("dict[str, Any]", data).get("id") if isinstance(data, dict) and "method" not in data else None
    return request_id if type(request_id) is int else None


async def _read_line(stream: asyncio.StreamReader) -> bytes | None:
    """The next line, or None at the end; a line over 64 MiB ends the connection."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial or None
    except asyncio.LimitOverrunError:
        logger.warning("an MCP server sent a line of more than %d bytes; the connection is closed", _MAX_LINE)
        return None


async def _end(
    process: asyncio.subprocess.Process,
    protocol: _ChildProtocol,
    transport: asyncio.SubprocessTransport,
    patience: float,
) -> None:
    """Close stdin, wait, ask the group to end, then kill it; in the end nothing of the group is left."""
    assert process.stdin is not None
    try:
        process.stdin.close()
        if not await _within(patience, protocol.exited):
            signal_group(process.pid, signal.SIGTERM)
            await _within(min(patience, 1.0), protocol.exited)
    finally:  # also when somebody cancels the waiting
        signal_group(process.pid)
        stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        if stdin.get_write_buffer_size():  # it would wait for somebody to read the rest
            stdin.abort()
    await _within(5.0, protocol.exited)


async def _within(seconds: float, event: asyncio.Event) -> bool:
    with anyio.move_on_after(seconds):
        await event.wait()
    return event.is_set()
