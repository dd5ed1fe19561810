"""Speak MCP with a child process.

The SDK's own stdio client lends a server the terminal's stderr, reads lines of any length, and leaves alone what a
server that exits by itself has started. This one keeps the last lines of stderr for error messages, bounds a line, and
at the end kills the whole process group.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from toolexec.backend.mcp.config import MCPServer

__all__ = ["StdioTransport"]

logger = logging.getLogger(__name__)
_MAX_LINE = 64 << 20
_STDERR_TAIL = 4096
_POLL = 0.005


class StdioTransport:
    """Starts the server's command and yields the two streams that the SDK's client wants; one use only."""

    def __init__(self, server: MCPServer) -> None:
        self._server = server
        self._tail = bytearray()
        self._process: asyncio.subprocess.Process | None = None
        self._context: Any = None
        self.foreign_lines = 0

    @property
    def pid(self) -> int | None:
        """The server's process ID, once started."""
        return self._process.pid if self._process is not None else None

    def diagnosis(self) -> str:
        """How the process ended, if it did, and the last that it wrote to stderr."""
        parts: list[str] = []
        code = self._process.returncode if self._process is not None else None
        if code is not None:
            parts.append(
                f"the process ended with signal {-code}" if code < 0 else f"the process exited with code {code}"
            )
        if self.foreign_lines:
            parts.append(f"it wrote {self.foreign_lines} lines to stdout that are not MCP messages")
        tail = self._tail.decode(errors="replace").strip()
        if tail:
            parts.append(f"the end of its stderr: {tail[-1000:]}")
        return "; ".join(parts)

    async def __aenter__(self) -> Any:
        self._context = self._connect()
        return await self._context.__aenter__()

    async def __aexit__(self, *exc: object) -> Any:
        return await self._context.__aexit__(*exc)

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Any, None]:
        server = self._server
        self._process = process = await asyncio.create_subprocess_exec(
            server.command,
            *server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=get_default_environment() | dict(server.env),
            cwd=server.cwd,
            start_new_session=True,
            limit=_MAX_LINE,
        )
        incoming_send, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing, outgoing_receive = anyio.create_memory_object_stream[SessionMessage](0)
        flushed = asyncio.Event()

        async def read() -> None:
            assert process.stdout is not None
            async with incoming_send:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
                    while (line := await _read_line(process.stdout)) is not None:
                        message = self._parse(line)
                        if message is not None:
                            await incoming_send.send(message)

        async def write() -> None:
            assert process.stdin is not None
            try:
                async with outgoing_receive:
                    async for message in outgoing_receive:
                        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                        process.stdin.write(text.encode() + b"\n")
                        await process.stdin.drain()
            except (anyio.ClosedResourceError, OSError):
                await incoming_send.aclose()
            finally:
                flushed.set()

        async def keep_stderr() -> None:
            assert process.stderr is not None
            while chunk := await process.stderr.read(65536):
                self._tail += chunk
                del self._tail[:-_STDERR_TAIL]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            tasks.start_soon(keep_stderr)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    incoming.close()
                    outgoing.close()
                    with anyio.move_on_after(0.5):
                        await flushed.wait()
                    await _stop(process, server.stop_timeout)
                    incoming_send.close()
                    outgoing_receive.close()
                tasks.cancel_scope.cancel()

    def _parse(self, line: bytes) -> SessionMessage | None:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            if line.strip():
                self.foreign_lines += 1
                logger.debug("MCP server %s wrote a line that is no message", self._server.name)
            return None


async def _read_line(stream: asyncio.StreamReader) -> bytes | None:
    """The next line, or None at the end; a line over 64 MiB ends the connection."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial or None
    except asyncio.LimitOverrunError:
        logger.warning("an MCP server sent a line of more than %d bytes; the connection is closed", _MAX_LINE)
        return None


async def _stop(process: asyncio.subprocess.Process, patience: float) -> None:
    """Close stdin, wait, ask the group to end, then kill it; in the end nothing of the group is left."""
    if process.stdin is not None:
        process.stdin.close()
    if not await _ended(process, patience):
        _signal_group(process, signal.SIGTERM)
        await _ended(process, min(patience, 1.0))
    _signal_group(process, signal.SIGKILL)
    await _ended(process, 5.0)
    transport = getattr(process, "_transport", None)  # nothing public closes the pipes that a survivor holds open
    if transport is not None:
        transport.close()


async def _ended(process: asyncio.subprocess.Process, patience: float) -> bool:
    # Not process.wait(): that also waits for the pipes, which a grandchild may hold open.
    deadline = asyncio.get_running_loop().time() + patience
    while process.returncode is None:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_POLL)
    return True


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
