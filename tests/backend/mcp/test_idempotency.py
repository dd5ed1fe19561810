"""Idempotency keys: a server gets that of a call in the `_meta` of the request."""

from __future__ import annotations

import sys

import pytest

from toolexec.backend.mcp.backend import IDEMPOTENCY_KEY
from toolexec.model.call import Progress, ToolCall

PROGRAM = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if "id" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "unknown"}}
    if method == "initialize":
        tasks = {"requests": {"tools": {"call": {}}}}
        answer = {"result": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "t", "version": "1"},
            "capabilities": {"tools": {}, "tasks": tasks}}}
    elif method == "tools/list":
        task = {"execution": {"taskSupport": "required"}}
        answer = {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}, **more}
            for name, more in (("plain", {}), ("task", task))]}}
    elif method == "tools/call":
        text = json.dumps(params.get("_meta", {}))
        answer = {"result": {"content": [{"type": "text", "text": text}], "structuredContent": params.get("_meta", {})}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.mark.parametrize("name", ["plain", "task"])
async def test_the_key_is_in_the_meta(connect, name):
    """A call without a key has none; progress is asked for beside it."""
    backend = connect([sys.executable, "-c", PROGRAM])
    seen: list[Progress] = []
    without = await backend.call(name, ToolCall(f"s:{name}", {}))
    assert IDEMPOTENCY_KEY not in (without.structured or {})
    reply = await backend.call(name, ToolCall(f"s:{name}", {}, idempotency_key="k \u00fc", on_progress=seen.append))
    assert reply.structured[IDEMPOTENCY_KEY] == "k \u00fc"
    assert "progressToken" in reply.structured
