"""Tools that only run as tasks: made, watched, asked for their result, cancelled."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from toolexec.errors import RemoteToolError
from toolexec.model.call import ToolCall

PROGRAM = """
import json, sys
record = open(sys.argv[1], "a", buffering=1)
stamps = {"taskId": "t1", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": None}
asked = 0
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if "id" not in message:
        continue
    record.write(method + "\\n")
    answer = {"error": {"code": -32601, "message": "unknown"}}
    def task(status, text=None):
        return {**stamps, "status": status, "pollInterval": 1, **({"statusMessage": text} if text else {})}
    if method == "initialize":
        answer = {"result": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "t", "version": "1"},
            "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}}}
    elif method == "tools/list":
        names = ["done", "endless", "direct", "broken"]
        answer = {"result": {"tools": [
            {"name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}} for name in names]}}
    elif method == "tools/call":
        assert params["task"] == {}
        called = params["name"]
        answer = {"result": {"task": task("working", "begun")}}
        if called == "direct":
            answer = {"result": {"content": [{"type": "text", "text": "at once"}]}}
    elif method == "tasks/get":
        asked += 1
        text = "half way" if asked < 3 else "nearly"
        answer = {"result": task("completed" if asked > 4 and called == "done" else "working", text)}
        if called == "broken":
            answer = {"error": {"code": -32602, "message": "no such task"}}
    elif method == "tasks/result":
        answer = {"result": {"content": [{"type": "text", "text": "result of " + params["taskId"]}]}}
    elif method == "tasks/cancel":
        answer = {"result": task("cancelled")}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.fixture
def record(tmp_path) -> Path:
    return tmp_path / "methods"


@pytest.fixture
def backend(connect, record):
    return connect([sys.executable, "-c", PROGRAM, str(record)])


async def test_a_task_is_watched_to_its_result(backend):
    """The result is fetched when the task is done; status messages are progress, each once."""
    seen = []
    reply = await backend.call("done", ToolCall("s:done", {}, on_progress=seen.append))
    assert reply.content == [{"type": "text", "text": "result of t1"}]
    assert [(p.done, p.message) for p in seen] == [(1, "begun"), (2, "half way"), (3, "nearly")]


async def test_a_direct_answer_is_taken(backend):
    """A server that answers without making a task is understood too."""
    reply = await backend.call("direct", ToolCall("s:direct"))
    assert reply.content[0]["text"] == "at once"


async def test_a_task_that_is_forgotten_fails_the_call(backend):
    """An error of the server while watching is the call's error."""
    with pytest.raises(RemoteToolError, match="no such task"):
        await backend.call("broken", ToolCall("s:broken"))


async def test_cancelling_cancels_the_task(backend, record, until):
    """The server is asked to stop a task without a waiting caller."""
    task = asyncio.create_task(backend.call("endless", ToolCall("s:endless")))
    await until(lambda: record.exists() and "tasks/get" in record.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert record.read_text().split()[-1] == "tasks/cancel"
    assert json.dumps(backend.status().to_dict())
