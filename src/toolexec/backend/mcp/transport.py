"""Open the transport that a server's configuration asks for, and notice what becomes of it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Self, cast

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from opentelemetry.propagate import inject

from toolexec.backend.catalog import AT_ONCE
from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.mcp.listing import screen_tools
from toolexec.backend.mcp.login import KnownSecrets, send_with_login
from toolexec.backend.mcp.plain_calls import PlainCalls
from toolexec.backend.mcp.sdk_streams import ReadStream
from toolexec.backend.mcp.tasks import wrap_task
from toolexec.errors.outcome import Outcome
from toolexec.model.json_value import JSONDict
from toolexec.net.default_tls import default_tls
from toolexec.net.oauth.session import OAuthSession
from toolexec.net.outcomes import outcome_of_status, retry_after

_MAX_EVENT = 64 << 20
_CONNECT_SECONDS = 30.0
_ACCEPTED = 202


class Wire:
    """What one attempt to connect has seen of its transport.

    `lost` is set when the server's side has ended. `status` is the last HTTP status that was an error. `probing` is
    true from the question for the modern protocol until its answer; `ignores_probe` after it had none in time.
    `faults` says what is wrong with invalid listed tools, by name. Once the connection is over, `ended` is set and
    `reason` says why; `too_long` is how many bytes a message may have, where a longer one was the reason. `calls` makes
    calls past the SDK's client, for servers that are commands.
    """

    def __init__(self) -> None:
        self.lost: asyncio.Event = asyncio.Event()
        self.status: int | None = None
        self.probing = False
        self.ignores_probe = False
        self.faults: dict[str, str] = {}
        self.ended: asyncio.Event = asyncio.Event()
        self.reason = ""
        self.too_long = 0
        self.calls: PlainCalls | None = None


class Delivery:
    """What became of one call's HTTP request.

    `refused` is set when the server certainly did not act on it, and it can be sent again. `outcome` is what the status
    of the response says, None before there is one. Both are final once something may have been done, so that no later
    request of the same call changes them: a task is asked for by many. `status` and `wait` are of the same response:
    its status, and the seconds that it asks to wait. `is_rpc` says that it is a success whose body is the answer, or
    that the answer comes on another stream (*elsewhere*).
    """

    def __init__(self) -> None:
        self.refused = False
        self.outcome: Outcome | None = None
        self.status = 0
        self.wait: float | None = None
        self.is_rpc = False

    @property
    def has_arrived(self) -> bool:
        """Whether a response says that something may have been done."""
        return self.outcome is not None and not self.outcome.is_undone

    def refuse(self) -> None:
        """Note that the server did not act on a request of the call."""
        self.refused = not self.has_arrived

    def details(self) -> JSONDict:
        """Return what an error says of the response."""
        return {"status": self.status, **({"retry_after": self.wait} if self.wait is not None else {})}

    def note(self, response: httpx2.Response, *, elsewhere: bool) -> None:
        """Note the response to a POST."""
        if self.has_arrived:
            return
        self.status = response.status_code
        self.outcome = outcome_of_status(self.status, response.headers)
        self.wait = retry_after(response.headers)
        media = response.headers.get("content-type", "").lower()
        answers = self.status != _ACCEPTED and media.startswith(("application/json", "text/event-stream"))
        self.is_rpc = response.is_success and (answers or elsewhere)


delivery: ContextVar[Delivery | None] = ContextVar("toolexec_mcp_delivery", default=None)
"""The SDK posts a call's request in the context of the caller; this is how the HTTP client knows whose it is."""


