"""A client of an MCP server in this very process: JSON-RPC messages as mappings, without any transport."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.shared.memory import MessageStream, create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from toolexec.model.json_value import JSONDict

logger: logging.Logger = logging.getLogger(__name__)
_GRACE = 2.0
_CANCELLED = "notifications/cancelled"
_ENDED = "the server has ended"


class InProcessClient:
    """Takes messages for *server* and gives its answers; any number at the same time.

    Messages of both eras are understood. A handshake is not needed: without one, the server sees a client without
    capabilities. Each `initialize` begins a new conversation. The server's own messages (notices, questions) are
    dropped, as there is no receiver.
    """

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._handshake: _Conversation | None = None
        self._modern: _Conversation | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    async def send(self, message: Any) -> JSONDict | None:
        """Return the answer to a request, with its ID, or None. What is not a JSON-RPC message is answered
        with an invalid-request error.
        """
        try:
            read = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except (ValidationError, RecursionError):
            read = None
        if read is None or (isinstance(read, JSONRPCNotification) and "id" in message):  # an invalid ID
            return _failure(_id_of(message), INVALID_REQUEST, "Invalid Request: this is not JSON-RPC 2.0 message")
        if isinstance(read, JSONRPCResponse | JSONRPCError):
            return None  # it answers nothing that was asked
        if self._closed:
            request_id = read.id if isinstance(read, JSONRPCRequest) else None
            return _failure(request_id, INTERNAL_ERROR, "the server is closed") if request_id is not None else None
        conversation = await self._conversation(read)
        return await conversation.send(read)

    async def _conversation(self, message: JSONRPCRequest | JSONRPCNotification) -> _Conversation:
        """Return the one that the message belongs to, begun if need be."""
        async with self._lock:
            if message.method == "initialize":
                if self._handshake is not None:
                    await self._handshake.aclose()
                self._handshake = _Conversation(self._server)
                return self._handshake
            if _is_modern(message) or (self._modern is not None and self._modern.knows(message)):
                if self._modern is None or self._modern.over:
                    self._modern = _Conversation(self._server)
                return self._modern
            if self._handshake is None or self._handshake.over:
                self._handshake = _Conversation(self._server)
                await _shake_hands(self._handshake)
            return self._handshake

    async def aclose(self) -> None:
        """End all conversations; what is under way is stopped."""
        self._closed = True
        async with self._lock:
            for conversation in (self._handshake, self._modern):
                if conversation is not None:
                    await conversation.aclose()


async def _shake_hands(conversation: _Conversation) -> None:
    params = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "in-process", "version": "0"},
    }
    await conversation.send(JSONRPCRequest(jsonrpc="2.0", id=0, method="initialize", params=params))
    await conversation.send(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"))


class _Conversation:
    """One connection to the server, over streams in memory."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._waiting: dict[str | int, asyncio.Future[JSONRPCResponse | JSONRPCError]] = {}
        self._own_ids: dict[str | int, str | int] = {}
        self._ready: asyncio.Future[MessageStream] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live())

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    def knows(self, message: JSONRPCRequest | JSONRPCNotification) -> bool:
        """Return whether it cancels a request that is under way here."""
        return message.method == _CANCELLED and (message.params or {}).get("requestId") in self._own_ids

    async def send(self, message: JSONRPCRequest | JSONRPCNotification) -> JSONDict | None:
        """Pass a message on, and give the answer if it is a request."""
        await asyncio.wait([self._ready])
        is_request = isinstance(message, JSONRPCRequest)
        if self._ready.cancelled():
            return _failure(message.id, INTERNAL_ERROR, _ENDED) if is_request else None
        write = self._ready.result()[1]
        if not is_request:
            await self._pass(write, self._with_own_id(message))
            return None
        own = next(self._numbers)  # callers may use one ID twice
        self._own_ids[message.id] = own
        answer = self._waiting[own] = asyncio.get_running_loop().create_future()
        try:
            if not await self._pass(write, message.model_copy(update={"id": own})):
                return _failure(message.id, INTERNAL_ERROR, _ENDED)
            reply = await answer
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await self._pass(write, _cancellation(own))
            raise
        finally:
            self._waiting.pop(own, None)
            if self._own_ids.get(message.id) == own:
                del self._own_ids[message.id]
        if isinstance(reply, JSONRPCResponse):
            return {"jsonrpc": "2.0", "id": message.id, "result": reply.result}
        error = reply.error.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {"jsonrpc": "2.0", "id": message.id, "error": error}

    async def aclose(self) -> None:
        """End it; requests that are under way are answered with an error."""
        if self._ready.done() and not self._ready.cancelled():
            await self._ready.result()[1].aclose()
            await asyncio.wait([self._task], timeout=_GRACE)
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _live(self) -> None:
        try:
            async with create_client_server_memory_streams() as (client, server):
                self._ready.set_result(client)
                serving = asyncio.create_task(
                    self._server.run(server[0], server[1], self._server.create_initialization_options())
                )
                hearing = asyncio.create_task(self._hear(client))
                try:
                    await asyncio.wait([hearing, serving], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    await client[1].aclose()
                    await asyncio.wait([serving], timeout=_GRACE)
                    for task in (hearing, serving):
                        task.cancel()
                    await asyncio.wait([hearing, serving])
                    if not serving.cancelled() and serving.exception() is not None:
                        logger.error("the server has failed", exc_info=serving.exception())
        finally:
            self._ready.cancel()
            for answer in self._waiting.values():
                if not answer.done():
                    error = ErrorData(code=INTERNAL_ERROR, message=_ENDED)
                    answer.set_result(JSONRPCError(jsonrpc="2.0", id=None, error=error))

    async def _hear(self, client: MessageStream) -> None:
        """Take what the server says until it ends."""
        read, write = client
        async for item in read:
            if not isinstance(item, SessionMessage):
                continue
            message = item.message
            if isinstance(message, JSONRPCRequest):  # there is no user to ask
                error = ErrorData(code=METHOD_NOT_FOUND, message="Method not found")
                await self._pass(write, JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
            elif isinstance(message, JSONRPCResponse | JSONRPCError):
                answer = self._waiting.get(message.id) if message.id is not None else None
                if answer is not None and not answer.done():
                    answer.set_result(message)

    async def _pass(self, write: Any, message: JSONRPCMessage) -> bool:
        try:
            await write.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    def _with_own_id(self, message: JSONRPCNotification) -> JSONRPCNotification:
        """Return the message; a cancellation with the ID that the server knows the request by."""
        params = message.params
        if message.method != _CANCELLED or not params:
            return message
        own = self._own_ids.get(params.get("requestId", ""))
        return message.model_copy(update={"params": {**params, "requestId": own}}) if own is not None else message


def _cancellation(own: int) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method=_CANCELLED, params={"requestId": own})


def _is_modern(message: JSONRPCRequest | JSONRPCNotification) -> bool:
    """Return whether the message says all about itself, as those of the era without a handshake do."""
    meta = (message.params or {}).get("_meta")
    return isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta


def _id_of(message: Any) -> str | int | None:
    found = message.get("id") if isinstance(message, Mapping) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def _failure(request_id: str | int | None, code: int, message: str) -> JSONDict:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
