"""Idempotency keys: a server gets that of a call in the `_meta` of the request."""

from __future__ import annotations

import sys

import pytest

from toolexec import Exec
from toolexec.backend.mcp.backend import IDEMPOTENCY_KEY
from toolexec.errors import InputValidationError, Violation
from toolexec.model.call import Progress, ToolCall
from toolexec.model.json_value import NotJSONError

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


async def test_arguments_that_were_checked_are_not_walked_again(connect, monkeypatch):
    """The runner has made JSON of them; those of a call without a runner are looked at here."""

    def refuse(args: object) -> None:
        raise NotJSONError([Violation(path="", keyword="json", message="looked at", expected="")])

    backend = connect([sys.executable, "-c", PROGRAM])
    async with Exec(gate=None) as ex:
        ex.add_backends(backend)
        await ex.start()
        monkeypatch.setattr("toolexec.backend.mcp.backend.own_args", refuse)
        assert (await ex.run_tool("s:plain", {"a": [1, {"b": 2}]})).ok
        with pytest.raises(InputValidationError, match="looked at"):
            await backend.call("plain", ToolCall("s:plain", {"a": [1]}))