class WatchedTransport:
    """Any transport of the SDK, reporting to a wire.

    A server of the older protocol may never answer the SDK's opening question; after *patience* seconds the transport
    itself answers it with "method not found", which makes the SDK go on with the older handshake. None: nothing will be
    asked. Whatever the server says comes without what *scrubber* knows.
    """

    def __init__(self, inner: Any, wire: Wire, patience: float | None, scrubber: KnownSecrets) -> None:
        self._inner = inner
        self._scrubber = scrubber
        self._wire = wire
        self._patience = patience

    async def __aenter__(self) -> Any:
        incoming, outgoing = await self._inner.__aenter__()
        receiver = _Receiver(incoming, self._wire, self._scrubber, connected=self._patience is None)
        sender = outgoing if self._patience is None else _Sender(outgoing, receiver, self._patience)
        self._wire.calls = PlainCalls(sender)
        return receiver, sender

    async def __aexit__(self, *exc: object) -> Any:
        if self._wire.calls is not None:
            self._wire.calls.end()
        return await self._inner.__aexit__(*exc)


class _Receiver(ReadStream[Any]):
    """A read stream that reports its end, and answers the opening question when the server does not."""

    def __init__(self, inner: Any, wire: Wire, scrubber: KnownSecrets, *, connected: bool) -> None:
        self._inner = inner
        self._scrubber = scrubber
        self._wire = wire
        self._connected = connected
        self._probe: RequestId | None = None
        self._scope: anyio.CancelScope | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    def expect_answer(self, request_id: RequestId, patience: float) -> None:
        """Note that the opening question goes out now."""
        self._probe, self._wire.probing = request_id, True
        self._timer = asyncio.get_running_loop().call_later(patience, self._give_up)

    def _give_up(self) -> None:
        self._wire.ignores_probe = True
        if self._scope is not None:
            self._scope.cancel()

    def _settle(self) -> None:
        self._connected = True
        self._probe, self._wire.probing = None, False
        if self._timer is not None:
            self._timer.cancel()

    async def receive(self) -> Any:
        if self._connected:
            while self._is_taken(item := await self._receive()):
                pass
            return item
        with anyio.CancelScope() as self._scope:
            if self._wire.ignores_probe:
                self._scope.cancel()
            item = await self._receive()
            message = item.message if isinstance(item, SessionMessage) else None
            if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id in (self._probe, None):
                self._settle()
            return item
        assert self._probe is not None
        error = ErrorData(code=METHOD_NOT_FOUND, message="no answer")
        answer = SessionMessage(JSONRPCError(jsonrpc="2.0", id=self._probe, error=error))
        self._settle()
        return answer

    def _is_taken(self, item: Any) -> bool:
        calls = self._wire.calls
        return calls is not None and isinstance(item, SessionMessage) and calls.take(item.message)

    async def _receive(self) -> Any:
        try:
            item = await self._inner.receive()
            if self._scrubber:
                item = _without_secrets(item, self._scrubber)
            message = item.message if isinstance(item, SessionMessage) else None
            if isinstance(message, JSONRPCResponse):
                if "tools" in message.result:
                    self._wire.faults |= await _screened(message.result)
                elif "task" in message.result:
                    wrap_task(message.result)
            return item
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._wire.lost.set()
            if self._wire.calls is not None:
                self._wire.calls.end()
            raise

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._inner.aclose()


async def _screened(result: JSONDict) -> dict[str, str]:
    """Screen the tools of a page; those of a long one outside of the event loop."""
    tools = result["tools"]
    if isinstance(tools, list) and len(cast("list[object]", tools)) > AT_ONCE:
        return await asyncio.to_thread(screen_tools, result)
    return screen_tools(result)


def _without_secrets(item: Any, scrubber: KnownSecrets) -> Any:
    """Return a message, in place, without secrets; an exception in its place is named only by its type."""
    if not isinstance(item, SessionMessage):
        return ConnectionError(f"the transport failed with {type(item).__name__}")
    message = item.message
    if isinstance(message, JSONRPCResponse):
        message.result = scrubber.value(message.result)
    elif isinstance(message, JSONRPCError):
        error = message.error
        if error.code == PARSE_ERROR:  # the SDK's own words quote the first and the last characters of a reply
            error = ErrorData(code=PARSE_ERROR, message="the server sent a reply that does not follow JSON-RPC")
        message.error = ErrorData(
            code=error.code, message=scrubber.text(error.message), data=scrubber.value(error.data)
        )
    elif message.params:
        message.params = scrubber.value(message.params)
    return item


