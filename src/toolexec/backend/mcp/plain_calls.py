"""Calls of tools that need nothing of the SDK's client but its connection."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final, TypeAlias, cast

import anyio
from mcp import MCPError
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolResult,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.methods import validate_server_result
from opentelemetry import trace

from toolexec.backend.mcp.convert import convert_reply
from toolexec.model.content import ToolReply
from toolexec.model.json_value import JSONDict, JSONObject

_FIRST: Final = 1_000_000_001
"""The ID of the first of these calls; the SDK counts its own requests from 1."""
_CALL: Final = "tools/call"
_PATIENCE: Final = 5.0
"""How many seconds the notice of a cancelled call may take."""
_KEYS: Final = frozenset(("content", "isError", "structuredContent"))
_PART: Final = frozenset(("type", "text"))
_Answer: TypeAlias = JSONRPCResponse | JSONRPCError


class PlainCalls:
    """Makes calls over one connection, whose messages go out by *outgoing* and come in by `take`.

    It is for servers of the handshake era over a pipe, and for calls that report no progress: between the arguments,
    which are checked, and the reply, the SDK's client has nothing to add then, and its models, streams and scopes cost
    more than the server's own work. What it refuses in a reply is refused here, too.
    """

    def __init__(self, outgoing: Any) -> None:
        self._outgoing = outgoing
        self._numbers = itertools.count(_FIRST)
        self._waiting: dict[RequestId, asyncio.Future[_Answer]] = {}
        self._is_over = False

    async def call(self, name: str, args: JSONObject, meta: JSONDict | None, version: str) -> ToolReply:
        """Return the reply of a tool; raises what the SDK's client would, MCPError and ValidationError."""
        if self._is_over:
            raise _closed()
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        params: dict[str, Any] = {"name": name, "arguments": args}
        if meta:
            params["_meta"] = meta
        try:
            await self._send(JSONRPCRequest(jsonrpc="2.0", id=number, method=_CALL, params=params))
            message = await answer
        except asyncio.CancelledError:
            await self._cancel(number)
            raise
        finally:
            self._waiting.pop(number, None)
        if isinstance(message, JSONRPCError):
            raise MCPError(code=message.error.code, message=message.error.message, data=message.error.data)
        return _plain_reply(message.result) or _checked_reply(message.result, version)

    def take(self, message: JSONRPCMessage) -> bool:
        """Take the answer to one of these calls; returns False for any other message."""
        if not self._waiting or not isinstance(message, _Answer) or message.id is None:
            return False
        answer = self._waiting.get(coerce_request_id(message.id))
        if answer is None:
            return False
        if not answer.done():
            answer.set_result(message)
        return True

    def end(self) -> None:
        """Let no more calls be made; those that wait fail as on a closed connection."""
        self._is_over = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_closed())

    async def _send(self, message: JSONRPCRequest | JSONRPCNotification) -> None:
        try:
            await self._outgoing.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise _closed() from None

    async def _cancel(self, number: int) -> None:
        params: dict[str, Any] = {"requestId": number, "reason": "caller cancelled"}
        with anyio.move_on_after(_PATIENCE, shield=True):
            try:
                await self._send(JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params))
            except MCPError:
                return  # the connection has ended, and the call with it


def is_traced() -> bool:
    """Return whether traces are kept, so that a call has to be part of one."""
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return True
    return trace.get_current_span().get_span_context().is_valid


def _closed() -> MCPError:
    return MCPError(code=CONNECTION_CLOSED, message="Connection closed")


def _plain_reply(result: JSONDict) -> ToolReply | None:
    """Return a reply of strings and structured data, which needs no check; None for any other."""
    content, is_error = result.get("content"), result.get("isError", False)
    structured = result.get("structuredContent")
    if not (result.keys() <= _KEYS and isinstance(content, list) and isinstance(is_error, bool)):
        return None
    if not (isinstance(structured, dict) or "structuredContent" not in result):
        return None
    for part in cast("list[object]", content):
        if not (isinstance(part, dict) and part.keys() == _PART):
            return None
        if part["type"] != "text" or not isinstance(part["text"], str):
            return None
    return ToolReply(
        content=cast("list[JSONDict]", content),
        structured=structured,
        has_structured=structured is not None,
        is_error=is_error,
        meta={},
    )


def _checked_reply(result: JSONDict, version: str) -> ToolReply:
    validate_server_result(_CALL, version, result)
    return convert_reply(CallToolResult.model_validate(result, by_name=False))
