"""One request of code and its response, passed on with secrets put in, and taken out again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from toolexec.process.settling import retrieve
from toolexec.runtime.egress.hiding import Compressed, Mask
from toolexec.runtime.egress.policy import Egress
from toolexec.runtime.egress.request import ParsedRequest, RefusedError, end_to_end, values
from toolexec.runtime.egress.secrets import KnownSecrets, Masked, SecretNotThereError, Swap
from toolexec.runtime.egress.upstream import Upstream, reason_of
from toolexec.runtime.egress.wire import Wire, require_h11

if TYPE_CHECKING:
    import h11

_MOST_SWAPPED: Final = 1 << 20
_REFUSED_METHODS: Final = (b"TRACE", b"CONNECT")
_OURS: Final = frozenset({b"host", b"expect", b"content-length", b"accept-encoding"})
_PARTIAL: Final = frozenset({b"range", b"if-range"})
_NOT_BACK: Final = frozenset({b"alt-svc", b"content-encoding", b"content-length"})
_ENCODED: Final = "the host has encoded its response although it was asked not to"


class BrokenError(Exception):
    """A response that has begun cannot be brought to its end; the text says why."""


class Exchange:
    """Passes one request on. `status`, `sent` and `received` say how far it came."""

    def __init__(self, policy: Egress, client: Wire, upstream: Upstream, swap: Swap, known: KnownSecrets) -> None:
        self._policy = policy
        self._client = client
        self._upstream = upstream
        self._swap = swap
        self._known = known
        self._method = b""
        self._whole: Callable[[], None] = lambda: None
        self.status: int = 0
        self.sent: int = 0
        self.received: int = 0

    async def run(self, request: h11.Request, asked: ParsedRequest, whole: Callable[[], None]) -> None:
        """Answer *request* with what the host answers. *whole* is called just before the code has all of it.

        Raises RefusedError as long as nothing has been answered, and then BrokenError.
        """
        h11 = require_h11()
        _check(request, self._policy)
        self._method = request.method
        self._whole = whole
        try:
            head, body = await self._prepared(request, asked)
        except SecretNotThereError as error:
            raise RefusedError(502, str(error)) from error
        server = await self._upstream.open(asked.origin)
        try:
            await server.send(head)
            uploading = asyncio.create_task(self._upload(server, body))
            try:
                await self._respond(server, uploading)
            finally:
                uploading.cancel()
                await asyncio.wait({uploading})
                retrieve(uploading)
        except (OSError, TimeoutError, h11.ProtocolError) as error:
            await self._upstream.aclose()
            self._fail(f"the connection to {asked.origin.host} broke: {reason_of(error)}", error)
        except BaseException:
            await self._upstream.aclose()
            raise

    def _fail(self, why: str, cause: BaseException) -> None:
        if self.status:
            raise BrokenError(why) from cause
        raise RefusedError(504 if isinstance(cause, TimeoutError) else 502, why) from cause

    async def _prepared(self, request: h11.Request, asked: ParsedRequest) -> tuple[h11.Request, bytes | None]:
        """Return the request as it goes on, and its body if that had to be looked at."""
        h11 = require_h11()
        swap = self._swap
        headers = [(b"host", asked.origin.authority.encode())]
        for name, value in end_to_end(request.headers):
            if name not in _OURS:
                found = await swap.header(name.decode("ascii"), value.decode("latin-1"))
                headers.append((name, found.encode("latin-1")))
        target = await swap.url(asked.target)
        length = values(request.headers, b"content-length")
        chunked = bool(values(request.headers, b"transfer-encoding"))
        body = None
        if swap.wants_body and (chunked or length):
            kind = b"".join(values(request.headers, b"content-type")).decode("latin-1")
            body = await swap.body(await self._whole_body(), kind)
            length, chunked = [str(len(body)).encode()], False
        if swap.swapped:  # a part of what comes back could be a part of the secret
            headers = [(name, value) for name, value in headers if name not in _PARTIAL]
        if self._policy.secrets:
            headers.append((b"accept-encoding", b"identity"))
        else:
            headers += [(b"accept-encoding", value) for value in values(request.headers, b"accept-encoding")]
        headers += [(b"content-length", value) for value in length]
        if chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        return h11.Request(method=request.method, target=target, headers=headers), body

    async def _whole_body(self) -> bytes:
        h11 = require_h11()
        parts: list[bytes] = []
        await self._let_go_on()
        while isinstance(event := await self._client.next(self._policy.idle_seconds), h11.Data):
            parts.append(bytes(event.data))
            self.sent += len(event.data)
            if self.sent > _MOST_SWAPPED:
                raise RefusedError(413, "a body that a secret may have to be put into can have 1 MiB at most")
        return b"".join(parts)

    async def _let_go_on(self) -> None:
        """Ask a client that waits for "100 Continue" to send the body."""
        h11 = require_h11()
        if self._client.state.they_are_waiting_for_100_continue:
            await self._client.send(h11.InformationalResponse(status_code=100, headers=[]))

    async def _upload(self, server: Wire, body: bytes | None) -> None:
        h11 = require_h11()
        if body is not None:
            await server.send(h11.Data(data=body), h11.EndOfMessage())
            return
        await self._let_go_on()
        while isinstance(event := await self._client.next(self._policy.idle_seconds), h11.Data):
            self.sent += len(event.data)
            if self.sent > self._policy.max_request_bytes:
                raise RefusedError(413, f"the body is over {self._policy.max_request_bytes} bytes")
            await server.send(h11.Data(data=event.data))
        if not isinstance(event, h11.EndOfMessage):
            raise OSError("the code hung up")
        await server.send(h11.EndOfMessage())

    async def _respond(self, server: Wire, uploading: asyncio.Task[None]) -> None:
        h11 = require_h11()
        head = await self._head(server, uploading)
        mask = self._known.mask()
        response = self._response(head, mask)
        self.status = head.status_code
        await self._client.send(response)
        body = _Body(self._policy, self._known, head)
        while isinstance(event := await server.next(self._policy.idle_seconds), h11.Data):
            self.received += len(event.data)
            if self.received > self._policy.max_response_bytes:
                raise BrokenError(f"the response is over {self._policy.max_response_bytes} bytes")
            data = await body.feed(bytes(event.data))
            if data:
                await self._client.send(h11.Data(data=data))
        if not isinstance(event, h11.EndOfMessage):
            raise OSError("it hung up")
        self._whole()
        await self._client.send(h11.Data(data=body.finish()), h11.EndOfMessage())

    async def _head(self, server: Wire, uploading: asyncio.Task[None]) -> Any:
        """Return the head of the final response, which may come before all of the request is sent."""
        h11 = require_h11()
        reading = asyncio.create_task(self._final(server, uploading))
        try:
            await asyncio.wait({reading, uploading}, return_when=asyncio.FIRST_COMPLETED)
            if uploading.done() and not reading.done() and (error := uploading.exception()) is not None:
                if isinstance(error, RefusedError):
                    raise error
                if not isinstance(error, OSError):
                    raise error
                await asyncio.wait({reading}, timeout=1)  # a server that hangs up may have said why
                if not reading.done():
                    raise error
            event = await reading
        finally:
            reading.cancel()
            await asyncio.wait({reading})
        if not isinstance(event, h11.Response):
            raise OSError("it hung up without a response" if isinstance(event, h11.ConnectionClosed) else "no response")
        return event

    async def _final(self, server: Wire, uploading: asyncio.Task[None]) -> Any:
        """As long as the request is on its way the server need not say anything."""
        h11 = require_h11()
        while True:
            try:
                event = await server.next(self._policy.idle_seconds)
            except TimeoutError:
                if uploading.done():
                    raise
                continue
            if not isinstance(event, h11.InformationalResponse):
                return event
            if event.status_code == 101:
                raise RefusedError(502, "the host changes to another protocol, which is not passed on")

    def _response(self, head: h11.Response, mask: Mask) -> h11.Response:
        h11 = require_h11()
        coding = _coding(head)
        if mask and coding not in (b"", b"identity"):
            raise RefusedError(502, _ENCODED)
        length = values(head.headers, b"content-length")
        without_body = self._method == b"HEAD" or head.status_code in (204, 304)
        if length and int(length[0]) > self._policy.max_response_bytes and not without_body:
            raise RefusedError(502, f"the response is over {self._policy.max_response_bytes} bytes")
        headers = [
            (mask.hide(name), mask.hide(value))
            for name, value in end_to_end(head.headers)
            if name.lower() not in _NOT_BACK
        ]
        headers += [(b"content-length", value) for value in length[:1]]
        if coding:
            headers.append((b"content-encoding", coding))
        return h11.Response(status_code=head.status_code, reason=mask.hide(head.reason), headers=headers)


class _Body:
    """The body of a response, without secrets."""

    def __init__(self, policy: Egress, known: KnownSecrets, head: h11.Response) -> None:
        self._most = policy.max_response_bytes
        self._known = known
        self._encoded = _coding(head) not in (b"", b"identity")
        self._masked = Masked(known)
        self._inside = Compressed() if policy.secrets and not self._encoded else None
        self._held = b""

    async def feed(self, data: bytes) -> bytes:
        """Return what can be passed on after one more part. Raises BrokenError."""
        if self._encoded and self._known.mask():  # a secret that was used only since this response began
            raise BrokenError(_ENCODED)
        self._held += self._masked.feed(data)
        if self._inside:
            self._inside.feed(data)
            await self._look_inside(self._inside)
            if self._inside.open:
                return b""
        passed, self._held = self._held, b""
        return passed

    def finish(self) -> bytes:
        """Return what is left when there are no more parts."""
        return self._held + self._masked.finish()

    async def _look_inside(self, inside: Compressed) -> None:
        more = True
        while more:
            found, more = inside.look(self._known.mask())
            if found:
                raise BrokenError("the response has a secret in it, in compressed form")
            if inside.size > self._most:
                raise BrokenError(f"the response is over {self._most} bytes when it is decompressed")
            if more:
                await asyncio.sleep(0)  # others have their turn while a large one is looked at


def _coding(head: h11.Response) -> bytes:
    return b",".join(values(head.headers, b"content-encoding")).strip().lower()


def _check(request: h11.Request, policy: Egress) -> None:
    """Raises RefusedError for what is not passed on wherever it goes."""
    if request.http_version not in (b"1.0", b"1.1"):
        raise RefusedError(505, "only HTTP/1.1 is passed on")
    if request.method in _REFUSED_METHODS:
        raise RefusedError(405, f"{request.method.decode()} is not passed on")
    if any(b"websocket" in value.lower() for value in values(request.headers, b"upgrade")):
        raise RefusedError(501, "websockets are not passed on")
    length = values(request.headers, b"content-length")
    if length and values(request.headers, b"transfer-encoding"):
        raise RefusedError(400, "the request says twice where its body ends")
    if length and int(length[0]) > policy.max_request_bytes:
        raise RefusedError(413, f"the body is over {policy.max_request_bytes} bytes")