class _Sender:
    """A write stream that sees the opening question go out."""

    def __init__(self, inner: Any, receiver: _Receiver, patience: float) -> None:
        self._inner = inner
        self._receiver = receiver
        self._patience = patience

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest) and message.method == "server/discover":
            self._receiver.expect_answer(message.id, self._patience)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class _HttpClient(httpx2.AsyncClient):
    """Reports to the wire and the call in question what the SDK keeps to itself.

    An answer may take as long as it likes: how long a call may take is for its caller to say. A request that is made
    within a trace carries that trace in its headers, as its message does in `_meta`.
    """

    def __init__(
        self,
        wire: Wire,
        headers: dict[str, str],
        tls: ssl.SSLContext,
        login: OAuthSession | None = None,
        *,
        sse: bool = False,
    ) -> None:
        headers = {"accept-encoding": "identity", **headers}  # so that its size is known before it is unpacked
        super().__init__(headers=headers, timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None), verify=tls)
        self._wire = wire
        self._login = login
        self._sse = sse

    async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:
        inject(request.headers)
        send = partial(self._send_once, **settings)
        response = await send(request) if self._login is None else await send_with_login(self._login, request, send)
        call = delivery.get()
        if call is not None and request.method == "POST":
            call.note(response, elsewhere=self._sse)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream))
        if response.status_code >= 400:
            self._wire.status = response.status_code
        # After a POST without success the SDK's SSE client sends nothing more, and reports no error.
        if request.method == "POST" and (not response.is_success if self._sse else await _session_is_gone(response)):
            self._lose(refused=outcome_of_status(response.status_code, response.headers).is_undone)
        return response

    async def _send_once(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:
        try:
            return await super().send(request, **settings)
        except httpx2.TransportError as error:
            refused = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            if not refused and request.method == "POST" and delivery.get() is None:
                # A server may close a kept connection just when it is used again. All but calls can be sent twice.
                return await super().send(request, **settings)
            if refused or (self._sse and request.method == "POST"):
                self._lose(refused=refused)
            raise

    def _lose(self, *, refused: bool) -> None:
        self._wire.lost.set()
        call = delivery.get()
        if call is not None and refused:
            call.refuse()


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response that is not a stream of events, up to the size that one event may have."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = _MAX_EVENT
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"a response of more than {_MAX_EVENT} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _session_is_gone(response: httpx2.Response) -> bool:
    """Return whether the server has forgotten our session: it should answer 404, and many answer 400 and name the
    session."""
    if not response.request.headers.get(MCP_SESSION_ID) or response.status_code not in (400, 404):
        return False
    return response.status_code == 404 or b"session" in (await response.aread())[:2000].lower()


@asynccontextmanager
async def open_http(server: MCPServer, wire: Wire, login: OAuthSession | None = None) -> AsyncGenerator[Any, None]:
    """Streamable HTTP."""
    async with (
        _HttpClient(wire, dict(server.headers), await default_tls(), login) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=_MAX_EVENT) as streams,
    ):
        yield streams


@asynccontextmanager
async def open_sse(server: MCPServer, wire: Wire, login: OAuthSession | None = None) -> AsyncGenerator[Any, None]:
    """Yield the older HTTP+SSE transport; the SDK takes messages of at most 1 MiB over it."""

    tls = await default_tls()

    def make_client(*_: Any, **__: Any) -> httpx2.AsyncClient:
        return _HttpClient(wire, dict(server.headers), tls, login, sse=True)

    async with sse_client(server.url, httpx_client_factory=make_client) as streams:
        yield streams
