"""Every request from its arrival to its end: counted, logged, and brought to an end when the server stops."""

from __future__ import annotations

import logging
import traceback
from time import perf_counter
from typing import TYPE_CHECKING

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolexec.model.origin import Caller
from toolexec.model.redaction import redactor
from toolexec.server.auth.identity import CALLER
from toolexec.server.http.replies import is_stream, peer_of, refuse

if TYPE_CHECKING:
    from toolexec.server.http.metrics import Metrics

__all__ = ["BrokenOffError", "Requests"]

access: logging.Logger = logging.getLogger("toolexec.server.http.access")
logger: logging.Logger = logging.getLogger(__name__)


class BrokenOffError(Exception):
    """An answer cannot be finished; the connection has to be closed."""


class Requests:
    """The outermost part of the server: what is wrong inside never shows outside.

    Each request is logged at level INFO (logger `toolexec.server.http.access`) with its method, path and status, how
    long it took and who sent it; never with its query or headers. What the inside raises is logged without secrets,
    and the client reads of an internal error.
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
            path = repr(scope["path"][:200])
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
