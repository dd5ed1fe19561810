"""Trials of MCP servers: over stdio, and over streamable HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.contract.outcomes.http_service import Answer, Reply, response, serving

from toolexec.backend.mcp import MCPBackend, MCPServer
from toolexec.errors import Outcome
from toolexec.testing import OutcomeTrial, ScriptedServer, ScriptedTool, Trouble

_REFUSED = (-32600, -32601, -32602)
_OPEN = (-32603, -32700, -32000, -32001, -32002, -32050, 1)
_ERROR = {code: {"code": code, "message": "odd"} for code in (*_REFUSED, *_OPEN)}
_FAILED: Mapping[str, Any] = {"content": [{"type": "text", "text": "no"}], "isError": True}
_STDIO: Mapping[str, tuple[ScriptedTool, Outcome]] = {
    "isError": (ScriptedTool("pay", reply=_FAILED), Outcome.REFUSED),
    "no content": (ScriptedTool("pay", reply={"content": "odd"}), Outcome.DONE),
    "no result": (ScriptedTool("pay", raw='{"jsonrpc": "2.0", "id": $ID}'), Outcome.UNKNOWN),
    "a broken frame": (ScriptedTool("pay", raw='{"jsonrpc": "2.0", "id": $ID, "result": {'), Outcome.UNKNOWN),
    "half a frame": (ScriptedTool("pay", trouble=Trouble(half=True)), Outcome.UNKNOWN),
    "an exit": (ScriptedTool("pay", trouble=Trouble(exit=1)), Outcome.UNKNOWN),
    **{f"error {code}": (ScriptedTool("pay", error=_ERROR[code]), Outcome.REFUSED) for code in _REFUSED},
    **{f"error {code}": (ScriptedTool("pay", error=_ERROR[code]), Outcome.UNKNOWN) for code in _OPEN},
}
MCP_STDIO = {name: outcome for name, (_, outcome) in _STDIO.items()} | {"no program": Outcome.NOT_SENT}

_NO, _MAYBE = ("status 400", "status 403", "status 429"), ("status 302", "status 408", "status 500", "status 502")
_EVENT = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _progress(event_id: str) -> bytes:
    """Return an event that reports progress; one with an ID may be asked for again."""
    params = {"progressToken": 1, "progress": 1}
    data = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    return f"{f'id: {event_id}{chr(10)}retry: 1{chr(10)}' if event_id else ''}data: {data}\n\n".encode()


_HTTP: Mapping[str, tuple[Answer, Outcome]] = {
    **{name: (Answer(response(int(name[-3:])), works=False), Outcome.REFUSED) for name in _NO},
    **{name: (Answer(response(int(name[-3:]))), Outcome.UNKNOWN) for name in _MAYBE},
    "status 400 with words": (Answer(response(400, b'{"detail": "odd"}'), works=False), Outcome.REFUSED),
    "status 404 of a session": (Answer(response(404), works=False), Outcome.REFUSED),
    "status 202": (Answer(response(202)), Outcome.UNKNOWN),
    "status 200 with a page": (Answer(response(200, b"<p>", "text/html")), Outcome.UNKNOWN),
    "broken JSON": (Answer(response(200, b"{")), Outcome.UNKNOWN),
    "events that end": (Answer(_EVENT + b": ping\n\n"), Outcome.UNKNOWN),
    "events that are reset": (Answer(_EVENT + b": ping\n\n", resets=True), Outcome.UNKNOWN),
    "events that end after one of progress": (Answer(_EVENT + _progress("")), Outcome.UNKNOWN),
    "events that cannot be resumed": (Answer(_EVENT + _progress("7")), Outcome.UNKNOWN),
    "half an event": (Answer(_EVENT + b'data: {"jsonrpc": "2.0", "id": '), Outcome.UNKNOWN),
    "an event of broken JSON": (Answer(_EVENT + b"data: {\n\n"), Outcome.UNKNOWN),
    "a cut chunk of events": (Answer(_CHUNKED + b"50\r\n: ping\r\n"), Outcome.UNKNOWN),
    "a closed connection": (Answer(), Outcome.UNKNOWN),
    "half a body": (Answer(response(200, b'{"jsonrpc"', length=100)), Outcome.UNKNOWN),
}
_OVER_HTTP = ("isError", "no content", "error -32602", "error -32603", "error -32000")
MCP_HTTP = {
    **{name: outcome for name, (_, outcome) in _HTTP.items()},
    **{name: _STDIO[name][1] for name in _OVER_HTTP},
    "nothing listens": Outcome.NOT_SENT,
}


@asynccontextmanager
async def mcp_backend(**settings: Any) -> AsyncIterator[MCPBackend]:
    """Start the backend of a server that may be lost often, and close it."""
    backend = MCPBackend(MCPServer(**{"name": "odd", "max_restarts": 100, **settings}))
    await backend.start()
    try:
        yield backend
    finally:
        await backend.aclose()


@asynccontextmanager
async def mcp_stdio_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make a tool of a server in a process of its own."""
    with TemporaryDirectory() as directory:
        works = MCP_STDIO[name] in (Outcome.DONE, Outcome.UNKNOWN)
        tool = _STDIO[name][0] if name in _STDIO else ScriptedTool("pay")
        script = ScriptedServer(tools=[tool], record=str(Path(directory) / "events"))
        command, *args = script.command() if name != "no program" else ["no-such-program"]
        restarts = 100 if name != "no program" else 0
        async with mcp_backend(command=command, args=args, max_restarts=restarts) as backend:
            yield OutcomeTrial(
                backend=backend,
                tool_id="odd:pay",
                args={"amount": 7},
                effects=lambda: len(script.events("call")) if works else 0,
            )


@asynccontextmanager
async def mcp_http_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make a tool of a server behind streamable HTTP."""
    async with serving(_reply(name)) as service:
        url = f"{service.url}/mcp" if name != "nothing listens" else "http://127.0.0.1:1/mcp"
        async with mcp_backend(url=url, transport="http") as backend:
            yield OutcomeTrial(backend=backend, tool_id="odd:pay", args={"amount": 7}, effects=lambda: service.effects)


def _reply(name: str) -> Reply:
    """Answer as a server of the older protocol does, until the tool is called."""
    tool = _STDIO[name][0] if name in _OVER_HTTP else ScriptedTool("pay")
    entry: dict[str, Any] = {"name": "pay", "inputSchema": {"type": "object"}}
    info = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "odd", "version": "1"},
    }
    results: dict[str, Any] = {"initialize": info, "tools/list": {"tools": [entry]}}

    def reply(head: str, body: bytes) -> Answer:
        if not head.startswith("POST "):
            return Answer(response(405), works=False)
        message = json.loads(body)
        method, request_id = message["method"], message.get("id")
        if request_id is None:
            return Answer(response(202), works=False)
        if method == "tools/call" and name in _HTTP:
            return _HTTP[name][0]
        said: dict[str, Any] = {"error": {"code": -32601, "message": "unknown method"}}
        if method in results:
            said = {"result": results[method]}
        elif method == "tools/call":
            said = {"error": tool.error} if tool.error is not None else {"result": tool.reply}
        text = json.dumps({"jsonrpc": "2.0", "id": request_id, **said}).encode()
        session = {"Mcp_Session_Id": "s"} if method == "initialize" else {}
        works = method == "tools/call" and MCP_HTTP[name] in (Outcome.DONE, Outcome.UNKNOWN)
        return Answer(response(200, text, **session), works=works)

    return reply
