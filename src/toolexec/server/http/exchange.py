"""A call of a tool in the era without a handshake, answered in the very task of its request."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import ServerRunner, modern_error_data
from mcp.server.streamable_http import check_accept_headers
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_METHOD_HEADER,
    MCP_PARAM_HEADER_PREFIX,
    InboundModernRoute,
    classify_inbound_request,
    find_duplicated_routing_header,
    validate_mcp_param_headers,
)
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, ProgressToken, RequestId
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolexec.model.json_value import JSONDict
from toolexec.server.http.replies import header
from toolexec.server.lowlevel import Lowlevel

logger: logging.Logger = logging.getLogger(__name__)
_CALL: Final = "tools/call"
_METHOD: Final = MCP_METHOD_HEADER.encode()
_PARAM: Final = MCP_PARAM_HEADER_PREFIX.lower()
_MOMENT: Final = 0.01
"""After how many seconds a call is attended to: most are over by then, and cost no task for it."""
_PING: Final = 15.0
"""After how many seconds without an answer it becomes a stream, and how often that says that it is alive."""
_JSON: Final = [(b"content-type", b"application/json")]
_STREAM: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


class Exchanges:
    """Answers the calls of tools of *lowlevel* that nothing speaks against as HTTP messages; *others* gets every other
    request, and refuses what has to be refused.

    The SDK's application has four tasks and streams between them for each request. Here a call is made by the task that
    brought it, and there is one more only for a call that takes a while, which notices that the client is gone and
    keeps the connection alive. What the call says meanwhile goes to the client as it is said, and the answer becomes a
    stream with that.
    """

    def __init__(self, lowlevel: Server[Any], others: ASGIApp) -> None:
        self._lowlevel = lowlevel
        self._others = others
        self._is_ours = isinstance(lowlevel, Lowlevel)  # any other may have a lifespan, which the SDK enters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if not self._is_ours or scope["method"] != "POST" or header(scope, _METHOD) != _CALL:
            await self._others(scope, receive, send)
            return
        first = await receive()  # a body comes in one part; see `BodyLimits`
        request = Request(scope, receive)
        call = self._read(request, first)
        if call is None:
            await self._others(scope, _again(first, receive), send)
        else:
            await call.answer(self._lowlevel, receive, send)

    def _read(self, request: Request, message: Message) -> _Call | None:
        """Return the call that a request is; None where the SDK has to look at it."""
        headers = request.headers
        if message["type"] != "http.request" or not _takes_both(headers.get("accept", "")):
            return None
        try:
            body = json.loads(message.get("body", b""))
            asked = JSONRPCRequest.model_validate(body)
        except (ValueError, RecursionError):  # a ValidationError is a ValueError
            return None
        if find_duplicated_routing_header(headers.items()) is not None:
            return None
        route = classify_inbound_request(body, headers=headers)
        if not isinstance(route, InboundModernRoute) or not self._has_its_headers(asked, headers):
            return None
        return _Call(request, asked, route)

    def _has_its_headers(self, asked: JSONRPCRequest, headers: Mapping[str, str]) -> bool:
        """Return whether the headers that repeat arguments are those of the call."""
        find = self._lowlevel.get_tool_input_schema
        params = asked.params or {}
        name, args = params.get("name"), params.get("arguments")
        if find is None or not isinstance(name, str) or not isinstance(args, dict | None):
            return False
        if not args and not any(key.startswith(_PARAM) for key in headers):
            return True
        try:
            schema = find(name)
        except Exception:
            return False  # the SDK asks again, says why not, and goes on
        return schema is None or validate_mcp_param_headers(schema, cast("JSONDict", args or {}), headers) is None


class _Call:
    """One call, and how far its answer is; the SDK's `DispatchContext` of it."""

    def __init__(self, request: Request, asked: JSONRPCRequest, route: InboundModernRoute) -> None:
        self._asked = asked
        self._route = route
        self.transport = TransportContext(kind="streamable-http", can_send_request=False, headers=request.headers)
        self.request_id: RequestId = asked.id
        self.message_metadata = ServerMessageMetadata(request_context=request)
        self.progress_token: ProgressToken | None = progress_token_from_params(asked.params)
        self.cancel_requested = anyio.Event()
        self.can_send_request = False
        self._is_stream = False
        self._is_over = False
        self._is_gone = False
        self._speaking = asyncio.Lock()

    async def answer(self, lowlevel: Server[Any], receive: Receive, send: Send) -> None:
        """Make the call, and send its answer; nothing where the client is gone by then."""
        self._send = send
        task = asyncio.current_task()
        assert task is not None
        loop, before = task.get_loop(), task.cancelling()
        attending: list[asyncio.Task[None]] = []

        def attend() -> None:
            attending.append(loop.create_task(self._attend(receive, task)))

        timer = loop.call_later(_MOMENT, attend)
        try:
            answer = await self._made(lowlevel)
        except asyncio.CancelledError:
            if self._is_gone and task.uncancel() <= before:
                return
            raise
        finally:
            timer.cancel()
            for each in attending:
                each.cancel()
        async with self._speaking:
            self._is_over = True
            await self._finish(*answer)
        if attending:
            await asyncio.wait(attending)

    async def _made(self, lowlevel: Server[Any]) -> tuple[JSONDict, int]:
        """Make the call, and return its answer with the status that this has over HTTP."""
        asked, route = self._asked, self._route
        connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
        try:
            result = await ServerRunner(lowlevel, connection, {}).on_request(self, asked.method, asked.params)
            return {"jsonrpc": "2.0", "id": asked.id, "result": result}, 200
        except Exception as error:
            failed = JSONRPCError(jsonrpc="2.0", id=asked.id, error=modern_error_data(error))
            answer = failed.model_dump(mode="json", by_alias=True, exclude_none=True)
            return answer, ERROR_CODE_HTTP_STATUS.get(failed.error.code, 200)
        finally:
            try:
                await connection.exit_stack.aclose()  # nothing of this server waits in there
            except Exception:
                logger.exception("the end of a request has failed")

    async def _attend(self, receive: Receive, call: asyncio.Task[Any]) -> None:
        """End the call when its client is gone, and say from time to time that it goes on."""
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            while not (await asyncio.wait([gone], timeout=_PING))[0]:
                await self._say(b": ping\r\n\r\n")
            self._is_gone = True
            call.cancel()
        finally:
            gone.cancel()

    async def _say(self, event: bytes) -> None:
        async with self._speaking:
            if self._is_over:
                return
            if not self._is_stream:
                await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM})
                self._is_stream = True
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def _finish(self, answer: JSONDict, status: int) -> None:
        text = json.dumps(answer, separators=(",", ":"))
        if self._is_stream:
            await self._send({"type": "http.response.body", "body": _event(text), "more_body": False})
            return
        body = text.encode()
        headers = [(b"content-length", b"%d" % len(body)), *_JSON]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    # -- what the SDK asks for ----------------------------------------------------------------------------------

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> JSONDict:
        """Raise NoBackChannelError: a client of this era cannot be asked on its request."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send the client a notification, until it has its answer."""
        note = JSONRPCNotification(jsonrpc="2.0", method=method, params=None if params is None else dict(params))
        body = note.model_dump(mode="json", by_alias=True, exclude_none=True)
        await self._say(_event(json.dumps(body, separators=(",", ":"))))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report to the client how far the call is, where it asked for that."""
        if self.progress_token is None:
            return
        known = {"total": total, "message": message}
        params = {"progressToken": self.progress_token, "progress": progress}
        await self.notify(
            "notifications/progress", {**params, **{name: value for name, value in known.items() if value is not None}}
        )


def _event(text: str) -> bytes:
    return f"event: message\r\ndata: {text}\r\n\r\n".encode()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@lru_cache(maxsize=64)
def _takes_both(accept: str) -> bool:
    """Return whether the client takes an answer as JSON and as a stream, as it has to."""
    headers = [(b"accept", accept.encode("latin-1"))]
    return all(check_accept_headers(Request({"type": "http", "headers": headers})))


def _again(message: Message, receive: Receive) -> Receive:
    waiting = [message]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again
