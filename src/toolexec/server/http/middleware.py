"""What every request over HTTP passes: it is counted and logged, and checked by its headers and by its body.

`Requests` is outermost. Inside of it `Guard` looks at the headers and at where the request comes from, which stops DNS
rebinding and hostile pages; `SeatClaims` comes after the caller is known, and then the limits of the body (`bodies`).
"""

from __future__ import annotations

import logging
import traceback
from time import monotonic, perf_counter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolexec.model.origin import Caller
from toolexec.model.redaction import redactor
from toolexec.model.shares import NoShareError
from toolexec.server.auth.credentials import CALLER
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.replies import (
    Refuse,
    header,
    is_loopback,
    is_stream,
    owner_of,
    peer_of,
    refuse,
    reply,
    split_host,
)
from toolexec.server.http.seats import STATE, Seat
from toolexec.server.http.settings import HttpSettings
from toolexec.server.logins.links import without_link

if TYPE_CHECKING:
    from toolexec.server.http.metrics import Metrics

access: logging.Logger = logging.getLogger("toolexec.server.http.access")
logger: logging.Logger = logging.getLogger(__name__)

_METHODS = "GET, POST, DELETE"
_HEADERS = (
    "accept, authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, "
    "mcp-session-id, x-api-key"
)
_EXPOSED = "mcp-session-id, www-authenticate, retry-after"


class BrokenOffError(Exception):
    """An answer cannot be finished; the connection has to be closed."""


class Requests:
    """The outermost part of the server: what is wrong inside never shows outside.

    Each request is logged at level INFO (logger `toolexec.server.http.access`) with its method, path and status, how
    long it took and who sent it; never with its query, its headers or a login link. What the inside raises is logged
    without secrets, and the client reads of an internal error.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._running: dict[anyio.CancelScope, bool] = {}
        self._stopping = False
        self._idle = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        answer = _Answer(send)
        if self._stopping:
            await refuse(answer.send, 503, "the server is stopping", [("retry-after", "5")])
            return
        began = perf_counter()
        limit = anyio.CancelScope()
        self._running[limit] = is_stream(scope)
        try:
            with limit:
                await self._app(scope, receive, answer.send)
            await answer.finish()
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            logger.error("a request failed inside the server:\n%s", redactor.text(text))
            if answer.status:
                raise BrokenOffError("the answer was broken off") from None
            await refuse(answer.send, 500, "internal error")
        finally:
            del self._running[limit]
            if not self._running:
                self._idle.set()
            self._note(scope, answer.status, perf_counter() - began)

    async def drain(self, grace: float) -> None:
        """Take no more requests, end streams at once, and everything else after *grace* seconds."""
        self._stopping = True
        self._cancel(streams_only=True)
        with anyio.move_on_after(grace):
            await self._until_idle()
        self._cancel(streams_only=False)
        with anyio.move_on_after(1):
            await self._until_idle()

    async def _until_idle(self) -> None:
        while self._running:
            self._idle = anyio.Event()
            await self._idle.wait()

    def _cancel(self, *, streams_only: bool) -> None:
        for limit, stream in [*self._running.items()]:
            if stream or not streams_only:
                limit.cancel()

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        if self._metrics is not None:
            self._metrics.answered(scope["method"], status, seconds)
        if access.isEnabledFor(logging.INFO):
            caller = scope.get(CALLER)
            who = caller.id if isinstance(caller, Caller) and caller.id else "-"
            path = repr(without_link(scope["path"])[:200])
            milliseconds = seconds * 1000
            access.info("%s %s %s %s %d %.1f ms", peer_of(scope), who, scope["method"], path, status, milliseconds)


class _Answer:
    """What is sent to the client, and how far that is."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self._complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", []), (b"x-content-type-options", b"nosniff")]}
        elif message["type"] == "http.response.body":
            self._complete = not message.get("more_body", False)
        await self._send(message)

    async def finish(self) -> None:
        """End an answer that was not, because the server stops or the caller's proof has expired."""
        if not self.status:
            await refuse(self.send, 503, "the request was ended before it was answered", [("retry-after", "5")])
        elif not self._complete:
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})


