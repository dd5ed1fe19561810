"""Trials of MCP servers of the older transport: calls are posted, and answered on one stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.contract.outcomes.http_service import response
from tests.contract.outcomes.mcp_trials import mcp_backend

from toolexec.errors import Outcome
from toolexec.testing import OutcomeTrial

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class _Said:
    """What a call is answered with: the bytes of a response, then those of the stream, with `$ID` for that of the call;
    `ends` closes the stream."""

    post: bytes = response(202)
    stream: bytes = b""
    ends: bool = False
    works: bool = True


def _event(**said: Any) -> bytes:
    return b"event: message\ndata: " + json.dumps({"jsonrpc": "2.0", "id": "$ID", **said}).encode() + b"\n\n"


def _error(code: int) -> dict[str, Any]:
    return {"code": code, "message": "odd"}


_FAILED = {"content": [{"type": "text", "text": "no"}], "isError": True}
_NO, _MAYBE = (400, 403, 404, 429), (302, 408, 500, 502, 504)
_SCRIPTS: Mapping[str, tuple[_Said, Outcome]] = {
    **{f"status {code}": (_Said(response(code), works=False), Outcome.REFUSED) for code in _NO},
    **{f"status {code}": (_Said(response(code)), Outcome.UNKNOWN) for code in _MAYBE},
    "a closed connection": (_Said(b""), Outcome.UNKNOWN),
    "the end of the stream": (_Said(ends=True), Outcome.UNKNOWN),
    "half an event": (_Said(stream=_event(result={})[:30], ends=True), Outcome.UNKNOWN),
    "an event of broken JSON, and the end": (_Said(stream=b"data: {\n\n", ends=True), Outcome.UNKNOWN),
    "an event for another call, and the end": (
        _Said(stream=_event(result={}).replace(b'"$ID"', b"999"), ends=True),
        Outcome.UNKNOWN,
    ),
    "no result, and the end": (_Said(stream=_event(), ends=True), Outcome.UNKNOWN),
    "no content": (_Said(stream=_event(result={"content": "odd"})), Outcome.DONE),
    "isError": (_Said(stream=_event(result=_FAILED), works=False), Outcome.REFUSED),
    "error -32602": (_Said(stream=_event(error=_error(-32602)), works=False), Outcome.REFUSED),
    "error -32603": (_Said(stream=_event(error=_error(-32603))), Outcome.UNKNOWN),
    "error -32000": (_Said(stream=_event(error=_error(-32000))), Outcome.UNKNOWN),
}
MCP_SSE = {name: outcome for name, (_, outcome) in _SCRIPTS.items()} | {"nothing listens": Outcome.NOT_SENT}


class _Service:
    """Has at most one stream at a time, and counts the calls that do their work."""

    def __init__(self, said: _Said) -> None:
        self._said = said
        self._stream: asyncio.StreamWriter | None = None
        self.effects = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            if head.startswith("GET "):
                self._stream = writer
                writer.write(_HEAD + b"event: endpoint\ndata: /messages\n\n")
                await reader.read()  # until one of both ends it
            else:
                lengths = [line for line in head.split("\r\n") if line.lower().startswith("content-length:")]
                self._answer(json.loads(await reader.readexactly(int(lengths[0].partition(":")[2]))), writer)
                await writer.drain()
        writer.close()

    def _answer(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        method, number = message["method"], json.dumps(message.get("id")).encode()
        said = _Said(stream=_event(**_USUAL.get(method, {"error": _error(-32601)})), works=False)
        if method == "tools/call":
            said = self._said
        elif "id" not in message:
            said = _Said(works=False)
        self.effects += said.works
        writer.write(said.post)
        if self._stream is not None:
            self._stream.write(said.stream.replace(b'"$ID"', number))
            if said.ends:
                self._stream.close()


_INFO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}}
_TOOL = {"name": "pay", "inputSchema": {"type": "object"}}
_USUAL: Mapping[str, dict[str, Any]] = {"initialize": {"result": _INFO}, "tools/list": {"result": {"tools": [_TOOL]}}}


@asynccontextmanager
async def mcp_sse_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make a tool of a server behind HTTP+SSE."""
    service = _Service(_SCRIPTS[name][0] if name in _SCRIPTS else _Said())
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1] if name != "nothing listens" else 1
    try:
        async with mcp_backend(url=f"http://127.0.0.1:{port}/sse", transport="sse") as backend:
            yield OutcomeTrial(backend=backend, tool_id="odd:pay", args={"amount": 7}, effects=lambda: service.effects)
    finally:
        server.close()
