"""Trials of MCP servers whose tool only runs as a task: one that is begun, and then goes wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.contract.outcomes.http_service import Answer, Reply, response, serving
from tests.contract.outcomes.mcp_trials import mcp_backend

from toolexec.errors import Outcome
from toolexec.testing import OutcomeTrial

_TASK = {
    "taskId": "t1",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00Z",
    "ttl": None,
    "pollInterval": 1,
}
_WORKING, _COMPLETED, _FAILED, _CANCELLED = (
    {"result": _TASK | {"status": status}} for status in ("working", "completed", "failed", "cancelled")
)
_PAID = {"result": {"content": [{"type": "text", "text": "paid"}]}}
_NOT_PAID = {"result": {"content": [{"type": "text", "text": "no"}], "isError": True}}
_GONE = {"error": {"code": -32602, "message": "no such task"}}
_BUSY = {"error": {"code": -32603, "message": "odd"}}
_BEGUN = {"result": {"task": _WORKING["result"]}}
_EVENT = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_BREAKS: Mapping[str, bytes] = {
    "is answered 404": response(404),
    "is answered 400 for its session": response(400, b'{"detail": "no such session"}'),
    "is answered 429": response(429, Retry_After="0"),
    "is answered 500": response(500),
    "is answered 202": response(202),
    "is answered with a page": response(200, b"<p>", "text/html"),
    "is answered with broken JSON": response(200, b"{"),
    "is answered with half a body": response(200, b'{"jsonrpc"', length=100),
    "is answered with events that end": _EVENT + b": ping\n\n",
    "loses its connection": b"",
}
_Script = Mapping[str, Any]
"""What each method is answered with: a message, or the bytes of a response; the last of a list again and again."""


def _polled(*answers: Any) -> _Script:
    return {"tools/call": [_BEGUN], "tasks/get": [_WORKING, *answers], "tasks/result": [_PAID]}


def _asked(status: Any, *answers: Any) -> _Script:
    return {"tools/call": [_BEGUN], "tasks/get": [_WORKING, status], "tasks/result": [*answers]}


_SCRIPTS: Mapping[str, tuple[_Script, Outcome]] = {
    **{f"a poll {name}": (_polled(data), Outcome.UNKNOWN) for name, data in _BREAKS.items()},
    **{f"a result {name}": (_asked(_COMPLETED, data), Outcome.DONE) for name, data in _BREAKS.items()},
    "a poll that fails": (_polled(_BUSY), Outcome.UNKNOWN),
    "a poll that is not a task": (_polled({"result": {"status": "odd"}}), Outcome.UNKNOWN),
    "a lost task": (_polled(_GONE), Outcome.UNKNOWN),
    "a cancelled task": (_asked(_CANCELLED, _GONE), Outcome.UNKNOWN),
    "a cancelled task with a failure": (_asked(_CANCELLED, _NOT_PAID), Outcome.UNKNOWN),
    "a failed task": (_asked(_FAILED, _NOT_PAID), Outcome.REFUSED),
    "a failed task whose result is gone": (_asked(_FAILED, _GONE), Outcome.UNKNOWN),
    "an expired result": (_asked(_COMPLETED, _GONE), Outcome.DONE),
    "an unreadable result": (_asked(_COMPLETED, {"result": {"content": "odd"}}), Outcome.DONE),
    "a task of no name": ({"tools/call": [{"result": {"task": {"status": "working"}}}]}, Outcome.UNKNOWN),
    "no task": ({"tools/call": [{"result": {"content": "odd"}}]}, Outcome.DONE),
    "a refused task": ({"tools/call": [_GONE]}, Outcome.REFUSED),
    "a call that is answered 500": ({"tools/call": [response(500)]}, Outcome.UNKNOWN),
}
MCP_TASKS = {name: outcome for name, (_, outcome) in _SCRIPTS.items()} | {"a server that goes away": Outcome.UNKNOWN}


@asynccontextmanager
async def mcp_task_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make a tool that runs as a task of a server behind streamable HTTP."""
    script = _SCRIPTS[name][0] if name in _SCRIPTS else _polled(_WORKING)
    answer = _reply(script, works=MCP_TASKS[name] is not Outcome.REFUSED)

    def reply(head: str, body: bytes) -> Answer:
        if name == "a server that goes away" and b'"tasks/get"' in body:
            service.stop()
        return answer(head, body)

    async with serving(reply) as service:
        async with mcp_backend(url=f"{service.url}/mcp", transport="http") as backend:
            yield OutcomeTrial(backend=backend, tool_id="odd:pay", args={"amount": 7}, effects=lambda: service.effects)


def _reply(script: _Script, *, works: bool) -> Reply:
    """Answer as a server of the older protocol does, and as *script* says; the work begins with the call."""
    entry = {"name": "pay", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
    info = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}},
        "serverInfo": {"name": "odd", "version": "1"},
    }
    usual: _Script = {"initialize": [{"result": info}], "tools/list": [{"result": {"tools": [entry]}}]}
    asked: dict[str, int] = {}

    def reply(head: str, body: bytes) -> Answer:
        if not head.startswith("POST "):
            return Answer(response(405), works=False)
        message = json.loads(body)
        method, request_id = message["method"], message.get("id")
        if request_id is None:
            return Answer(response(202), works=False)
        if method == "tools/call":
            asked.clear()  # which belong to one task
        answers = (usual | script).get(method, [{"error": {"code": -32601, "message": "unknown method"}}])
        said = answers[min(asked.get(method, 0), len(answers) - 1)]
        asked[method] = asked.get(method, 0) + 1
        if isinstance(said, dict):
            session = {"Mcp_Session_Id": "s"} if method == "initialize" else {}
            said = response(200, json.dumps({"jsonrpc": "2.0", "id": request_id, **said}).encode(), **session)
        return Answer(said, works=works and method == "tools/call")

    return reply