class Guard:
    """Refuses requests for another host (421) and from web pages that are not allowed (403), on every path; and
    headers that are too long (431) or give two lengths of the body (400).

    The origins in `allowed_origins` get the headers that browsers want to see; no others do. *on_refusal* receives
    the reason in one word.
    """

    def __init__(self, app: ASGIApp, http: HttpSettings, auth: AuthSettings, *, on_refusal: Refuse) -> None:
        self._app = app
        self._tell = on_refusal
        self._local = not http.public
        self._most = http.max_header_bytes
        named = [found for found in map(split_host, http.allowed_hosts) if found is not None]
        if auth.resource_url:
            named.append(((urlsplit(auth.resource_url).hostname or "").lower(), None))
        if is_loopback(http.host) or not named:
            named.append((http.host.strip("[]").lower(), None))
        self._any_port = {name for name, port in named if port is None}
        self._exact = {(name, port) for name, port in named if port is not None}
        self._origins = frozenset(origin.lower() for origin in http.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._most:
            self._tell("header_size")
            await refuse(send, 431, f"the headers are longer than {self._most} bytes")
            return
        if header(scope, b"transfer-encoding") is not None and header(scope, b"content-length") is not None:
            self._tell("framing")  # a proxy in front may have read another length out of it
            await refuse(send, 400, "a request has either content-length or transfer-encoding")
            return
        host = split_host(header(scope, b"host") or "")
        if host is None or not self._is_ours(host):
            self._tell("host")
            await refuse(send, 421, "this server is not known under that Host; see allowed_hosts")
            return
        origins = [value.decode("latin-1").lower() for key, value in scope["headers"] if key == b"origin"]
        if not origins:
            await self._app(scope, receive, send)
            return
        listed = len(origins) == 1 and origins[0] in self._origins
        if not listed and not (len(origins) == 1 and self._is_near(origins[0], host)):
            self._tell("origin")
            await refuse(send, 403, "web pages of that Origin may not use this server; see allowed_origins")
            return
        if not listed:
            await self._app(scope, receive, send)
            return
        if scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method") is not None:
            await _preflight(scope, send, origins[0])
            return
        await self._app(scope, receive, _with_origin(send, origins[0]))

    def _is_ours(self, host: tuple[str, int | None]) -> bool:
        name, _ = host
        return name in self._any_port or host in self._exact or (self._local and is_loopback(name))

    def _is_near(self, origin: str, host: tuple[str, int | None]) -> bool:
        """Return whether the page is of this very server; or, for a local server, of this machine."""
        try:
            parts = urlsplit(origin)
            found = split_host(parts.netloc)
        except ValueError:
            return False
        if found is None or parts.scheme not in ("http", "https"):
            return False
        return found == host or (self._local and is_loopback(found[0]))


async def _preflight(scope: Scope, send: Send, origin: str) -> None:
    wanted = (header(scope, b"access-control-request-headers") or "").lower().split(",")
    extra = [name for name in map(str.strip, wanted) if name.startswith("mcp-param-") and name.isascii()]
    headers = [
        ("access-control-allow-origin", origin),
        ("access-control-allow-methods", _METHODS),
        ("access-control-allow-headers", ", ".join([_HEADERS, *extra])),
        ("access-control-max-age", "600"),
        ("vary", "origin"),
    ]
    await reply(send, 204, b"", headers)


def _with_origin(send: Send, origin: str) -> Send:
    added = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED.encode("ascii")),
        (b"vary", b"origin"),
    ]

    async def send_with_origin(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await send(message)

    return send_with_origin


class SeatClaims:
    """Takes the seat of a request's connection for its caller, who is known by now, or answers 503.

    *on_refusal* receives the reason in one word. Under a server other than `serve_http` there are no seats.
    """

    def __init__(self, app: ASGIApp, *, on_refusal: Refuse) -> None:
        self._app = app
        self._refused = on_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        seat = scope.get("state", {}).get(STATE)
        if isinstance(seat, Seat):
            seat.used = monotonic()
            owner = owner_of(scope)
            try:
                if seat.owner != owner:
                    seat.claim(owner)
            except NoShareError:
                self._refused("connections")
                message = "there are too many connections, and all of yours are in use; close one, or try again later"
                await refuse(send, 503, message, [("retry-after", "5")])
                return
        await self._app(scope, receive, send)
