"""How much a request may hold, and how long it may take to arrive."""

from __future__ import annotations

import re

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolexec.server.http.replies import Refuse, header, refuse, reply_json
from toolexec.server.http.settings import HttpSettings

__all__ = ["BodyLimits", "too_deep"]

# A text that does not end is one token as well: beginning anew at each of its quotes would take quadratic time.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_PARSE_ERROR = -32700
_DIGITS = 18


class BodyLimits:
    """Takes in the whole body of a POST before anything is done with it.

    Answers 415 for what is not JSON, 413 for a body that is too long (whether it says so or not), 408 for one that
    does not arrive in time and 400 for JSON that nests too deeply. *on_refusal* hears the reason in one word.
    """

    def __init__(self, app: ASGIApp, http: HttpSettings, *, on_refusal: Refuse) -> None:
        self._app = app
        self._most = http.max_body_bytes
        self._depth = http.max_json_depth
        self._seconds = http.body_timeout
        self._tell = on_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json" or (header(scope, b"content-encoding") or "identity").lower() != "identity":
            self._tell("content_type")
            await refuse(send, 415, "the body must be application/json, not compressed")
            return
        length = header(scope, b"content-length") or "0"
        if len(length) > _DIGITS or not length.isascii() or not length.isdigit() or int(length) > self._most:
            await self._too_long(send)
            return
        body: bytes | None = b""
        with anyio.move_on_after(self._seconds) as limit:
            body = await self._read(receive)
        if limit.cancelled_caught:
            self._tell("body_timeout")
            await refuse(send, 408, f"the body did not arrive within {self._seconds:g} s")
        elif body is None:
            self._tell("disconnected")
        elif len(body) > self._most:
            await self._too_long(send)
        elif too_deep(body, self._depth):
            self._tell("json_depth")
            problem = {"code": _PARSE_ERROR, "message": f"Parse error: nested more than {self._depth} levels deep"}
            await reply_json(send, 400, {"jsonrpc": "2.0", "id": None, "error": problem})
        else:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body, or as much of it as shows that it is too long; None when the client went away."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > self._most or not message.get("more_body", False):
                return bytes(body)

    async def _too_long(self, send: Send) -> None:
        self._tell("body_size")
        await refuse(send, 413, f"the body is longer than {self._most} bytes")


def too_deep(body: bytes, most: int) -> bool:
    """Whether JSON nests more than *most* levels deep; also right for what is no valid JSON."""
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    depth = 0
    for token in _TOKEN.finditer(body):
        first = body[token.start()]
        if first in b"[{":
            depth += 1
            if depth > most:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again
