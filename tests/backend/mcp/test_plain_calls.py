"""Calls that need nothing of the SDK's client but its connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse
from opentelemetry import trace
from pydantic import ValidationError

from toolexec.backend.mcp.plain_calls import PlainCalls
from toolexec.errors import RemoteToolError
from toolexec.model.call import ToolCall
from toolexec.testing.mcp_server import ScriptedServer

VERSION = "2025-11-25"
TEXT = {"type": "text", "text": "hello"}


class Wire:
    """A connection on which what is sent is kept, and can be answered."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.calls = PlainCalls(self)

    async def send(self, item: Any) -> None:
        self.sent.append(item.message.model_dump(exclude_unset=True))

    async def begin(self, meta: dict[str, Any] | None = None) -> asyncio.Task[Any]:
        task = asyncio.create_task(self.calls.call("t", {"a": 1}, meta, VERSION))
        await asyncio.sleep(0)
        return task

    async def reply(self, result: dict[str, Any]) -> Any:
        """Call, and answer it so."""
        task = await self.begin()
        assert self.calls.take(JSONRPCResponse(jsonrpc="2.0", id=self.sent[-1]["id"], result=result))
        return await task


async def test_the_sdk_makes_no_plain_call(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a server of the handshake era is made without the SDK's client, but for one within a trace."""
    backend = connect(ScriptedServer())
    await backend.start()
    made: list[str] = []

    async def note(self: Any, name: str, *args: Any, **settings: Any) -> Any:
        made.append(name)
        raise MCPError(code=1, message="by the SDK")

    monkeypatch.setattr("mcp.Client.call_tool", note)
    assert (await backend.call("echo", ToolCall("s:echo", {"a": 1}))).structured == {"a": 1}
    assert made == []
    span = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))
    with trace.use_span(span), pytest.raises(RemoteToolError, match="by the SDK"):
        await backend.call("echo", ToolCall("s:echo", {"a": 1}))
    assert made == ["echo"]


async def test_a_plain_reply() -> None:
    """Strings and structured data come as they were sent."""
    reply = await Wire().reply({"content": [TEXT], "structuredContent": {"a": None}, "isError": True})
    assert (reply.content, reply.structured, reply.has_structured, reply.is_error) == ([TEXT], {"a": None}, True, True)
    assert not (await Wire().reply({"content": []})).has_structured


async def test_a_reply_with_more_in_it() -> None:
    """Images and `_meta` are checked by the SDK's models, and come through."""
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    reply = await Wire().reply({"content": [image], "_meta": {"k": 1}})
    assert (reply.content, reply.meta) == ([image], {"k": 1})


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"content": {}},
        {"content": [{"type": "text", "text": 1}]},
        {"content": [{"type": "film", "text": "x"}]},
        {"content": [], "isError": []},
        {"content": [], "structuredContent": "text"},
    ],
)
async def test_a_reply_that_does_not_follow_mcp(result: dict[str, Any]) -> None:
    """A wrong reply is refused as the SDK refuses it."""
    with pytest.raises(ValidationError):
        await Wire().reply(result)


async def test_an_error() -> None:
    """The server's error has its code, its words and its data, also where its ID comes back as a text."""
    wire = Wire()
    task = await wire.begin({"k": 1})
    assert wire.sent[0]["params"] == {"name": "t", "arguments": {"a": 1}, "_meta": {"k": 1}}
    error = {"code": -32000, "message": "no", "data": [1]}
    assert wire.calls.take(
        JSONRPCError.model_validate({"jsonrpc": "2.0", "id": str(wire.sent[0]["id"]), "error": error})
    )
    with pytest.raises(MCPError, match="no") as failed:
        await task
    assert (failed.value.error.code, failed.value.error.data) == (-32000, [1])


async def test_a_cancelled_call() -> None:
    """The server is notified, and its late answer is dropped."""
    wire = Wire()
    task = await wire.begin()
    task.cancel()
    await asyncio.wait([task])
    number = wire.sent[0]["id"]
    assert wire.sent[1]["method"] == "notifications/cancelled"
    assert wire.sent[1]["params"]["requestId"] == number
    late: JSONRPCMessage = JSONRPCResponse(jsonrpc="2.0", id=number, result={"content": []})
    assert not wire.calls.take(late)


async def test_a_connection_that_ends() -> None:
    """Calls that wait fail as on a closed connection, and so does each later one."""
    wire = Wire()
    task = await wire.begin()
    wire.calls.end()
    for failing in (task, wire.calls.call("t", {}, None, VERSION)):
        with pytest.raises(MCPError, match="Connection closed"):
            await failing
